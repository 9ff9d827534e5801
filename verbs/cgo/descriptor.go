//go:build linux && cgo

package libibverbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// descriptor is a file descriptor of the library's that waits in Go's poller. It
// is a duplicate: the library closes its own when the object is destroyed, and Go
// closes this one before.
type descriptor struct {
	file *os.File
	conn syscall.RawConn
	mu   sync.Mutex // one waiter at a time; taken by close to wait for it
}

// newDescriptor makes fd non-blocking, for the library too.
func newDescriptor(fd int, name string) (*descriptor, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("make %s non-blocking: %w", name, err)
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", name, err)
	}
	file := os.NewFile(uintptr(own), name)
	conn, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails when the poller did not take it
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("wait for %s: %w", name, err)
	}
	return &descriptor{file: file, conn: conn}, nil
}

// wait calls take until it returns true: at once, and whenever the descriptor
// has become readable. It ends with ctx's error, or with ErrClosed.
func (d *descriptor) wait(ctx context.Context, take func(fd uintptr) bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		expired := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = d.file.SetReadDeadline(time.Unix(1, 0)) // fails when closed, which ends the wait too
			close(expired)
		})
		defer func() {
			if !stop() { // The deadline is, or is being, set: the next waiter must not find it.
				<-expired
				_ = d.file.SetReadDeadline(time.Time{})
			}
		}()
	}
	err := d.conn.Read(take)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ctx.Err()
	}
	// It is closed, or in a state of error, of which the poller tells nothing: the library knows.
	done := false
	if d.conn.Control(func(fd uintptr) { done = take(fd) }) != nil || !done {
		return verbs.ErrClosed
	}
	return nil
}

// close ends wait, and returns when that has returned. It is idempotent.
func (d *descriptor) close() {
	_ = d.file.Close() // a second time it fails, and nothing else can be done about it
	d.mu.Lock()
	//nolint:staticcheck // An empty section: after it no goroutine waits.
	d.mu.Unlock()
}
