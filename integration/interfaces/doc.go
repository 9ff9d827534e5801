// Package interfaces holds tests of servers whose network interfaces come, go, and get other
// names. It has no code of its own.
//
// The tests run in a process of their own in a new network namespace, and change nothing on
// the host. Where the kernel allows no such namespace they are skipped.
package interfaces
