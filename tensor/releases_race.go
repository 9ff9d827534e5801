//go:build race

package tensor

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

const (
	// keptReleases is how many releases of a Buffer are recorded, the latest ones. When
	// a holder releases twice and another holder is left, the panic comes at the latter:
	// then one of the earlier stacks shows the mistake.
	keptReleases = 4
	// keptFrames is how many frames of each are recorded.
	keptFrames = 16
)

// releases records where a Buffer was released, for the panic of a later misuse.
type releases struct {
	mu     sync.Mutex // guards what follows
	n      int        // releases so far
	stacks [keptReleases][keptFrames]uintptr
}

// record adds the stack of a Release and returns its number. It is called before the
// reference is given up, so that a misuse at the same time finds it.
func (r *releases) record() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	stack := &r.stacks[r.n%keptReleases]
	clear(stack[:])
	runtime.Callers(skippedFrames, stack[:])
	r.n++
	return r.n - 1
}

// forget removes the stack of a Release that gave up no reference.
func (r *releases) forget(number int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch number {
	case r.n - 1:
		r.n--
	default: // another Release was recorded since
		clear(r.stacks[number%keptReleases][:])
	}
}

// skippedFrames are runtime.Callers, record and drop.
const skippedFrames = 3

// String lists the recorded stacks, the latest one first.
func (r *releases) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for i := r.n - 1; i >= max(0, r.n-keptReleases); i-- {
		stack := &r.stacks[i%keptReleases]
		if stack[0] == 0 { // forgotten
			continue
		}
		fmt.Fprintf(&b, "\nrelease %d was at\n", i+1)
		for frames := runtime.CallersFrames(stack[:]); ; {
			f, more := frames.Next()
			if f.PC != 0 {
				fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
			}
			if !more {
				break
			}
		}
	}
	return b.String()
}
