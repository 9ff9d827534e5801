//go:build !linux

package vm

func runProgram() bool { return false }
