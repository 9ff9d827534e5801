//go:build !linux

package soft

import "runtime"

// Yield lets other goroutines have the processor. Threads take turns without it.
func Yield() { runtime.Gosched() }
