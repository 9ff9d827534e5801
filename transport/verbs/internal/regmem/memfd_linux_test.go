package regmem

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/verbs"
)

// Sending arenas that peers on the same host map.

// arenas are the registrations of a sharing device that have a memfd, and those that have none.
func (p *fakePD) arenas() (shared, other []*fakeMR) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for mr := range p.open {
		if mr.fd >= 0 {
			shared = append(shared, mr)
		} else {
			other = append(other, mr)
		}
	}
	return shared, other
}

// TestSendingArenasAreSealedMemfds: whole, on tmpfs, without holes, and nobody else can write
// to one. It lasts as long as the arena.
func TestSendingArenasAreSealedMemfds(t *testing.T) {
	m := empty(t, Options{Arena: 16 * mib, SendLimit: 32 * mib, RecvLimit: 16 * mib})
	attach(t, m, leasing)
	d, pd := attachSharing(t, m)
	buf, own := allocate(t, m, 1000), allocate(t, m, 17*mib)
	copy(buf.Bytes(), "content")
	shared, _ := pd.arenas()
	if len(shared) != 2 {
		t.Fatalf("%d arenas are shared, want 2", len(shared))
	}
	for _, mr := range shared {
		var file unix.Stat_t
		var fs unix.Statfs_t
		if err := errors.Join(unix.Fstat(mr.fd, &file), unix.Fstatfs(mr.fd, &fs)); err != nil {
			t.Fatal(err)
		}
		if mr.offset != 0 || file.Size != int64(len(mr.mem)) || fs.Type != unix.TMPFS_MAGIC {
			t.Errorf("a file of %d bytes for %d at %d, on %#x", file.Size, len(mr.mem), mr.offset, fs.Type)
		}
		if hole, err := unix.Seek(mr.fd, 0, unix.SEEK_HOLE); err != nil || hole != file.Size {
			t.Errorf("a hole at %d of %d: %v", hole, file.Size, err)
		}
		want := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
		if got, err := unix.FcntlInt(uintptr(mr.fd), unix.F_GET_SEALS, 0); err != nil || got&want != want || got&unix.F_SEAL_WRITE != 0 {
			t.Errorf("seals %#x: %v", got, err)
		}
		if got, err := unix.FcntlInt(uintptr(mr.fd), unix.F_GETFD, 0); err != nil || got&unix.FD_CLOEXEC == 0 {
			t.Errorf("it is inherited by child processes: %v", err)
		}
		if _, err := unix.Mmap(mr.fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Error("a peer can map it writable")
		}
	}
	p, ok := d.Find(buf, buf.Bytes())
	if !ok {
		t.Fatal("a tensor of the sending pool is copied")
	}
	at := blockOf(buf)
	view, err := unix.Mmap(at.arena.fd, 0, len(at.arena.mem), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if pd.at(p, 0) == nil || string(view[at.off:at.off+7]) != "content" {
		t.Error("a peer does not read the tensor's content")
	}
	if err := unix.Munmap(view); err != nil {
		t.Error(err)
	}
	fds := []int{shared[0].fd, shared[1].fd}
	buf.Release()
	own.Release()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	for _, fd := range fds {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil {
			t.Errorf("descriptor %d is left", fd)
		}
	}
}

// TestOnlySendingMemoryIsShared: peers on the host do not map what is received. The device
// copies it to send it again.
func TestOnlySendingMemoryIsShared(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: 16 * mib, RecvLimit: 16 * mib})
	attach(t, m, leasing)
	before := allocate(t, m, 1000) // no memfd yet
	d, pd := attachSharing(t, m)
	after := allocate(t, m, mib)
	into, err := d.ReceiveAllocator().Allocate(5000)
	if err != nil {
		t.Fatal(err)
	}
	for name, buf := range map[string]*tensor.Buffer{"received": into, "before": before, "after": after} {
		if p, ok := d.Find(buf, buf.Bytes()); !ok || pd.at(p, 0) == nil {
			t.Errorf("%s: the device cannot send it", name)
		}
		if shared := blockOf(buf).arena.fd >= 0; shared != (name == "after") {
			t.Errorf("%s: a memfd: %v", name, shared)
		}
		buf.Release()
	}
	shared, _ := pd.arenas()
	if len(shared) != 1 || shared[0].access != 0 {
		t.Errorf("%d arenas are shared, want one without rights for peers", len(shared))
	}
}

