package checkpoint

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// keyOf is the key of a tensor, or of a delta, with some edge name.
func keyOf(edge string) string {
	return "/job:worker/replica:0/task:0/device:CPU:0;0000000000000001;/job:client/replica:0/task:1/device:CPU:0;" + edge + ";0:0"
}

// watcher returns the pull of a watcher that has n tensors of an earlier version, and wants all of them but the first. It has no
// base of the second one.
func watcher(t *testing.T, n int) (*pull, *keys) {
	t.Helper()
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(100), make([]byte, 100))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Release)
	base := newKnown(make(map[string]*tensor.Tensor))
	pl := &pull{manifest: &Manifest{Publication: Publication{Name: "w", Version: "0123456789abcdef"}}, req: PullRequest{base: base, patches: true}}
	var chosen []int
	for i := range n {
		e := TensorInfo{Name: fmt.Sprint("t", i), DType: tensor.Uint8, Shape: tensor.Vector(100), Bytes: 100, Digest: []byte("12345678")}
		pl.manifest.Entries = append(pl.manifest.Entries, e)
		if i != 1 {
			base.memory[e.Name], base.digests[e.Name] = x, []byte("abcdefgh")
		}
		if i != 0 {
			chosen = append(chosen, i)
		}
	}
	return pl, newKeys(pl.manifest, chosen, pl.deltaTerms())
}

// goodOffer is one that a watcher takes.
func goodOffer(i int) *trystpb.TensorDelta {
	return &trystpb.TensorDelta{Name: fmt.Sprint("t", i), Base: []byte("abcdefgh"), Steps: []*trystpb.DeltaStep{
		{Key: keyOf(fmt.Sprint("publication:w@<1.2.3/t", i)), Bytes: 1, Result: []byte("ijklmnop"), Method: 2},
		{Key: keyOf(fmt.Sprint("publication:w@<1.3.4/t", i)), Bytes: 1, Result: []byte("12345678"), Method: 2},
	}}
}

// offered lets a server make one offer.
func offered(k *keys, d *trystpb.TensorDelta) error {
	return k.take(&trystpb.OpenResponse{StepId: 1, Deltas: []*trystpb.TensorDelta{d}})
}

// TestOffersThatAreNotTakenAreDropped when they come: a pull keeps no offer of more text than an honest one has, and none that it
// cannot use.
func TestOffersThatAreNotTakenAreDropped(t *testing.T) {
	for name, tt := range map[string]struct {
		tensor int
		lie    func(d *trystpb.TensorDelta)
		want   bool
	}{
		"a good one":          {2, func(*trystpb.TensorDelta) {}, true},
		"not requested":       {0, func(*trystpb.TensorDelta) {}, false},
		"without a base":      {1, func(*trystpb.TensorDelta) {}, false},
		"with another base":   {2, func(d *trystpb.TensorDelta) { d.Base = []byte("ABCDEFGH") }, false},
		"with another result": {2, func(d *trystpb.TensorDelta) { d.Steps[1].Result = []byte("87654321") }, false},
		"a long key":          {2, func(d *trystpb.TensorDelta) { d.Steps[0].Key = keyOf(strings.Repeat("x", 3000)) }, false},
		"a long digest":       {2, func(d *trystpb.TensorDelta) { d.Steps[0].Result = make([]byte, maxDeltaDigest+1) }, false},
		"no key":              {2, func(d *trystpb.TensorDelta) { d.Steps[0].Key = "" }, false},
		"no steps":            {2, func(d *trystpb.TensorDelta) { d.Steps = nil }, false},
		"many steps": {2, func(d *trystpb.TensorDelta) {
			for len(d.GetSteps()) <= maxDeltaSteps {
				d.Steps = append(d.Steps[:1:1], d.GetSteps()...)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, k := watcher(t, 3)
			d := goodOffer(tt.tensor)
			tt.lie(d)
			if err := offered(k, d); err != nil {
				t.Fatal(err)
			}
			if k.ways[tt.tensor] != nil != tt.want || !tt.want && len(k.ways) > 0 {
				t.Errorf("%d offers are taken", len(k.ways))
			}
			if err := offered(k, goodOffer(tt.tensor)); status.CodeOf(err) != status.Internal {
				t.Errorf("a second offer of one tensor: %v", err)
			}
		})
	}
}

// TestOffersOfALyingServerTakeNoMemory, however large each of their messages is.
func TestOffersOfALyingServerTakeNoMemory(t *testing.T) {
	const tensors, each = 50, 1 << 20
	pl, k := watcher(t, tensors)
	before := heap()
	for i := range tensors {
		d := goodOffer(i)
		switch i % 3 {
		case 0:
			d.Steps[0].Key = keyOf(strings.Repeat("x", each))
		case 1:
			d.Steps[0].Result = bytes.Repeat([]byte("x"), each)
		case 2:
			d.Base = bytes.Repeat([]byte("x"), each)
		}
		if err := offered(k, d); err != nil {
			t.Fatal(err)
		}
	}
	if used := heap() - before; used > each {
		t.Errorf("offers of %d tensors take %d bytes", tensors, used)
	}
	if parts := pl.plan(nil, &session{ways: k.ways}, []int{1, 2}); len(parts) > 0 {
		t.Errorf("%d offers are taken", len(parts))
	}
}

// TestLongKeysAreRefused: a pull keeps the keys of all tensors, so none is longer than the names in it allow.
func TestLongKeysAreRefused(t *testing.T) {
	_, k := watcher(t, 3)
	key := func(edge string) error {
		return k.take(&trystpb.OpenResponse{StepId: 1, Keys: []*trystpb.TensorKey{{Name: "t2", Key: keyOf(edge)}}})
	}
	if err := key(strings.Repeat("x", 3000)); status.CodeOf(err) != status.Internal || len(err.Error()) > 1000 {
		t.Errorf("a long key: %v", err)
	}
	if err := key("publication:w@0123456789abcdef/t2"); err != nil {
		t.Error(err)
	}
}
