// Package tensorflow holds the tests against a real TensorFlow, an implementation that is
// independent of this project. It has no code of its own.
//
//	make interop
//
// installs the TensorFlow of requirements.txt from PyPI into build/venv, and runs the tests; make
// interop-old does so with that of requirements-old.txt. They have the build tag interop and are not
// part of `make test`, because TensorFlow is a download of 300 MB and does not exist for every
// platform.
//
// There are two kinds of tests.
//
//   - The test is the master. start starts TensorFlow's stock worker as task 0, by worker.py, in
//     which only TensorFlow's C++ code runs, and a Tryst server as task 1. The test registers graphs
//     at TensorFlow by package internal/tensorflow/master, and exchanges tensors.
//   - TensorFlow is the master. tasks.startTask starts a chief by driver.py, which runs the programs
//     of programs.py as a client of its own session. Tryst servers are tasks of the cluster: one for
//     each kernel set. A program gives the same values on their tasks as on one of TensorFlow.
package tensorflow