// TestSharedArenasBeginSmallAndGoWhole: all their pages are present, so nothing is made before
// it is used, and an idle one goes.
func TestSharedArenasBeginSmallAndGoWhole(t *testing.T) {
	m := empty(t, Options{})
	attach(t, m, leasing)
	attachSharing(t, m)
	registered := func(want int64) {
		t.Helper()
		if s := m.Stats(zero).Sending; s.Registered != want || s.Absent != 0 {
			t.Errorf("%d bytes are registered, %d absent; want %d", s.Registered, s.Absent, want)
		}
	}
	registered(0)
	var held []*tensor.Buffer
	for _, want := range []int64{8, 16, 32, 64, 128, 192} {
		for m.Stats(zero).Sending.Registered < want*mib {
			held = append(held, allocate(t, m, 4*mib))
		}
		registered(want * mib)
	}
	for _, buf := range held {
		buf.Release()
	}
	now := zero.Add(time.Hour)
	sweep(t, m, now)
	sweep(t, m, now.Add(DefaultIdle))
	m.sending.awaitEnded()
	registered(0)
}

// TestAPeerThatConfirmsNothingHoldsUpNobody: deregistering a shared arena takes until its peers
// have dropped it. Until then it counts against the pool. Sweeps go on, and an allocation at
// the limit fails after a moment.
func TestAPeerThatConfirmsNothingHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := empty(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: mib})
		_, pd := attachSharing(t, m)
		confirmed := make(chan struct{})
		pd.wait = func() { <-confirmed }
		allocate(t, m, 3*mib).Release()
		begin := time.Now()
		for i := range 3 {
			if more, err := m.Sweep(begin.Add(time.Duration(i) * time.Hour)); err != nil || !more {
				t.Errorf("sweep %d: more %v, %v", i, more, err)
			}
		}
		synctest.Wait()
		if _, err := m.Allocator().Allocate(2 * mib); !exhausted(err) {
			t.Errorf("memory that a peer maps was counted as free: %v", err)
		}
		if took := time.Since(begin); took > endWait {
			t.Errorf("an allocation at the limit took %v", took)
		}
		allocate(t, m, mib).Release() // there is room for it
		close(confirmed)
		allocate(t, m, 4*mib).Release()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if s := m.Stats(zero).Sending; s.Registered != 0 || m.sending.mapped != 0 {
			t.Errorf("%d bytes are left: %+v", m.sending.mapped, s)
		}
	})
}

// TestACopyThatWaitsForMemoryHoldsUpNoOther: a peer keeps an arena, and a copy waits for that. Other
// copies go on, and each counts those that wait.
func TestACopyThatWaitsForMemoryHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := empty(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: mib})
		d, shm := attachSharing(t, m)
		confirmed := make(chan struct{})
		shm.wait = func() { <-confirmed }
		allocate(t, m, 3*mib).Release()
		for i := range 2 {
			if _, err := m.Sweep(time.Now().Add(time.Duration(i) * time.Hour)); err != nil {
				t.Error(err)
			}
		}
		used := allocate(t, m, 1000)
		var one, other Share
		waits := make(chan error)
		go func() {
			_, err := d.Stage(make([]byte, 3*mib/2), &one)
			waits <- err
		}()
		begin := time.Now()
		synctest.Wait()
		src, err := d.Stage(make([]byte, 1000), &other)
		if took := time.Since(begin); err != nil || took > 0 {
			t.Fatalf("a copy beside it took %v: %v", took, err)
		}
		if _, err := d.Stage(make([]byte, 3*mib/2), &other); !exhausted(err) {
			t.Errorf("two copies leave nothing: %v", err)
		}
		if err := <-waits; !exhausted(err) || one.held.Load() != 0 || m.staged != 0 {
			t.Errorf("%v; %d bytes are held, %d counted", err, one.held.Load(), m.staged)
		}
		src.Release()
		used.Release()
		close(confirmed)
	})
}

