// Package tier runs the tests that need the kernel's Soft-RoCE devices. It builds the test binaries
// of the packages in a list with the tag rxe, runs them on a machine that has rxe0 and rxe1, and
// reports the results in the format of go test -json.
//
//	list ──go test -c──▶ build/rxe-vm/tests/ ──▶ the VM, one boot for all (or this machine) ──test2json──▶ events
//
// [Decide] decides where they run, or why they cannot run.
package tier
