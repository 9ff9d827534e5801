//go:build rxe && linux && cgo

package roce_test

import (
	"context"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// kernel is a queue pair of the kernel's device, with a memory region.
type kernel struct {
	t   *testing.T
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	qp  verbs.QP
	mem []byte
	mr  verbs.MR
	gid verbs.GIDEntry
	psn verbs.PSN
	// access is what the peer may do through the queue pair.
	access verbs.Access
}

// remoteAll is all remote access rights.
const remoteAll = verbs.AccessRemoteWrite | verbs.AccessRemoteRead | verbs.AccessRemoteAtomic

// newKernel opens a device and creates a queue pair with a local address.
func newKernel(t *testing.T, device string, addr netip.Addr, size int) *kernel {
	t.Helper()
	k := &kernel{t: t, psn: 0xfffffe, access: remoteAll} // the PSN wraps soon
	var err error
	if k.dev, err = libibverbs.New(libibverbs.Options{}).Open(device); err != nil {
		t.Fatal(err)
	}
	closing(t, device, k.dev)
	gids, err := k.dev.GIDs(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gids {
		if g.GID.Addr() == addr && g.Type == verbs.GIDTypeRoCEv2 {
			k.gid = g
		}
	}
	if k.gid.GID.IsZero() {
		t.Fatalf("%s has no GID %v: %v", device, addr, gids)
	}
	if k.mem, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(k.mem); err != nil {
			t.Error(err)
		}
	})
	if k.pd, err = k.dev.AllocPD(); err != nil {
		t.Fatal(err)
	}
	closing(t, "PD", k.pd)
	if k.mr, err = k.pd.RegisterMemory(k.mem, verbs.AccessLocalWrite|remoteAll); err != nil {
		t.Fatal(err)
	}
	closing(t, "MR", k.mr)
	if k.cq, err = k.dev.CreateCQ(verbs.CQConfig{Size: 256}); err != nil {
		t.Fatal(err)
	}
	closing(t, "CQ", k.cq)
	if k.qp, err = k.pd.CreateQP(verbs.QPConfig{SendCQ: k.cq, RecvCQ: k.cq, MaxSend: 64, MaxRecv: 64, MaxInline: 64}); err != nil {
		t.Fatal(err)
	}
	closing(t, "QP", k.qp)
	return k
}

func closing(t *testing.T, what string, c interface{ Close() error }) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close %s: %v", what, err)
		}
	})
}

// The RNR timer of the kernel's device is 10.24 ms, and it retries without limit.
const (
	rnrTimer   = 20
	rnrForEver = 7
)

func (k *kernel) path(mtu verbs.MTU) verbs.Path {
	return verbs.Path{
		Port: 1, Access: k.access, SGIDIndex: uint8(k.gid.Index), MTU: mtu,
		Timeout: 18, Retry: 6, RNRRetry: rnrForEver, MinRNRTimer: rnrTimer, ReadAtomic: 1,
	}
}

// connect brings the queue pair from RESET to RTS.
func (k *kernel) connect(mtu verbs.MTU, peer verbs.Endpoint) {
	k.t.Helper()
	if err := k.path(mtu).Init(k.qp); err != nil {
		k.t.Fatal(err)
	}
	if err := k.path(mtu).Connect(k.qp, k.psn, peer); err != nil {
		k.t.Fatal(err)
	}
}

// endpoint returns what a peer needs to connect.
func (k *kernel) endpoint() verbs.Endpoint {
	e := k.qp.Endpoint()
	e.GID, e.PSN = k.gid.GID, k.psn
	return e
}

// sge returns a part of the memory.
func (k *kernel) sge(offset, n int) []verbs.SGE {
	return []verbs.SGE{{Addr: k.mr.Addr() + uint64(offset), Length: uint32(n), LKey: k.mr.LKey()}} //nolint:gosec // sizes of a test
}

func (k *kernel) recv(wrs ...verbs.RecvWR) {
	k.t.Helper()
	if n, err := k.qp.PostRecv(wrs); n != len(wrs) || err != nil {
		k.t.Fatalf("PostRecv: %d of %d, %v", n, len(wrs), err)
	}
}

func (k *kernel) send(wrs ...verbs.SendWR) {
	k.t.Helper()
	if n, err := k.qp.PostSend(wrs); n != len(wrs) || err != nil {
		k.t.Fatalf("PostSend: %d of %d, %v", n, len(wrs), err)
	}
}

// completion waits for the next completion.
func (k *kernel) completion() verbs.WC {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), testTimeout)
	defer cancel()
	var wcs [1]verbs.WC
	for {
		for range 2 { // before the queue is armed and after it
			if n, err := k.cq.Poll(wcs[:]); err != nil {
				k.t.Fatal(err)
			} else if n == 1 {
				return wcs[0]
			}
			if err := k.cq.Arm(false); err != nil {
				k.t.Fatal(err)
			}
		}
		if err := k.cq.Wait(ctx); err != nil {
			k.t.Fatalf("no completion came: %v", err)
		}
	}
}

// done waits for the next completion, which must have a given status.
func (k *kernel) done(t *testing.T, want verbs.Status) {
	t.Helper()
	if wc := k.completion(); wc.Status != want {
		t.Fatalf("completion %+v: %v, want %v", wc, wc.Status, want)
	}
}
