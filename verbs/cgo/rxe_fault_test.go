//go:build rxe && linux && cgo

package libibverbs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
)

// asNobody runs the same test in a process without privileges, which finds
// itself there by inChild, and returns what it printed.
func asNobody(t *testing.T) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) { // Up to /tmp, all are made for this test.
		if filepath.Dir(d) != "/" {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	copied := filepath.Join(dir, "child.test")
	if err := os.WriteFile(copied, self, 0o755); err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	cmd := exec.CommandContext(t.Context(), copied, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LIBIBVERBS_TEST_CHILD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func inChild() bool { return os.Getenv("LIBIBVERBS_TEST_CHILD") != "" }

func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is not said in:\n%s", w, text)
		}
	}
}

func TestRxeMemlockIsTold(t *testing.T) {
	if !inChild() {
		says(t, asNobody(t), "register memory with rxe0", "1048576 bytes more to lock", "RLIMIT_MEMLOCK is 65536 bytes", "ulimit -l", "--- PASS")
		return
	}
	limit := unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	pd, err := open(t, "rxe0").AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	closing(t, "PD", pd)
	_, err = pd.RegisterMemory(mapped(t, 1<<20), verbs.AccessLocalWrite)
	if !errors.Is(err, verbs.ErrMemlock) || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("the error is %v", err)
	}
	t.Log(err)
	mr, err := pd.RegisterMemory(mapped(t, 32<<10), verbs.AccessLocalWrite)
	if err != nil {
		t.Fatalf("what the limit allows: %v", err)
	}
	closing(t, "MR", mr)
}

func TestRxeWithoutPermissionSaysSo(t *testing.T) {
	if inChild() {
		p := libibverbs.New(libibverbs.Options{})
		_, err := p.Devices()
		if !errors.Is(err, verbs.ErrUnavailable) {
			t.Errorf("Devices: %v", err)
		}
		_, err = p.Open("rxe0")
		if !errors.Is(err, verbs.ErrUnavailable) {
			t.Errorf("Open: %v", err)
		}
		t.Log(err)
		return
	}
	files, err := filepath.Glob("/dev/infiniband/uverbs*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if err := os.Chmod(f, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Chmod(f, 0o666); err != nil {
				t.Error(err)
			}
		})
	}
	says(t, asNobody(t), "open rxe0", "permission denied", "/dev/infiniband", "--- PASS")
}

func TestRxePostAndPollDoNotAllocate(t *testing.T) {
	a, b := pair(t, 4096)
	const batch = 16
	wcs := make([]verbs.WC, 2*batch)
	writes, sends, recvs := make([]verbs.SendWR, batch), make([]verbs.SendWR, batch), make([]verbs.RecvWR, batch)
	for i := range batch {
		writes[i] = verbs.SendWR{Op: verbs.OpWrite, Signaled: true, SGL: a.sge(0, 64), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
		sends[i] = verbs.SendWR{Op: verbs.OpSend, Signaled: true, Inline: make([]byte, 64)}
		recvs[i] = verbs.RecvWR{SGL: b.sge(0, 64)}
	}
	take := func(s *side, n int) {
		for n > 0 {
			k, err := s.cq.Poll(wcs)
			if err != nil {
				t.Fatal(err)
			}
			for _, wc := range wcs[:k] {
				if wc.Status != verbs.StatusOK {
					t.Fatalf("%+v: %v", wc, wc.Status)
				}
			}
			n -= k
		}
	}
	if n := testing.AllocsPerRun(20, func() {
		if n, err := b.qp.PostRecv(recvs); n != batch || err != nil {
			t.Fatal(n, err)
		}
		if n, err := a.qp.PostSend(sends); n != batch || err != nil {
			t.Fatal(n, err)
		}
		posted, polled, err := a.qp.PostSendAndPoll(writes, a.cq, wcs)
		if posted != batch || err != nil {
			t.Fatal(posted, err)
		}
		take(a, 2*batch-polled)
		take(b, batch)
	}); n != 0 {
		t.Errorf("a round of posts and polls makes %v allocations", n)
	}
}

// A device that another process removes goes when everything on it is closed,
// and says so while it waits.
func TestRxeDeviceThatIsRemovedGoesWhenItIsClosed(t *testing.T) {
	const name, below = "rxegone", "vgone"
	run(t, "ip", "link", "add", below, "type", "dummy")
	t.Cleanup(func() {
		if !t.Failed() { // else it may wait for ever for a device that is open
			run(t, "ip", "link", "del", below)
		}
	})
	run(t, "ip", "link", "set", below, "up")
	run(t, "rdma", "link", "add", name, "type", "rxe", "netdev", below)

	dev, err := libibverbs.New(libibverbs.Options{}).Open(name)
	if err != nil {
		t.Fatal(err)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.RegisterMemory(mapped(t, 4096), verbs.AccessLocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(verbs.CQConfig{Size: 10})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), rxePatience)
	defer cancel()
	remove := exec.CommandContext(ctx, "rdma", "link", "del", name)
	if err := remove.Start(); err != nil {
		t.Fatal(err)
	}
	// The kernel tells nothing (6.1), and waits.
	var told []string
	for gone := false; !gone; {
		event, err := dev.NextEvent(ctx)
		if err != nil {
			if errors.Is(err, verbs.ErrDeviceGone) {
				told = append(told, "the end of events")
				break
			}
			t.Fatalf("no sign of the removal: %v, after %v", err, told)
		}
		told = append(told, fmt.Sprint(event.Kind))
		_, err = dev.Port(1)
		gone = event.Kind == verbs.EventDeviceFatal || errors.Is(err, verbs.ErrDeviceGone)
	}
	t.Log("it says: ", strings.Join(told, ", "))
	if _, err := dev.Port(1); err != nil {
		t.Log("and its port: ", err)
	}
	start := time.Now()
	for i, c := range []interface{ Close() error }{qp, cq, mr, pd, dev} {
		if err := c.Close(); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
	}
	if err := remove.Wait(); err != nil {
		t.Errorf("rdma link del: %v", err)
	}
	t.Logf("closed and removed in %v", time.Since(start))
}
