// Package top shows the status of processes (statusapi) in a terminal. Model is a pure state machine: messages go in, lines come
// out. Run is the thin shell around it: a program of bubbletea, with a goroutine for each process that fetches its status.
//
//	fetcher ── Fetched ──►┐
//	terminal ── key, size ─► Model ── Lines ──► terminal
package top
