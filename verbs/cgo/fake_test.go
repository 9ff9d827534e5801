//go:build linux && cgo

package libibverbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/verbs"
)

// What a real library does rarely, the one in testdata/fake does on request: it
// is told by the environment and by the IDs of work requests.
const (
	fakeNegative = verbs.WRID(1 << 62) // the error number is negative
	fakeNoBad    = verbs.WRID(1 << 61) // no work request is named
	fakeEvent    = verbs.WRID(1 << 60) // a receive that makes an asynchronous event
)

func fakeErrno(e syscall.Errno) verbs.WRID { return verbs.WRID(e) << 32 }

// fakeProvider opens a library that is built from testdata/fake.
func fakeProvider(t *testing.T) *Provider {
	t.Helper()
	if len(headerFacts()) == 0 {
		t.Skip("built without infiniband/verbs.h: the fake library cannot be built either")
	}
	library := filepath.Join(t.TempDir(), "libibverbs.so.1")
	out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-o", library, "testdata/fake/libibverbs.c",
		"-Wl,--version-script=testdata/fake/libibverbs.map").CombinedOutput()
	if err != nil {
		t.Fatalf("build the fake library: %v\n%s", err, out)
	}
	p := New(Options{Library: library})
	p.sys, p.dev = fstest.MapFS{}, t.TempDir()
	return p
}

func fail(t *testing.T, function string, e syscall.Errno) {
	t.Helper()
	t.Setenv("FAKE_FAIL", fmt.Sprintf("%s=%d", function, int(e)))
}

func heal(t *testing.T) { t.Setenv("FAKE_FAIL", "") }

func fakeDevice(t *testing.T, p *Provider) *device {
	t.Helper()
	d, err := p.Open("fake0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if c := d.Counts(); c != (verbs.Counts{}) {
			t.Errorf("left open: %+v", c)
		}
	})
	dev, ok := d.(*device)
	if !ok {
		t.Fatalf("a device is %T", d)
	}
	return dev
}

// fakeQP is a queue pair in RTS with everything that it needs.
func fakeQP(t *testing.T, d *device) (*queuePair, *completionQueue, verbs.PD) {
	t.Helper()
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := d.CreateCQ(verbs.CQConfig{Size: 1000})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 500, MaxRecv: 500, MaxSendSGE: 3, MaxInline: 100})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{qp, cq, pd} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	path := verbs.Path{Port: 1, MTU: verbs.MTU1024}
	if err := path.Init(qp); err != nil {
		t.Fatal(err)
	}
	if err := path.Connect(qp, 1, verbs.Endpoint{QPN: 7, LID: 1}); err != nil {
		t.Fatal(err)
	}
	q, ok1 := qp.(*queuePair)
	c, ok2 := cq.(*completionQueue)
	if !ok1 || !ok2 {
		t.Fatalf("they are %T and %T", qp, cq)
	}
	return q, c, pd
}

func mustBe(t *testing.T, what string, err error, sentinel error, words ...string) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("%s: %v is not %v", what, err, sentinel)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %q does not say %q", what, err, w)
		}
	}
}

