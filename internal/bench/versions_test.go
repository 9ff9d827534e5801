package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// smallVersions are options under which everything runs and nothing means anything.
func smallVersions(t *testing.T, only ...string) VersionsOptions {
	return VersionsOptions{
		Command: peerCommand("serve"), Only: only, Bytes: 640 << 10, Tensors: 5, SlowBytes: 64 << 10, SlowBits: 80e6, Pairs: 1,
		Shares: []float64{0, 0.1}, Stop: time.Millisecond, Every: time.Millisecond,
		Progress: func(s string) { t.Log(s) }, loadFile: "nowhere",
	}
}

// TestEachContestOfVersions runs each contest over each of its routes, with processes of its own.
func TestEachContestOfVersions(t *testing.T) {
	t.Parallel()
	rows := map[string]int{ // over one route
		"versions-whole": 2, "versions-random": 2, "versions-bytes": 3*2 + 1, "versions-memory": 2, "versions-stopped": 3, "versions-back": 1,
		"versions-share": 2 * 3, "versions-link-low": 2, "versions-link-mantissa": 2, "versions-link-random": 2,
	}
	for _, c := range versionsContests() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := smallVersions(t, c.name)
			var seen []Row
			o.Row = func(r Row) { seen = append(seen, r) }
			got, err := RunVersions(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			got = slices.DeleteFunc(got, func(r Row) bool { return r.Baseline == ZstdC }) // not everywhere
			if want := rows[c.name] * len(c.routes); len(got) != want || len(seen) < want {
				t.Errorf("%d rows, want %d", len(got), want)
			}
			for _, r := range got {
				if !strings.HasPrefix(r.Name, "versions-") || r.Count < 1 || (r.Ratio <= 0 || r.Size <= 0) && !strings.HasSuffix(r.Name, "bytes-0%") || r.file != versionsFile || r.itself != (r.Transport == "") {
					t.Errorf("row %+v", r)
				}
			}
		})
	}
}

// TestVersionsHaveTheTargetsOfTheirDocument: docs/versions.md has a row for each.
func TestVersionsHaveTheTargetsOfTheirDocument(t *testing.T) {
	for _, w := range []struct {
		name string
		want float64
	}{
		{"versions-whole", 1.1}, {"versions-random", 1.02}, {"versions-link", 1. / 12}, {"versions-memory", 2.2}, {"versions-stopped", 1.1},
		{"versions-back", 1}, {"versions-unchanged", 0.01}, {"versions-bytes-low" + WholeVersion, 0.02}, {"versions-bytes-mantissa" + ZstdC, 0.85},
		{"versions-bytes-random" + WholeVersion, 1. / 35}, {"versions-share", 0},
	} {
		if got := versionsTarget(w.name, ""); got != w.want {
			t.Errorf("the target of %s is %v, not %v", w.name, got, w.want)
		}
	}
}

func TestOptionsOfVersionsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*VersionsOptions){
		"unknown contest":   func(o *VersionsOptions) { o.Only = []string{"recv"} },
		"unknown route":     func(o *VersionsOptions) { o.Routes = []string{"pigeon"} },
		"needs Command":     func(o *VersionsOptions) { o.Command = nil },
		"-1 pairs":          func(o *VersionsOptions) { o.Pairs = -1 },
		"bytes in":          func(o *VersionsOptions) { o.Bytes = 9 },
		"at least two":      func(o *VersionsOptions) { o.Tensors = 1 },
		"must be positive":  func(o *VersionsOptions) { o.SlowBits = -1 },
		"all times":         func(o *VersionsOptions) { o.Stop = -1 },
		"are from 0 to 1":   func(o *VersionsOptions) { o.Shares = []float64{2} },
		"shares [NaN]: the": func(o *VersionsOptions) { o.Shares = []float64{math.NaN()} },
	} {
		o := smallVersions(t)
		change(&o)
		if err := o.Validate(); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestChangesAreWhatTheySay: the share of the elements, these bits of them, and the same in each run.
func TestChangesAreWhatTheySay(t *testing.T) {
	old := make([]byte, 200_000)
	fillWeights(old, 1)
	for _, c := range []struct {
		change
		mask uint16
	}{
		{change{0, changeLow}, 0}, {change{0.01, changeLow}, 3}, {change{0.3, changeMantissa}, 127}, {change{1, changeRandom}, math.MaxUint16},
	} {
		made, again := bytes.Clone(old), bytes.Clone(old)
		for _, b := range [][]byte{made, again} {
			if err := c.apply(b, 7); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(made, again) {
			t.Errorf("%+v: two runs differ", c)
		}
		changed, n := 0, len(old)/2
		for i := range n {
			x := binary.LittleEndian.Uint16(old[2*i:]) ^ binary.LittleEndian.Uint16(made[2*i:])
			if x&^c.mask != 0 {
				t.Fatalf("%+v changes the bits %b", c, x)
			}
			if x != 0 {
				changed++
			}
		}
		if got := float64(changed) / float64(n); math.Abs(got-c.Share) > 0.01*math.Sqrt(c.Share*(1-c.Share))+1e-9 {
			t.Errorf("%+v changes a share of %v", c, got)
		}
	}
	for _, c := range []change{{2, changeLow}, {0.5, "all"}} {
		if c.apply(old, 1) == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// TestCompressorsSeeTheXOR: what does not differ compresses to nothing, and random differences do not.
func TestCompressorsSeeTheXOR(t *testing.T) {
	of := func(share float64) []*tensor.Tensor {
		x, err := tensor.Make[tensor.BFloat16Bits](tensor.Heap{}, 700_001)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Release)
		fillWeights(x.Bytes(), 1)
		if err := (change{share, changeRandom}).apply(x.Bytes(), 1); err != nil {
			t.Fatal(err)
		}
		return []*tensor.Tensor{x}
	}
	same, err := compressedXOR(t.Context(), of(0), of(0))
	if err != nil {
		t.Fatal(err)
	}
	random, err := compressedXOR(t.Context(), of(0), of(1))
	if err != nil {
		t.Fatal(err)
	}
	for by, n := range same {
		if n > 1000 || random[by] < 1_390_000 {
			t.Errorf("%s: %d bytes of nothing, %d of all", by, n, random[by])
		}
	}
	if same[ZstdGo] == 0 {
		t.Error("the compressor in Go is missing")
	}
}

// TestALinkHasItsRate on virtual time: connections share it, and directions do not.
func TestALinkHasItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &limiter{rate: 10e6}
		begin := time.Now()
		done := make(chan error)
		for range 2 {
			go func() {
				for range 100 {
					if err := l.send(t.Context(), 50_000); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took < time.Second-proxyTick-proxyBurst || took > time.Second {
			t.Errorf("10 MB at 10 MB/s took %v", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if l.send(ended, 1e6) == nil {
			t.Error("a proxy that is closed still sends")
		}
	})
}

func TestASlowProxyCarriesBothWays(t *testing.T) {
	listener, err := net.Listen("tcp", loopback)
	if err != nil {
		t.Fatal(err)
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		if c, err := listener.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	p, err := newSlowProxy(t.Context(), listener.Addr().String(), 1e9)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.address())
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("tryst"), 40_000)
	go func() { _, _ = c.Write(want) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("other bytes came back: %v", err)
	}
	if n := p.moved(); n != int64(len(want)) {
		t.Errorf("%d bytes were counted", n)
	}
	c.Close()
	<-echoed
	p.close()
	listener.Close()
	if _, err := net.Dial("tcp", p.address()); err == nil {
		t.Error("a closed proxy accepts")
	}
}

// TestSecondProcessesOfVersionsRefuse what they cannot do.
func TestSecondProcessesOfVersionsRefuse(t *testing.T) {
	for want, s := range map[string]versionsSetup{
		"each needs an element": {Bytes: 3, Tensors: 2},
		"address":               {From: "no address at all"},
	} {
		if _, _, err := startVersionsChild(t.Context(), peerCommand("serve"), s); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
