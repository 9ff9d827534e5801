package collective

import (
	"runtime"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// guard calls f. A panic is a bug, but here it is the error of the operation, with the place where it
// happened: graphs and tensors come from strangers, and a wrong index must not end the process.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return f()
}

func panicked(p any) error {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !more || !strings.HasPrefix(f.Function, "runtime.") {
			return status.Errorf(status.Internal, "a collective operation panicked, which is a bug: %v (%s:%d)", p, f.Function, f.Line)
		}
	}
}
