// Package silent tests what the status of a process has of a peer whose process is stopped, with real processes and SIGSTOP, over
// each route that needs no device.
package silent