// TestAPeerThatConfirmsNothingHoldsUpNoOtherDevice: an arena that a peer maps leaves the pool. Its
// registration with another device ends at once, and Detach of that device waits for it.
func TestAPeerThatConfirmsNothingHoldsUpNoOtherDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := empty(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: mib})
		_, shm := attachSharing(t, m)
		nic, pd := attach(t, m, hardware)
		confirmed, closed := make(chan struct{}), make(chan struct{})
		shm.wait = func() { <-confirmed }
		pd.waitPlain = func() { <-closed }
		allocate(t, m, 3*mib).Release()
		for i := range 2 {
			if _, err := m.Sweep(time.Now().Add(time.Duration(i) * time.Hour)); err != nil {
				t.Error(err)
			}
		}
		time.AfterFunc(time.Second, func() { close(closed) })
		begin := time.Now()
		if err := nic.Detach(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); len(pd.open) > 0 || took > time.Second {
			t.Errorf("Detach took %v and left %d regions", took, len(pd.open))
		}
		close(confirmed)
	})
}

// TestAnArenaThatPeersKeepIsReported: by the next sweep. The memory stays mapped.
func TestAnArenaThatPeersKeepIsReported(t *testing.T) {
	m := empty(t, Options{Arena: mib, SendLimit: 4 * mib, RecvLimit: mib})
	_, pd := attachSharing(t, m)
	buf := allocate(t, m, 2*mib)
	kept := buf.Bytes()
	buf.Release()
	pd.keep = verbs.Errorf("deregister", "", verbs.ErrBusy, "a peer maps it")
	sweep(t, m, zero.Add(time.Hour))
	_, err := m.Sweep(zero.Add(2 * time.Hour))
	m.sending.awaitEnded()
	if err == nil {
		_, err = m.Sweep(zero.Add(2 * time.Hour))
	}
	if !errors.Is(err, verbs.ErrBusy) || faults(kept) {
		t.Errorf("%v; unmapped %v", err, faults(kept))
	}
	if s := m.Stats(zero).Sending; s.Stuck != 2*mib {
		t.Errorf("%+v", s)
	}
	pd.keep = nil
	for _, mr := range first(pd.arenas()) {
		mr.Close()
	}
}

func first[T any](v, _ T) T { return v }

// TestWithoutMemfdsTheDeviceCopies: and the log has it once. No other memory of the process is
// concerned.
func TestWithoutMemfdsTheDeviceCopies(t *testing.T) {
	var log bytes.Buffer
	m := empty(t, Options{Arena: mib, SendLimit: 16 * mib, RecvLimit: mib, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	d, pd := attachSharing(t, m)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = mib / 2
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &low); err != nil {
		t.Fatal(err)
	}
	buf, own := allocate(t, m, 1000), allocate(t, m, 2*mib)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*tensor.Buffer{buf, own} {
		if p, ok := d.Find(b, b.Bytes()); !ok || pd.at(p, 0) == nil {
			t.Error("the device cannot send it")
		}
		b.Release()
	}
	if shared, _ := pd.arenas(); len(shared) > 0 {
		t.Errorf("%d arenas are shared", len(shared))
	}
	if n := strings.Count(log.String(), "cannot be shared"); n != 1 || !strings.Contains(log.String(), "RLIMIT_FSIZE") {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}