func TestDevicesSayWhatIsMissing(t *testing.T) {
	p := fakeProvider(t)
	infos, err := p.Devices()
	if err != nil || len(infos) != 1 {
		t.Fatal(infos, err)
	}
	if i := infos[0]; i.Name != "fake0" || i.NodeGUID != 0x0102030405060708 || i.Vendor != 0x2c9 || i.Firmware != "1.2.3" || i.Ports != 2 ||
		i.GoMemory || i.Windows || i.Limits != (verbs.Limits{
		QPs: 10, CQs: 11, MRs: 12, PDs: 13, SendWR: 1024, RecvWR: 1024, SGEs: 8, CQEntries: 2048, MRSize: 1 << 30, ReadAtomic: 16, Atomics: true,
	}) {
		t.Errorf("the device is %+v", i)
	}
	fail(t, "get_device_list", syscall.ENOSYS)
	_, err = p.Devices()
	mustBe(t, "a kernel without RDMA", err, verbs.ErrUnavailable, "modprobe ib_uverbs")
	fail(t, "get_device_list", syscall.EPERM)
	_, err = p.Devices()
	mustBe(t, "no permission to list", err, verbs.ErrUnavailable, "operation not permitted", "/dev/infiniband")
	// The library says ENOENT, whatever it was. Its file is a directory here, which nobody may write.
	fail(t, "open_device", syscall.ENOENT)
	_, err = p.Open("fake0")
	mustBe(t, "no file", err, verbs.ErrUnavailable, "fake0", "uverbs7: no such file", "in this container")
	if err := os.Mkdir(filepath.Join(p.dev, "uverbs7"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = p.Open("fake0")
	mustBe(t, "the file's own reason", err, syscall.EISDIR, "fake0", "uverbs7")
	fail(t, "open_device", syscall.EACCES)
	p.dev = "/dev"
	_, err = p.Devices()
	mustBe(t, "none can be opened", err, verbs.ErrUnavailable, "fake0")
	fail(t, "query_device", syscall.EIO)
	_, err = p.Open("fake0")
	mustBe(t, "a device that goes meanwhile", err, verbs.ErrDeviceGone)
	heal(t)
	_, err = p.Open("mlx5_0")
	mustBe(t, "a name that is not there", err, verbs.ErrNotFound, "mlx5_0", "there are fake0")

	t.Setenv("FAKE_DEVICES", "0")
	if infos, err := p.Devices(); len(infos) != 0 || err != nil {
		t.Errorf("without devices: %v, %v", infos, err)
	}
	_, err = p.Open("fake0")
	mustBe(t, "no device at all", err, verbs.ErrNotFound, "no RDMA device")
	p.sys = fstest.MapFS{"class/infiniband/mlx5_0/node_type": {}}
	_, err = p.Devices()
	mustBe(t, "a device without a driver", err, verbs.ErrUnavailable, "mlx5_0", "ibverbs-providers")
}

func TestPortsAndGIDs(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	info, err := d.Port(2)
	if want := (verbs.PortInfo{
		State: verbs.PortDown, Link: verbs.LinkEthernet, ActiveMTU: verbs.MTU1024, MaxMTU: verbs.MTU4096, LID: 7, MaxMessage: 1 << 31, GIDs: 4, PKeys: 3,
	}); info != want || err != nil {
		t.Errorf("the port is %+v, %v; want %+v", info, err, want)
	}
	for _, port := range []uint8{0, 3} {
		_, err := d.Port(port)
		mustBe(t, "a port that is not there", err, verbs.ErrNotFound, "fake0 port", "has 2")
	}
	fail(t, "query_port", syscall.ENODEV)
	_, err = d.Port(1)
	mustBe(t, "a device that is gone", err, verbs.ErrDeviceGone, "fake0 port 1")
	heal(t)

	gid := func(port, index byte) verbs.GID { return verbs.GID{0: 0xfe, 14: port, 15: index} }
	check := func(how string, d *device, want ...verbs.GIDEntry) {
		t.Helper()
		got, err := d.GIDs(want[0].GID[14])
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v; want %v", how, got, err, want)
		}
	}
	check("by the table", d, verbs.GIDEntry{Index: 0, GID: gid(1, 0), Type: verbs.GIDTypeRoCEv1}, verbs.GIDEntry{Index: 2, GID: gid(1, 2), Type: verbs.GIDTypeRoCEv2})
	check("by the table", d, verbs.GIDEntry{Index: 1, GID: gid(2, 1), Type: verbs.GIDTypeRoCEv2})

	const types = "class/infiniband/fake0/ports/1/gid_attrs/types/"
	old := fakeProvider(t)
	old.old = true
	old.sys = fstest.MapFS{types + "0": {Data: []byte("IB/RoCE v1\n")}, types + "2": {Data: []byte("RoCE v2\n")}}
	byOne := fakeDevice(t, old)
	check("one by one", byOne, verbs.GIDEntry{Index: 0, GID: gid(1, 0), Type: verbs.GIDTypeRoCEv1}, verbs.GIDEntry{Index: 2, GID: gid(1, 2), Type: verbs.GIDTypeRoCEv2})
	fail(t, "query_gid_table", syscall.EOPNOTSUPP)
	d.sys = old.sys
	check("where the table is not supported", d, verbs.GIDEntry{Index: 0, GID: gid(1, 0), Type: verbs.GIDTypeRoCEv1}, verbs.GIDEntry{Index: 2, GID: gid(1, 2), Type: verbs.GIDTypeRoCEv2})
	fail(t, "query_gid", syscall.EIO)
	_, err = byOne.GIDs(1)
	mustBe(t, "a device that is gone", err, verbs.ErrDeviceGone)
}

// emptied is a sysfs in which the entry was removed after it was queried.
type emptied struct{}

func (emptied) Open(string) (fs.File, error) { return emptiedFile{}, nil }

type emptiedFile struct{ fs.File }

func (emptiedFile) Stat() (fs.FileInfo, error) { return nil, syscall.EINVAL }
func (emptiedFile) Read([]byte) (int, error)   { return 0, syscall.EINVAL }
func (emptiedFile) Close() error               { return nil }

func TestSysfsGIDTypes(t *testing.T) {
	sys := func(text string) fs.FS {
		return fstest.MapFS{"class/infiniband/d/ports/1/gid_attrs/types/3": {Data: []byte(text)}}
	}
	for _, c := range []struct {
		sys  fs.FS
		link verbs.LinkLayer
		want verbs.GIDType
	}{
		{sys("IB/RoCE v1\n"), verbs.LinkInfiniBand, verbs.GIDTypeIB},
		{sys("IB/RoCE v1\n"), verbs.LinkEthernet, verbs.GIDTypeRoCEv1},
		{sys("RoCE v2\n"), verbs.LinkEthernet, verbs.GIDTypeRoCEv2},
		{sys("RoCE v3\n"), verbs.LinkEthernet, verbs.GIDTypeUnknown},
		{emptied{}, verbs.LinkEthernet, verbs.GIDTypeUnknown},
		{fstest.MapFS{}, verbs.LinkInfiniBand, verbs.GIDTypeIB},
	} {
		if got, err := sysfsGIDType(c.sys, "d", 1, 3, c.link); got != c.want || err != nil {
			t.Errorf("on %v: %v, %v; want %v", c.link, got, err, c.want)
		}
	}
}

func TestEveryFailedCreationLeavesNothing(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	pd, err := d.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := d.CreateCQ(verbs.CQConfig{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	before := d.Counts()
	openFiles := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	files := openFiles()
	config := verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1}
	for _, c := range []struct {
		function string
		create   func() error
	}{
		{"alloc_pd", func() error { _, err := d.AllocPD(); return err }},
		{"create_comp_channel", func() error { _, err := d.CreateCQ(verbs.CQConfig{Size: 1}); return err }},
		{"create_cq", func() error { _, err := d.CreateCQ(verbs.CQConfig{Size: 1}); return err }},
		{"reg_mr", func() error { _, err := pd.RegisterMemory(make([]byte, 1), 0); return err }},
		{"create_qp", func() error { _, err := pd.CreateQP(config); return err }},
	} {
		for _, e := range []syscall.Errno{syscall.ENODEV, syscall.EIO} {
			fail(t, c.function, e)
			mustBe(t, c.function, c.create(), verbs.ErrDeviceGone, "fake0")
		}
		fail(t, c.function, syscall.ENFILE)
		mustBe(t, c.function, c.create(), syscall.ENFILE, "fake0")
		if got := d.Counts(); got != before {
			t.Errorf("a failed %s leaves %+v, before %+v", c.function, got, before)
		}
	}
	fail(t, "create_qp", syscall.EINVAL)
	_, err = pd.CreateQP(config)
	mustBe(t, "create_qp", err, verbs.ErrInvalid, "more than the device can do together")
	heal(t)
	if got := openFiles(); got != files {
		t.Errorf("%d files are open, before %d", got, files)
	}

	for _, c := range []struct {
		what  string
		err   func() error
		words string
	}{
		{"no room", func() error { _, err := d.CreateCQ(verbs.CQConfig{}); return err }, "1 to 2048"},
		{"a queue too large", func() error { _, err := d.CreateCQ(verbs.CQConfig{Size: 2049}); return err }, "1 to 2048"},
		{"no memory", func() error { _, err := pd.RegisterMemory(nil, 0); return err }, "no bytes"},
		{"remote write without local", func() error { _, err := pd.RegisterMemory(make([]byte, 1), verbs.AccessRemoteWrite); return err }, "AccessLocalWrite"},
		{"no queue", func() error { _, err := pd.CreateQP(verbs.QPConfig{MaxSend: 1, MaxRecv: 1}); return err }, "completion queues of the same device"},
		{"too many", func() error {
			_, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1025, MaxRecv: 1})
			return err
		}, "1 to 1024"},
		{"too many elements", func() error {
			_, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, MaxRecvSGE: 9})
			return err
		}, "has 8 at most"},
	} {
		mustBe(t, c.what, c.err(), verbs.ErrInvalid, c.words)
	}
	for _, c := range []interface{ Close() error }{cq, pd} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestRegistrationAsksForRelaxedOrderingWhereItCan(t *testing.T) {
	for _, c := range []struct {
		old  bool
		flag uint32
		rkey verbs.RKey // of the fake: which function it was
	}{{false, 1<<20 | 1, 2}, {true, 1, 1}} {
		p := fakeProvider(t)
		p.old = c.old
		d := fakeDevice(t, p)
		pd, err := d.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		mr, err := pd.RegisterMemory(make([]byte, 10), verbs.AccessLocalWrite|verbs.AccessRelaxedOrdering)
		if err != nil {
			t.Fatal(err)
		}
		if uint32(mr.LKey()) != c.flag || mr.RKey() != c.rkey || mr.Len() != 10 || mr.Addr() == 0 {
			t.Errorf("a library without optional functions: %v: flags %#x by function %d", c.old, mr.LKey(), mr.RKey())
		}
		for _, c := range []interface{ Close() error }{mr, mr, pd} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestClosingOrder(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, pd := fakeQP(t, d)
	if got, want := d.Counts(), (verbs.Counts{PDs: 1, CQs: 1, QPs: 1}); got != want {
		t.Errorf("open are %+v, want %+v", got, want)
	}
	mustBe(t, "the device", d.Close(), verbs.ErrBusy, "1 PD", "0 MR", "1 CQ", "1 QP")
	mustBe(t, "the domain", pd.Close(), verbs.ErrBusy)
	mustBe(t, "the completion queue", cq.Close(), verbs.ErrBusy, "1 queue pairs use it")

	// What the kernel does not let go of stays open, and can be tried again.
	for _, c := range []struct {
		function string
		object   interface{ Close() error }
	}{{"destroy_qp", qp}, {"destroy_cq", cq}, {"destroy_comp_channel", cq}, {"dealloc_pd", pd}} {
		before := d.Counts()
		fail(t, c.function, syscall.EBUSY)
		mustBe(t, c.function, c.object.Close(), verbs.ErrBusy)
		if d.Counts() != before {
			t.Errorf("%s failed, and the counts went from %+v to %+v", c.function, before, d.Counts())
		}
		heal(t)
		if c.function == "destroy_cq" {
			continue // The channel is the next case.
		}
		for range 2 {
			if err := c.object.Close(); err != nil {
				t.Errorf("the second attempt after %s: %v", c.function, err)
			}
		}
	}
	if _, err := qp.PostSend([]verbs.SendWR{{}}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("PostSend on a closed queue pair: %v", err)
	}
	if _, err := qp.PostRecv([]verbs.RecvWR{{}}); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("PostRecv on a closed queue pair: %v", err)
	}
	_, err := qp.State()
	mustBe(t, "State", err, verbs.ErrClosed)
	mustBe(t, "ToErr", qp.ToErr(), verbs.ErrClosed)
	_, err = cq.Poll(make([]verbs.WC, 1))
	mustBe(t, "Poll", err, verbs.ErrClosed)
	mustBe(t, "Arm", cq.Arm(false), verbs.ErrClosed)
	mustBe(t, "Wait", cq.Wait(t.Context()), verbs.ErrClosed)
	_, err = pd.RegisterMemory(make([]byte, 1), 0)
	mustBe(t, "RegisterMemory", err, verbs.ErrClosed)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	_, err = d.AllocPD()
	mustBe(t, "AllocPD", err, verbs.ErrClosed)
	_, err = d.Port(1)
	mustBe(t, "Port", err, verbs.ErrClosed)
	_, err = d.NextEvent(t.Context())
	mustBe(t, "NextEvent", err, verbs.ErrClosed)
}

func TestEverythingCanBeClosedOnADeviceThatIsGone(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, pd := fakeQP(t, d)
	mr, err := pd.RegisterMemory(make([]byte, 1), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		function string
		object   interface{ Close() error }
	}{{"destroy_qp", qp}, {"dereg_mr", mr}, {"destroy_cq", cq}, {"dealloc_pd", pd}} {
		fail(t, c.function, syscall.EIO)
		if err := c.object.Close(); err != nil {
			t.Errorf("%s: %v", c.function, err)
		}
	}
}

func TestPostsCountWhatWasTaken(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, _ := fakeQP(t, d)
	ids := func(n int, at int, id verbs.WRID) []verbs.SendWR {
		wrs := make([]verbs.SendWR, n)
		for i := range wrs {
			wrs[i] = verbs.SendWR{ID: verbs.WRID(i), Op: verbs.OpSend, Signaled: true}
		}
		if at >= 0 {
			wrs[at].ID = id
		}
		return wrs
	}
	for _, c := range []struct {
		name  string
		wrs   []verbs.SendWR
		taken int
		want  error
	}{
		{"all, in several batches", ids(300, -1, 0), 300, nil},
		{"none", nil, 0, nil},
		{"up to a full queue", ids(200, 150, fakeErrno(syscall.ENOMEM)), 150, verbs.ErrQueueFull},
		{"up to a full queue, with a negative number", ids(10, 3, fakeErrno(syscall.ENOMEM)|fakeNegative), 3, verbs.ErrQueueFull},
		{"up to what the driver refuses", ids(10, 9, fakeErrno(syscall.EINVAL)), 9, verbs.ErrInvalid},
		{"a doorbell that fails: all are in the queue", ids(70, 65, fakeErrno(syscall.EIO)|fakeNoBad), 70, verbs.ErrDeviceGone},
	} {
		// The same by both ways, and by the way of receives.
		for _, how := range []string{"PostSend", "PostSendAndPoll", "PostRecv"} {
			var taken int
			var err error
			switch how {
			case "PostSend":
				taken, err = qp.PostSend(c.wrs)
			case "PostSendAndPoll":
				taken, _, err = qp.PostSendAndPoll(c.wrs, cq, make([]verbs.WC, 1))
			case "PostRecv":
				recvs := make([]verbs.RecvWR, len(c.wrs))
				for i := range recvs {
					recvs[i].ID = c.wrs[i].ID
				}
				taken, err = qp.PostRecv(recvs)
			}
			if taken != c.taken || !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
				t.Errorf("%s, %s: %d, %v; want %d, %v", how, c.name, taken, err, c.taken, c.want)
			}
		}
	}
	// In order, whatever the batches: two rounds of PostSend and PostSendAndPoll, for what was taken before the failures.
	wcs := make([]verbs.WC, 2048)
	if n, err := cq.Poll(wcs); err != nil || n == 0 {
		t.Errorf("Poll: %d, %v", n, err)
	}
	if n, err := cq.Poll(wcs); n != 0 || err != nil {
		t.Errorf("Poll of an empty queue: %d, %v", n, err)
	}
}

