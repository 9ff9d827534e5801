package verbstest_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

func TestConformance(t *testing.T) {
	verbstest.Run(t, verbstest.Env{
		Ends: func(t testing.TB) (a, b verbstest.End) {
			f := verbstest.NewFabric(verbstest.Options{}) // your provider in place of the fabric
			t.Cleanup(f.Close)
			a = verbstest.End{Provider: f.Provider("a"), Device: "mem0", Port: 1, GIDIndex: 1}
			b = verbstest.End{Provider: f.Provider("b"), Device: "mem0", Port: 1, GIDIndex: 1}
			return a, b
		},
		Virtual: true,
		Unsupported: map[verbstest.Feature]string{
			verbstest.PortEvents: "this test cannot take a port down",
			verbstest.MaxRegion:  "the limit of a region is too large to exceed in a test",
		},
	})
}

// end is a queue pair with all that it needs.
type end struct {
	dev verbs.Device
	pd  verbs.PD
	cq  verbs.CQ
	mem []byte
	mr  verbs.MR
	qp  verbs.QP
}

// open creates the objects in order: each one belongs to an earlier one.
func open(p verbs.Provider, path verbs.Path) (e end) {
	e.dev = must(p.Open("mem0"))
	e.pd = must(e.dev.AllocPD())
	e.cq = must(e.dev.CreateCQ(verbs.CQConfig{Size: 2})) // MaxSend + MaxRecv
	e.mem = make([]byte, 4096)                           // DeviceInfo.GoMemory is set
	e.mr = must(e.pd.RegisterMemory(e.mem, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
	e.qp = must(e.pd.CreateQP(verbs.QPConfig{SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 1, MaxRecv: 1}))
	check(path.Init(e.qp))
	return e
}

// endpoint returns what the peer needs to connect. Processes exchange it by other means.
func (e end) endpoint(path verbs.Path, psn verbs.PSN) verbs.Endpoint {
	p := e.qp.Endpoint()
	p.PSN, p.GID = psn, must(e.dev.GIDs(path.Port))[path.SGIDIndex].GID
	return p
}

// write writes n bytes to the peer's memory and returns the status.
func (e end) write(to end, n uint32) verbs.Status {
	_ = must(e.qp.PostSend([]verbs.SendWR{{
		Op: verbs.OpWrite, Signaled: true,
		SGL:        []verbs.SGE{{Addr: e.mr.Addr(), Length: n, LKey: e.mr.LKey()}},
		RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(),
	}}))
	for wcs := make([]verbs.WC, 1); ; { // Arm and Wait replace this loop in real code
		if must(e.cq.Poll(wcs)) == 1 {
			return wcs[0].Status
		}
	}
}

// close destroys the objects in reverse order.
func (e end) close() {
	for _, c := range []interface{ Close() error }{e.qp, e.mr, e.cq, e.pd, e.dev} {
		check(c.Close())
	}
}

func ExampleFabric() {
	f := verbstest.NewFabric(verbstest.Options{})
	path := verbs.Path{
		Port: 1, SGIDIndex: 1, MTU: verbs.MTU4096, Access: verbs.AccessRemoteWrite,
		Timeout: verbs.TimeoutCode(time.Millisecond), Retry: 1, RNRRetry: 1, MinRNRTimer: verbs.DefaultMinRNRTimer,
	}
	a, b := open(f.Provider("a"), path), open(f.Provider("b"), path)
	defer a.close()
	defer b.close()
	psnA, psnB := verbs.RandomPSN(), verbs.RandomPSN()
	check(path.Connect(a.qp, psnA, b.endpoint(path, psnB)))
	check(path.Connect(b.qp, psnB, a.endpoint(path, psnA)))

	copy(a.mem, "hello")
	fmt.Println(a.write(b, 5), string(b.mem[:5]))

	f.Wires("a", "b").Cut()
	fmt.Println(a.write(b, 5))
	// Output:
	// success hello
	// transport retry counter exceeded
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err) //nolint:forbidigo // an example has no other way to fail
	}
}

// TestProvidersPage: each Go block of docs/providers.md is a part of this file.
func TestProvidersPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/providers.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	if len(blocks) == 0 {
		t.Error("the page has no Go block")
	}
	for _, b := range blocks {
		if b, _, _ = strings.Cut(b, "```"); !strings.Contains(string(code), b) {
			t.Errorf("not in example_test.go:\n%s", b)
		}
	}
}
