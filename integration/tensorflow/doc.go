// Package tensorflow holds the tests against a real TensorFlow, an implementation that is
// independent of this project. It has no code of its own.
//
//	make interop
//
// installs the TensorFlow of requirements.txt from PyPI into build/venv, and runs the tests. They
// have the build tag interop and are not part of `make test`, because TensorFlow is a download of
// 300 MB and does not exist for every platform.
//
// Each test starts two tasks of one cluster: TensorFlow's stock worker as task 0, which worker.py
// starts and in which only TensorFlow's C++ code runs after that, and a Tryst server as task 1. The
// test acts as their master: it registers graphs at TensorFlow and runs them, with the RPCs of
// TensorFlow's own master.
package tensorflow