func TestWorkRequestsThatDoNotFitAreRefusedHere(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, pd := fakeQP(t, d)
	if got := qp.MaxInline(); got != 128 {
		t.Errorf("MaxInline is %d: the device rounds 100 to 128", got)
	}
	good := verbs.SendWR{Op: verbs.OpSend}
	eight := []verbs.SGE{{Length: 8}}
	for _, c := range []struct {
		wr    verbs.SendWR
		words string
	}{
		{verbs.SendWR{Op: verbs.OpFetchAdd + 1}, "not one that there is"},
		{verbs.SendWR{Op: verbs.OpSend, Inline: make([]byte, 129)}, "takes 128"},
		{verbs.SendWR{Op: verbs.OpRead, Inline: []byte{}}, "cannot be inline"},
		{verbs.SendWR{Op: verbs.OpFetchAdd, Inline: make([]byte, 8)}, "cannot be inline"},
		{verbs.SendWR{Op: verbs.OpSend, SGL: make([]verbs.SGE, 4)}, "takes 3"},
		{verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{{Length: 1 << 31}, {Length: 1}}}, "2147483648 at most"},
		{verbs.SendWR{Op: verbs.OpFetchAdd}, "of 8 bytes"},
		{verbs.SendWR{Op: verbs.OpCompareSwap, SGL: []verbs.SGE{{Length: 9}}}, "of 8 bytes"},
		{verbs.SendWR{Op: verbs.OpCompareSwap, SGL: eight, RemoteAddr: 4}, "not aligned"},
	} {
		n, err := qp.PostSend([]verbs.SendWR{good, c.wr, good})
		if n != 1 {
			t.Errorf("%+v: %d were taken", c.wr, n)
		}
		mustBe(t, "PostSend", err, verbs.ErrInvalid, c.words, "0x123456")
		// What is there is polled all the same.
		last := good
		last.Signaled = true
		n, polled, err := qp.PostSendAndPoll([]verbs.SendWR{last, c.wr, good}, cq, make([]verbs.WC, 2))
		if n != 1 || polled != 1 {
			t.Errorf("%+v: %d were taken, %d polled", c.wr, n, polled)
		}
		mustBe(t, "PostSendAndPoll", err, verbs.ErrInvalid, c.words)
	}
	n, err := qp.PostRecv([]verbs.RecvWR{{}, {SGL: make([]verbs.SGE, 2)}})
	if n != 1 {
		t.Errorf("%d receives were taken", n)
	}
	mustBe(t, "PostRecv", err, verbs.ErrInvalid, "takes 1")

	fresh, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	_, err = fresh.PostRecv([]verbs.RecvWR{{}})
	mustBe(t, "PostRecv in RESET", err, verbs.ErrInvalid, "RESET")
	if err := fresh.ToInit(verbs.InitAttr{Port: 1}); err != nil {
		t.Error(err)
	}
	_, err = fresh.PostSend([]verbs.SendWR{good})
	mustBe(t, "PostSend in INIT", err, verbs.ErrInvalid, "INIT")
	if _, err = fresh.PostRecv([]verbs.RecvWR{{}}); err != nil {
		t.Errorf("PostRecv in INIT: %v", err)
	}
}

