// Package archtest holds the tests that keep the code as ARCHITECTURE.md section 2 draws it: which room imports what, where
// unsafe and "C" may stand, that nothing registers itself at start, that no test waits by sleeping
// and every package checks its tests for leaks. They read the source
// files, whatever their build constraints, so what holds on one platform holds on all.
package archtest
