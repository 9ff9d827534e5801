// Package tensorflow holds the tests against a real TensorFlow, the one live
// peer of this project that nobody here wrote. It has no code of its own.
//
//	make interop
//
// installs the TensorFlow that requirements.txt names into build/venv, from
// PyPI, and runs them. They have the build tag interop and are no part of
// `make test`: TensorFlow is a download of 300 MB, and not there for every
// platform.
//
// Each test starts two tasks of one cluster: TensorFlow's stock worker as task
// 0 (worker.py starts it, and no Python takes part in anything after that) and
// a Tryst server as task 1. The test is their master: it registers graphs at
// TensorFlow and runs them, by the methods that TensorFlow's own master calls.
package tensorflow