// Inline bytes and elements use up their part of the ring before the descriptors
// do: what is posted must still be all, in order.
func TestBatchesEndWhereTheRingDoes(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, _ := fakeQP(t, d)
	payload := bytes.Repeat([]byte{1}, 128)
	var wrs []verbs.SendWR
	for i := range 300 {
		wr := verbs.SendWR{ID: verbs.WRID(i), Op: verbs.OpWrite, Signaled: true, Imm: 0x01020304}
		switch i % 3 {
		case 0:
			wr.Inline = payload[:128-i%7]
		case 1:
			wr.SGL = []verbs.SGE{{Length: 1}, {Length: 2}, {Length: uint32(i)}}
		}
		wrs = append(wrs, wr)
	}
	wcs := make([]verbs.WC, 400)
	posted, polled, err := qp.PostSendAndPoll(wrs, cq, wcs)
	if posted != 300 || polled != 300 || err != nil {
		t.Fatal(posted, polled, err)
	}
	for i, wc := range wcs[:300] {
		want := verbs.WC{ID: verbs.WRID(i), Op: verbs.WCWrite, Len: uint32(wrs[i].Len()), HasImm: true, Imm: 0x01020304, QPN: 0x123456}
		if wc != want {
			t.Fatalf("completion %d is %+v, want %+v", i, wc, want)
		}
	}
	// After a failure only some fields mean anything, and the others are empty.
	if _, err := qp.PostSend([]verbs.SendWR{{ID: 9, Op: verbs.OpSend, Fence: true, Signaled: true, Inline: payload, Imm: 7}}); err != nil {
		t.Fatal(err)
	}
	n, err := cq.Poll(wcs)
	if want := (verbs.WC{ID: 9, Status: verbs.StatusRetryExceeded, VendorErr: 129, QPN: 0x123456}); n != 1 || err != nil || wcs[0] != want {
		t.Errorf("the failure is %+v, want %+v", wcs[0], want)
	}
	fail(t, "poll_cq", syscall.EIO)
	_, err = cq.Poll(wcs)
	mustBe(t, "Poll", err, verbs.ErrDeviceGone, "completion queue of fake0")
	posted, polled, err = qp.PostSendAndPoll(wrs[:5], cq, wcs)
	if posted != 5 || polled != 0 {
		t.Errorf("posted %d, polled %d", posted, polled)
	}
	mustBe(t, "PostSendAndPoll", err, verbs.ErrDeviceGone)
}

