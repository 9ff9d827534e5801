package tensortest

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// pattern fills released memory. Its bytes are no small integers, no text and,
// as a float, a number that no test uses.
const pattern = 0xDB

// maxIdle bounds the released blocks that are watched; beyond it the oldest is
// checked a last time and let go.
const maxIdle = 64 << 20

// Allocator is a tensor.Allocator over the Go heap that fails its test
//
//   - when a buffer is not released by the end of the test, with the stack of
//     who allocated it;
//   - when released memory is written to, with the stacks of who had
//     allocated and who had released it. Released blocks are filled with a
//     pattern, which is checked when a block is handed out again and at the
//     end of the test. Under the race detector a late read shows too.
//
// It may be used from any goroutine.
type Allocator struct {
	t testing.TB

	mu sync.Mutex
	// All below are guarded by mu.
	out    map[*block]struct{}
	empty  chan struct{} // closed when out becomes empty; nil when nobody waits
	idle   []*block      // released, oldest first
	idleN  int           // bytes in idle
	inUse  int64         // bytes in out
	limit  int64
	failed bool // a late write was reported; more would be noise
}

// block is memory with the stacks of its last owner.
type block struct {
	data                []byte
	reserved            int64 // bytes that are only counted
	allocated, released []uintptr
}

// size is what the block counts.
func (b *block) size() int64 { return int64(len(b.data)) + b.reserved }

// NewAllocator returns an Allocator that checks itself when t ends.
func NewAllocator(t testing.TB) *Allocator {
	a := &Allocator{t: t, out: make(map[*block]struct{})}
	t.Cleanup(a.check)
	return a
}

// SetLimit makes Allocate refuse with ResourceExhausted what would bring the
// bytes in use above n; 0 means no limit.
func (a *Allocator) SetLimit(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = n
}

// Outstanding returns the number of buffers not yet released.
func (a *Allocator) Outstanding() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.out)
}

// InUse returns the bytes of the buffers not yet released.
func (a *Allocator) InUse() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inUse
}

// WaitAllReleased waits until every buffer is released. When that takes longer
// than timeout the test fails, with the stacks of who allocated what is left.
func (a *Allocator) WaitAllReleased(timeout time.Duration) {
	a.t.Helper()
	a.mu.Lock()
	if len(a.out) == 0 {
		a.mu.Unlock()
		return
	}
	if a.empty == nil {
		a.empty = make(chan struct{})
	}
	empty := a.empty
	a.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-empty:
	case <-timer.C:
		a.t.Errorf("tensortest: after %v %s", timeout, a.leaks())
	}
}

// Allocate implements tensor.Allocator. The content is zero in new memory and
// the pattern in memory that was released before.
func (a *Allocator) Allocate(n int) (*tensor.Buffer, error) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkLimitLocked(int64(n)); err != nil {
		return nil, err
	}
	b := a.takeIdleLocked(n)
	if b == nil {
		// The heap checks the size, and aligns.
		fresh, err := tensor.Heap{}.Allocate(n)
		if err != nil {
			return nil, err
		}
		b = &block{data: fresh.Bytes()}
	}
	b.allocated, b.released = callers(), nil
	a.out[b] = struct{}{}
	a.inUse += int64(n)
	return tensor.NewBuffer(b.data, func() { a.release(b) }), nil
}

func (a *Allocator) checkLimitLocked(n int64) error {
	if a.limit > 0 && n > 0 && n > a.limit-a.inUse {
		return status.Errorf(status.ResourceExhausted,
			"cannot allocate %d bytes: %d bytes are in use and the test's limit is %d", n, a.inUse, a.limit)
	}
	return nil
}

// Reserve implements tensor.Reserver. What is not released is reported as memory is.
func (a *Allocator) Reserve(n int64) (*tensor.Buffer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkLimitLocked(n); err != nil {
		return nil, err
	}
	b := &block{reserved: n, allocated: callers()}
	a.out[b] = struct{}{}
	a.inUse += n
	return tensor.NewBuffer(nil, func() { a.release(b) }), nil
}

// takeIdleLocked returns a released block of n bytes that is as it was left,
// or nil.
func (a *Allocator) takeIdleLocked(n int) *block {
	for i, b := range a.idle {
		if len(b.data) == n {
			a.idle = slices.Delete(a.idle, i, i+1)
			a.idleN -= n
			a.checkIdleLocked(b)
			return b
		}
	}
	return nil
}

func (a *Allocator) release(b *block) {
	fillPattern(b.data)
	a.mu.Lock()
	defer a.mu.Unlock()
	b.released = callers()
	delete(a.out, b)
	a.inUse -= b.size()
	if b.reserved == 0 {
		a.idle = append(a.idle, b)
		a.idleN += len(b.data)
	}
	for a.idleN > maxIdle {
		a.checkIdleLocked(a.idle[0])
		a.idleN -= len(a.idle[0].data)
		a.idle = a.idle[1:]
	}
	if len(a.out) == 0 && a.empty != nil {
		close(a.empty)
		a.empty = nil
	}
}

// checkIdleLocked fails the test when a released block was written to.
func (a *Allocator) checkIdleLocked(b *block) {
	a.t.Helper()
	i := changed(b.data)
	if i < 0 || a.failed {
		return
	}
	a.failed = true
	a.t.Errorf("tensortest: byte %d of a block of %d bytes was written after its release (%#x)\nallocated by\n%sreleased by\n%s",
		i, len(b.data), b.data[i], stack(b.allocated), stack(b.released))
}

// fillPattern and changed work on large pieces, so that a test with a 1 GiB
// tensor stays quick under the race detector.
func fillPattern(data []byte) {
	for n := copy(data, []byte{pattern}); n > 0 && n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
}

// changed returns the index of the first byte that is not the pattern, or -1.
func changed(data []byte) int {
	if bytes.Count(data, []byte{pattern}) == len(data) {
		return -1
	}
	return slices.IndexFunc(data, func(b byte) bool { return b != pattern })
}

func (a *Allocator) check() {
	a.t.Helper()
	if report := a.leaks(); report != "" {
		a.t.Errorf("tensortest: at the end of the test %s", report)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.idle {
		a.checkIdleLocked(b)
	}
}

// maxStacks bounds a report: a leak in a loop has one cause.
const maxStacks = 5

// leaks describes the buffers not yet released; "" when there are none.
func (a *Allocator) leaks() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.out) == 0 {
		return ""
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%d buffers with %d bytes are not released", len(a.out), a.inUse)
	n := 0
	for b := range a.out {
		if n++; n > maxStacks {
			fmt.Fprintf(&s, "\nand %d more", len(a.out)-maxStacks)
			break
		}
		fmt.Fprintf(&s, "\n%d bytes allocated by\n%s", b.size(), stack(b.allocated))
	}
	return s.String()
}

func callers() []uintptr {
	pcs := make([]uintptr, 32)
	return pcs[:runtime.Callers(3, pcs)]
}

func stack(pcs []uintptr) string {
	var s strings.Builder
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if f.Function != "" {
			fmt.Fprintf(&s, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return s.String()
		}
	}
}
