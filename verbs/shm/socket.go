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
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + d.socket, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("listening on a unix socket: %w", err)
	}
	d.listeners = append(d.listeners, l)
	if dir := d.provider.options.Dir; dir != "" {
		if err := d.listenIn(dir); err != nil {
			l.Close() //nolint:errcheck // it was not used
			return err
		}
	}
	for _, l := range d.listeners {
		d.running.Go(func() { d.accept(l) })
	}
	return nil
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
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return &DirError{Dir: dir, Why: dirProblem(abs, err)}
	}
	d.hasPath = true
	d.listeners = append(d.listeners, l)
	if d.provider.options.Trusted { // else only the same user connects
		if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the handshake decides who gets a descriptor
			l.Close() //nolint:errcheck // it was not used
			return fmt.Errorf("letting other users connect to %q: %w", path, err)
		}
	}
	removeStale(abs)
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
func removeStale(dir string) {
	list, err := filepath.Glob(filepath.Join(dir, socketPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range list {
		// A new socket refuses connections until its process listens.
		if i, err := os.Lstat(path); err != nil || i.Mode()&os.ModeSocket == 0 || time.Since(i.ModTime()) < staleAge {
			continue
		}
		if c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}); err == nil {
			closeConn(c)
		} else if errors.Is(err, unix.ECONNREFUSED) {
			_ = os.Remove(path) // another process may remove it, too
		}
	}
}

// accept runs until the listener is closed.
func (d *device) accept(l *net.UnixListener) {
	for failing := false; ; {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for one: peers try again until their time is over
			if !failing {
				d.logger.Warn("shm: a connection cannot be accepted", "error", err)
			}
			failing = true
			select {
			case <-d.Done():
				return
			case <-time.After(100 * retryDelay):
			}
			continue
		}
		failing = false
		if err := d.checkUserID(c); err != nil { // before it takes the place of another one
			d.refuse(c, err)
			continue
		}
		d.unproven.add(c)
		d.running.Go(func() {
			defer d.unproven.remove(c)
			if err := d.welcome(c); err != nil {
				d.refuse(c, err)
			}
		})
	}
}

// refuse tells a peer why, and closes the connection.
func (d *device) refuse(c *net.UnixConn, err error) {
	d.logger.Debug("shm: refused a connection", "error", err)
	c.SetWriteDeadline(time.Now().Add(retryDelay)) //nolint:errcheck // the peer may be gone
	c.Write(refusal(err))                          //nolint:errcheck // likewise
	closeConn(c)
}

// unproven are the accepted connections without a proof. Beyond maxUnproven the oldest is closed: a peer
// sends its proof at once, and others may never do.
type unproven struct {
	mu   sync.Mutex // guards list
	list []*net.UnixConn
}

func (u *unproven) add(c *net.UnixConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.list) >= maxUnproven {
		closeConn(u.list[0])
		u.list = slices.Delete(u.list, 0, 1)
	}
	u.list = append(u.list, c)
}

func (u *unproven) remove(c *net.UnixConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if i := slices.Index(u.list, c); i >= 0 {
		u.list = slices.Delete(u.list, i, i+1)
	}
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
	c, err := dialOne(ctx, "@"+e.socket)
	if err == nil {
		return c, nil
	}
	switch dir := d.provider.options.Dir; {
	case dir == "":
		return nil, fmt.Errorf("%w (a peer in another network namespace needs a directory for sockets that both share)", err)
	case !e.inDir:
		return nil, fmt.Errorf("%w, and the peer has no socket in a directory", err)
	default:
		c, second := dialOne(ctx, filepath.Join(dir, e.socket))
		if second != nil {
			return nil, errors.Join(err, second)
		}
		return c, nil
	}
}

func dialOne(ctx context.Context, name string) (*net.UnixConn, error) {
	var dialer net.Dialer
	for {
		c, err := dialer.DialContext(ctx, "unixpacket", name)
		if err == nil {
			u, ok := c.(*net.UnixConn)
			if !ok {
				return nil, fmt.Errorf("a unix socket is a %T", c)
			}
			return u, nil
		}
		if !errors.Is(err, unix.EAGAIN) { // EAGAIN: too many others are connecting
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryDelay):
		}
	}
}

// closeConn closes a connection, which is of no use either way.
func closeConn(c *net.UnixConn) { _ = c.Close() }

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

// receive reads a packet, waiting for it. A descriptor that comes with it is the caller's; others
// are closed. fd is -1 for none. oob is space for control data.
func receive(raw syscall.RawConn, buf, oob []byte) (n, fd int, err error) {
	return receiveWith(raw, buf, oob, true)
}

func receiveWith(raw syscall.RawConn, buf, oob []byte, wait bool) (n, fd int, err error) {
	fd = -1
	oobn, flags := 0, 0
	var failed error
	read := func(s uintptr) bool {
		for {
			n, oobn, flags, _, failed = unix.Recvmsg(int(s), buf, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
			if failed != unix.EINTR {
				return failed != unix.EAGAIN
			}
		}
	}
	if wait {
		err = raw.Read(read)
	} else { // not Read, which a nudge ends
		err = raw.Control(func(s uintptr) { read(s) })
	}
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, -1, err
	}
	if oobn > 0 {
		fd = takeDescriptor(oob[:oobn])
	}
	if n == 0 && fd >= 0 { // else it would be taken for the end of the connection
		_ = unix.Close(fd)
		return 0, -1, errors.New("the peer passed a descriptor with a packet without content")
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		return 0, -1, errors.New("the peer sent a packet that is too long, or too many descriptors; or this process has no descriptor free: raise its limit")
	}
	return n, fd, nil
}

// receiveNow is receive without waiting: EAGAIN means that there is no packet.
func receiveNow(raw syscall.RawConn, buf, oob []byte) (n, fd int, err error) {
	return receiveWith(raw, buf, oob, false)
}

// takeDescriptor returns the first descriptor of control data and closes the others; -1 for none.
func takeDescriptor(oob []byte) int {
	fd := -1
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1
	}
	for i := range list {
		fds, err := unix.ParseUnixRights(&list[i])
		if err != nil {
			continue
		}
		for _, x := range fds {
			if fd < 0 {
				fd = x
			} else {
				_ = unix.Close(x)
			}
		}
	}
	return fd
}

// maxDescriptors is how many descriptors of a packet fit into the space for control data. The
// kernel closes those beyond it.
const maxDescriptors = 8

func controlSpace() []byte { return make([]byte, unix.CmsgSpace(4*maxDescriptors)) }

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