func TestStepsTellWhatIsWrong(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, pd := fakeQP(t, d)
	peer := verbs.Endpoint{QPN: 7, LID: 1}
	mustBe(t, "from RTS to RTR", qp.ToRTR(verbs.RTRAttr{Peer: peer, MTU: verbs.MTU256}), verbs.ErrInvalid, "becomes RTR from INIT, and this one is in RTS", "0x123456")
	mustBe(t, "an MTU", qp.ToRTR(verbs.RTRAttr{Peer: peer, MTU: 1500}), verbs.ErrInvalid, "1500")
	mustBe(t, "a flow label", qp.ToRTR(verbs.RTRAttr{Peer: peer, MTU: verbs.MTU256, FlowLabel: 1 << 20}), verbs.ErrInvalid, "20 bits")
	mustBe(t, "a retry count", qp.ToRTS(verbs.RTSAttr{Retry: 8}), verbs.ErrInvalid, "retry")
	mustBe(t, "a port", qp.ToInit(verbs.InitAttr{Port: 3}), verbs.ErrInvalid, "port 3")
	if err := qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	if err := qp.ToInit(verbs.InitAttr{Port: 1}); err != nil {
		t.Fatal(err)
	}
	fail(t, "modify_qp", syscall.EINVAL)
	err := qp.ToRTR(verbs.RTRAttr{Peer: peer, MTU: verbs.MTU256, SGIDIndex: 77})
	mustBe(t, "a value that the device refuses", err, verbs.ErrInvalid, "from INIT to RTR", "is GID index 77 filled")
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("%v has lost its number", err)
	}
	fail(t, "modify_qp", syscall.ETIMEDOUT)
	mustBe(t, "a peer that is not there", qp.ToRTR(verbs.RTRAttr{Peer: peer, MTU: verbs.MTU256}), syscall.ETIMEDOUT, "ip neigh")
	// The state read back: it broke meanwhile.
	fresh, err := pd.CreateQP(verbs.QPConfig{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	fail(t, "modify_qp", syscall.EINVAL)
	t.Setenv("FAKE_STATE", "6")
	mustBe(t, "one that broke meanwhile", fresh.ToInit(verbs.InitAttr{Port: 1}), verbs.ErrInvalid, "broken (ERR)")
	if s, err := fresh.State(); s != verbs.StateErr || err != nil {
		t.Errorf("the state is %v, %v", s, err)
	}
	_, err = qp.BindWindow(nil, 0, 0, 0)
	mustBe(t, "BindWindow", err, errors.ErrUnsupported, "not supported")
}

func TestEventsAreWaitedForAndAcknowledged(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, _ := fakeQP(t, d) // closing the queue fails when an event was not acknowledged
	ready := make(chan struct{})
	came := make(chan error)
	go func() {
		close(ready)
		came <- cq.Wait(context.Background())
	}()
	<-ready
	arm := func() {
		t.Helper()
		if err := cq.Arm(false); err != nil {
			t.Fatal(err)
		}
		if _, err := qp.PostSend([]verbs.SendWR{{Op: verbs.OpSend, Signaled: true}}); err != nil {
			t.Fatal(err)
		}
	}
	arm()
	if err := <-came; err != nil {
		t.Fatal(err)
	}
	// Two that came while nobody waited are one wait.
	arm()
	arm()
	if err := cq.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	go cancel()
	mustBe(t, "Wait", cq.Wait(cancelled), context.Canceled)
	mustBe(t, "Wait", cq.Wait(cancelled), context.Canceled)
	// A deadline that was set for that one must not end the next.
	arm()
	if err := cq.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	fail(t, "get_cq_event", syscall.EIO)
	mustBe(t, "Wait", cq.Wait(t.Context()), verbs.ErrDeviceGone)
	heal(t)

	event := func(n uint8, want verbs.AsyncEvent) {
		t.Helper()
		if _, err := qp.PostRecv([]verbs.RecvWR{{ID: fakeEvent + verbs.WRID(n)}}); err != nil {
			t.Fatal(err)
		}
		if got, err := d.NextEvent(t.Context()); got != want || err != nil {
			t.Errorf("the event is %+v, %v; want %+v", got, err, want)
		}
	}
	event(1, verbs.AsyncEvent{Kind: verbs.EventQPFatal, QPN: 0x123456})
	event(10, verbs.AsyncEvent{Kind: verbs.EventPortDown, Port: 2})
	event(18, verbs.AsyncEvent{Kind: verbs.EventGIDChange, Port: 2})
	event(100, verbs.AsyncEvent{Kind: verbs.EventOther})
	_, err := d.NextEvent(cancelled)
	mustBe(t, "NextEvent", err, context.Canceled)
	fail(t, "get_async_event", syscall.EIO)
	_, err = d.NextEvent(t.Context())
	mustBe(t, "NextEvent", err, verbs.ErrDeviceGone)
}

func TestPostAndPollDoNotAllocate(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	qp, cq, _ := fakeQP(t, d)
	sends := make([]verbs.SendWR, 100)
	for i := range sends {
		sends[i] = verbs.SendWR{ID: verbs.WRID(i), Op: verbs.OpWrite, Signaled: true, Inline: make([]byte, 100)}
		if i%2 == 0 {
			sends[i].Inline, sends[i].SGL = nil, []verbs.SGE{{Length: 10}, {Length: 20}}
		}
	}
	full := []verbs.SendWR{{ID: fakeErrno(syscall.ENOMEM), Op: verbs.OpSend}}
	recvs := make([]verbs.RecvWR, 100)
	wcs := make([]verbs.WC, 150)
	for name, f := range map[string]func(){
		"PostSend and Poll": func() { _, _ = qp.PostSend(sends); _, _ = cq.Poll(wcs) },
		"PostSendAndPoll":   func() { _, _, _ = qp.PostSendAndPoll(sends, cq, wcs) },
		"PostRecv":          func() { _, _ = qp.PostRecv(recvs) },
		"Arm":               func() { _ = cq.Arm(false) },
		"a full queue":      func() { _, _ = qp.PostSend(full) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestARemovedDeviceIsNoticed(t *testing.T) {
	p := fakeProvider(t)
	const entry = "class/infiniband_verbs/uverbs7"
	sys := fstest.MapFS{entry: {}}
	p.sys = sys
	d := fakeDevice(t, p)
	if _, err := d.Port(1); err != nil {
		t.Error(err)
	}
	delete(sys, entry)
	_, err := d.Port(1)
	mustBe(t, "Port", err, verbs.ErrDeviceGone, "fake0 port 1")
	_, err = d.GIDs(1)
	mustBe(t, "GIDs", err, verbs.ErrDeviceGone)
	if e, err := d.NextEvent(t.Context()); e.Kind != verbs.EventDeviceFatal || err != nil {
		t.Errorf("the event is %v, %v", e.Kind, err)
	}
	_, err = d.NextEvent(t.Context())
	mustBe(t, "NextEvent", err, verbs.ErrDeviceGone)
}

func TestMemlockIsToldWithItsNumbers(t *testing.T) {
	p := fakeProvider(t)
	d := fakeDevice(t, p)
	_, _, pd := fakeQP(t, d)
	fail(t, "reg_mr", syscall.ENOMEM)
	_, err := pd.RegisterMemory(make([]byte, 4096), 0)
	if !errors.Is(err, syscall.ENOMEM) { // whether it is memlock depends on who runs the test
		t.Error(err)
	}
	cause := syscall.ENOMEM
	limited := memlock{soft: 64 << 10, hard: 128 << 10, pinned: 60 << 10}
	err = limited.err("register memory with", "fake0", 1<<20, cause)
	mustBe(t, "a limit", err, verbs.ErrMemlock, "1048576 bytes more", "61440 bytes are locked", "RLIMIT_MEMLOCK is 65536 bytes (hard limit 131072 bytes)",
		"to 1110016 bytes at least", "ulimit -l", "LimitMEMLOCK=", "CAP_IPC_LOCK")
	mustBe(t, "a limit", err, syscall.ENOMEM)
	mustBe(t, "a queue of unknown size", limited.err("create", "fake0", 0, cause), verbs.ErrMemlock, "memory for its queue")
	for name, m := range map[string]memlock{
		"no limit": {soft: unix.RLIM_INFINITY}, "room enough": {soft: 2 << 20, pinned: 1 << 20}, "CAP_IPC_LOCK": {soft: 1, exempt: true},
	} {
		if err := m.err("register", "fake0", 1<<20, cause); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const status = "Name:\tx\nVmPin:\t     132 kB\nCapEff:\t000001ffffffffff\n"
	if n := statusNumber([]byte(status), "VmPin", 10); n != 132 {
		t.Errorf("VmPin is %d", n)
	}
	if n := statusNumber([]byte(status), "CapEff", 16); n != 0x1ffffffffff {
		t.Errorf("CapEff is %#x", n)
	}
	if m := readMemlock(); m.soft == 0 && m.hard == 0 {
		t.Errorf("the limit is %+v", m)
	}
}
