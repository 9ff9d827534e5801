// Package tier runs the tests that need the kernel's Soft-RoCE devices: those of the packages in a list, built here with the tag rxe, run
// on a machine that has rxe0 and rxe1, and reported as go test -json would.
//
//	list ──go test -c──▶ build/rxe-vm/tests/ ──▶ the VM, one boot for all (or this machine) ──test2json──▶ events
//
// [Decide] says where they run, and why not when they cannot.
package tier
