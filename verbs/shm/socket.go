//go:build linux

package shm

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"crypto/rand"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// userNamespace returns the number of this process's user namespace (user_namespaces(7)).
func userNamespace() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &st); err != nil {
		if errors.Is(err, unix.ENOENT) { // a kernel without user namespaces, or no /proc: user IDs alone decide
			return 0, nil
		}
		return 0, fmt.Errorf("stat of /proc/self/ns/user: %w", err)
	}
	return st.Ino, nil
}

// listen opens the sockets of the device.
func (d *device) listen() error {
	var random [16]byte
	rand.Read(random[:]) // never fails
	d.socket = socketPrefix + hex.EncodeToString(random[:])
	l, err := d.listenAt("@" + d.socket)
	if err != nil {
		return fmt.Errorf("listening on a unix socket: %w", err)
	}
	d.listeners = append(d.listeners, l)
	if dir := d.provider.options.Dir; dir != "" {
		if err := d.listenIn(dir); err != nil {
			d.stopListening(l)
			return err
		}
	}
	for _, l := range d.listeners {
		d.running.Go(func() { d.accept(l) })
	}
	return nil
}

// listenAt opens a socket whose connections take no descriptors.
func (d *device) listenAt(name string) (*net.UnixListener, error) {
	c := net.ListenConfig{Control: d.noRights}
	l, err := c.Listen(d.ctx, "unixpacket", name)
	if err != nil {
		return nil, err
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, fmt.Errorf("a unix socket is a %T", l)
	}
	return u, nil
}

// listenIn opens the socket for other network namespaces.
func (d *device) listenIn(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return &DirError{Dir: dir, Why: err.Error()}
	}
	path := filepath.Join(abs, d.socket)
	if n := len(path) - len(abs); len(path) > maxSocketName {
		return &DirError{Dir: dir, Why: fmt.Sprintf("its path has %d bytes, and at most %d leave room for the name of a socket; choose a shorter one", len(abs), maxSocketName-n)}
	}
	l, err := d.listenAt(path)
	if err != nil {
		return &DirError{Dir: dir, Why: dirProblem(abs, err)}
	}
	d.hasPath = true
	d.listeners = append(d.listeners, l)
	if d.provider.options.Trusted { // otherwise only processes of the same user connect
		if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the handshake decides who gets a descriptor
			d.stopListening(l)
			return fmt.Errorf("letting other users connect to %q: %w", path, err)
		}
	}
	d.removeStale(abs)
	return nil
}

// dirProblem says why no socket could be made in a directory.
func dirProblem(dir string, err error) string {
	switch i, statErr := os.Stat(dir); {
	case errors.Is(statErr, os.ErrNotExist):
		return "it does not exist"
	case statErr == nil && !i.IsDir():
		return "it is no directory"
	case errors.Is(err, os.ErrPermission):
		return fmt.Sprintf("the user %d of this process may not make a socket in it", os.Geteuid())
	case errors.Is(err, unix.EROFS):
		return "its file system is read-only"
	}
	errno := err
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		errno = e
	}
	return "no socket can be made in it: " + errno.Error()
}

// removeStale removes the sockets of processes that were killed.
func (d *device) removeStale(dir string) {
	list, err := filepath.Glob(filepath.Join(dir, socketPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range list {
		// A new socket refuses connections until its process listens.
		if i, err := os.Lstat(path); err != nil || i.Mode()&os.ModeSocket == 0 || time.Since(i.ModTime()) < staleAge {
			continue
		}
		if c, err := d.dialOne(d.ctx, path); err == nil {
			d.hangUp(c, verbs.GID{})
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path) // another process may remove it, too
		}
	}
}

// accept runs until the listener is closed.
func (d *device) accept(l *net.UnixListener) {
	for failing := false; d.closer.awaitRoom(d.ctx); {
		c, err := l.AcceptUnix()
		if d.ctx.Err() != nil {
			if err == nil {
				d.hangUp(c, verbs.GID{})
			}
			return
		}
		if err != nil { // out of descriptors, for one: peers try again until their time is over
			if !failing {
				d.logger.Warn("shm: a connection cannot be accepted", "reason", err)
			}
			failing = true
			select {
			case <-d.ctx.Done():
				return
			case <-time.After(100 * retryDelay):
			}
			continue
		}
		failing = false
		if err := d.checkUserID(c); err != nil { // before it takes the place of another one
			d.refuse(d.ctx, c, err)
			continue
		}
		ctx, x := d.unproven.add(d.ctx)
		d.running.Go(func() {
			defer d.unproven.remove(x)
			if err := d.welcome(ctx, c); err != nil {
				d.refuse(ctx, c, err)
			}
		})
	}
}

// refuse tells a peer why, and closes the connection. It does not block.
func (d *device) refuse(ctx context.Context, c *net.UnixConn, err error) {
	d.tellRefusal(ctx, c, err)
	d.hangUp(c, verbs.GID{})
}

// tellRefusal tells a peer why it is refused, unless the context of its connection was ended: then it may
// try again.
func (d *device) tellRefusal(ctx context.Context, c *net.UnixConn, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	d.logger.Debug("shm: refused a connection", "reason", err)
	c.SetWriteDeadline(time.Time{}) //nolint:errcheck // the peer may be gone
	if raw, gone := c.SyscallConn(); gone == nil {
		_ = send(raw, refusal(err), -1) // likewise
	}
}

// unproven are the accepted connections without a proof. Beyond maxUnproven the oldest is closed: a peer
// sends its proof at once, and others may never do.
type unproven struct {
	mu   sync.Mutex // guards list
	list []*stranger
}

// stranger is a connection without a proof, and its goroutine.
type stranger struct {
	end  context.CancelFunc // ends what its goroutine waits for
	left chan struct{}      // closed when the goroutine is about to end
}

// add counts a connection, whose context ends when there are too many, or when its time is over. It waits
// for the goroutine of the one that it ends, which is not held up by a peer.
func (u *unproven) add(ctx context.Context) (context.Context, *stranger) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	x := &stranger{end: cancel, left: make(chan struct{})}
	var oldest *stranger
	u.mu.Lock()
	if len(u.list) >= maxUnproven {
		oldest = u.list[0]
	}
	u.list = append(u.list, x)
	u.mu.Unlock()
	if oldest != nil {
		oldest.end()
		<-oldest.left
	}
	return ctx, x
}

