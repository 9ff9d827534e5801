// Package archtest holds the tests that compare the code with ARCHITECTURE.md section 2: which package imports what, which
// packages are public, how directories are named, how long files are, and where unsafe and "C" occur. They also check that no
// package registers anything when it is imported, that nothing waits by sleeping, that every package checks its tests for leaks,
// that words in names of types have one sense, and that documents name what exists. They read the source files, whatever their
// build constraints, so what holds on one platform holds on all. They have nothing to race, so the race detector does not run
// them.
package archtest