func (u *unproven) remove(x *stranger) {
	x.end()
	u.mu.Lock()
	if i := slices.Index(u.list, x); i >= 0 {
		u.list = slices.Delete(u.list, i, i+1)
	}
	u.mu.Unlock()
	close(x.left) // after that the next one finds another oldest
}

func (u *unproven) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.list)
}

// dial connects to the socket of a peer: by its name if both are in one network namespace, else in
// the directory for sockets, which each side may have mounted elsewhere. The context limits how
// long.
func (d *device) dial(ctx context.Context, e *endpointData) (*net.UnixConn, error) {
	c, err := d.dialOne(ctx, "@"+e.socket)
	if err == nil {
		return c, nil
	}
	switch dir := d.provider.options.Dir; {
	case dir == "":
		return nil, fmt.Errorf("%w (a peer in another network namespace needs a directory for sockets that both share)", err)
	case !e.inDir:
		return nil, fmt.Errorf("%w, and the peer has no socket in a directory", err)
	default:
		c, second := d.dialOne(ctx, filepath.Join(dir, e.socket))
		if second != nil {
			return nil, errors.Join(err, second)
		}
		return c, nil
	}
}

// dialOne opens a connection that takes no descriptors.
func (d *device) dialOne(ctx context.Context, name string) (*net.UnixConn, error) {
	for {
		c, err := d.connectTo(name)
		if !errors.Is(err, unix.EAGAIN) { // EAGAIN: too many others are connecting
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryDelay):
		}
	}
}

// connectTo makes one attempt. It uses no net.Dialer, which closes a connection whose context has ended
// meanwhile: that may block. A unix socket connects at once or not at all.
func (d *device) connectTo(name string) (*net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err = d.passRights(uintptr(fd), false); err == nil {
		err = connectFD(fd, name)
	}
	if err != nil {
		_ = unix.Close(fd) // it never was connected
		return nil, fmt.Errorf("connecting to the socket %q: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	c, err := net.FileConn(file) // a duplicate
	if u, ok := c.(*net.UnixConn); ok {
		_ = file.Close() // it is not the last one
		return u, nil
	}
	if err == nil {
		err = fmt.Errorf("a unix socket is a %T", c)
	}
	d.closer.add(verbs.GID{}, func() { _ = file.Close() })
	return nil, err
}

// connectFD connects a socket. A path in the directory for sockets may not be a symbolic link: others
// may write there, and a name on a file system of theirs could block.
func connectFD(fd int, name string) error {
	if name[0] == '@' {
		return os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrUnix{Name: name}))
	}
	node, err := unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("open", err)
	}
	defer unix.Close(node)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d", node)})
	return os.NewSyscallError("connect", err)
}

// checkUser returns nil if the process at the other end may read all memory of this one.
// Descriptors go to processes of the same user in the same user namespace, which could read it
// anyway. peerNS is what the peer says; what the kernel says counts, if it does.
func (d *device) checkUser(c *net.UnixConn, peerNS uint64) error {
	if d.provider.options.Trusted {
		return nil
	}
	if err := d.checkUserID(c); err != nil {
		return err
	}
	switch is, err := d.provider.peerNS(c); {
	case err == nil && d.userNS != 0: // 0: this process does not know its own
		peerNS = is
	case err != nil && !errors.Is(err, errNotSaid):
		return fmt.Errorf("the kernel does not say in which user namespace the peer is, so it is taken for another one: %w; shared memory needs one, or mutual TLS", err)
	}
	if peerNS != d.userNS {
		return fmt.Errorf("the peer is in user namespace %d, this process in %d: shared memory needs one, or mutual TLS", peerNS, d.userNS)
	}
	return nil
}

// checkUserID is the part of checkUser that needs no word of the peer.
func (d *device) checkUserID(c *net.UnixConn) error {
	if d.provider.options.Trusted {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("SO_PEERCRED: %w", failed)
	}
	if own := os.Geteuid(); own < 0 || cred.Uid != uint32(own) { //nolint:gosec // not negative
		return fmt.Errorf("the peer is a process of user %d, this one of user %d: shared memory needs one user, or mutual TLS", cred.Uid, own)
	}
	return nil
}

// send sends a packet without waiting, with a descriptor unless fd is negative. EAGAIN means
// that the socket is full.
func send(raw syscall.RawConn, b []byte, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	var failed error
	err := raw.Write(func(s uintptr) bool {
		failed = unix.Sendmsg(int(s), b, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	})
	if err == nil {
		err = failed
	}
	return err
}
