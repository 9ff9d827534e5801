package delta

import (
	"fmt"
	"slices"
	"testing"
)

// stepOf returns a step of one tensor "w" with a delta of n bytes.
func stepOf(from, to uint64, n int) Step {
	return Step{From: from, To: to, Deltas: map[string]Delta{"w": {Content: make([]byte, n), Summary: Summary{Method: Sparse, Length: 1 << 20, Bytes: int64(n)}}}}
}

func TestChainLeadsFromEachKeptVersion(t *testing.T) {
	c := NewChain(1 << 20)
	for v := range uint64(5) {
		c.Add(stepOf(v, v+1, 1000))
	}
	for from := range uint64(5) {
		for to := from; to <= 5; to++ {
			path, ok := c.Path(from, to)
			if !ok || len(path) != int(to-from) {
				t.Fatalf("from %d to %d: %d steps, %v", from, to, len(path), ok)
			}
			for i, s := range path {
				if s.From != from+uint64(i) {
					t.Errorf("step %d from %d to %d begins at %d", i, from, to, s.From)
				}
			}
		}
	}
	for _, none := range [][2]uint64{{3, 2}, {0, 6}, {7, 5}} {
		if path, ok := c.Path(none[0], none[1]); ok {
			t.Errorf("there is a path %v: %v", none, path)
		}
	}
}

func TestChainIsBoundedAtATenth(t *testing.T) {
	c := NewChain(100_000)
	for v := range uint64(100) {
		c.Add(stepOf(v, v+1, 2000))
		sum := int64(0)
		for _, s := range c.steps {
			sum += s.Bytes()
		}
		if c.Bytes() != sum || sum > 10_000 {
			t.Fatalf("the chain says %d bytes and has %d, of 10000", c.Bytes(), sum)
		}
	}
	if path, ok := c.Path(96, 100); !ok || len(path) != 4 {
		t.Errorf("of four kept steps there are %d", len(path))
	}
	if _, ok := c.Path(95, 100); ok {
		t.Error("a step is kept beyond the limit")
	}
	before := c.Bytes()
	if freed := c.DropOldest(); freed <= 2000 || c.Bytes() != before-freed {
		t.Errorf("%d bytes came back, %d of %d are left", freed, c.Bytes(), before)
	}
	c.Clear()
	if freed := c.DropOldest(); freed != 0 || c.Bytes() != 0 {
		t.Errorf("an empty chain has %d bytes, and gave %d back", c.Bytes(), freed)
	}
}

func TestChainHasABoundedNumberOfSteps(t *testing.T) {
	c := NewChain(1 << 40)
	for v := range uint64(1000) {
		c.Add(Step{From: v, To: v + 1})
	}
	if len(c.steps) != maxSteps {
		t.Errorf("%d steps are kept", len(c.steps))
	}
}

func TestAStepThatIsTooLargeKeepsWhatSavesMost(t *testing.T) {
	c := NewChain(100_000)
	s := Step{From: 1, To: 2, Deltas: map[string]Delta{
		"dense":  {Content: make([]byte, 8000), Summary: Summary{Length: 16_000}},
		"sparse": {Content: make([]byte, 3000), Summary: Summary{Length: 80_000}},
	}}
	c.Add(s)
	path, ok := c.Path(1, 2)
	if !ok {
		t.Fatal("the step is lost")
	}
	if _, _, ok := Tensor(path, "sparse", true); !ok {
		t.Error("the delta that saves most is gone")
	}
	if _, _, ok := Tensor(path, "dense", true); ok || c.Bytes() > 10_000 {
		t.Errorf("the chain has %d bytes", c.Bytes())
	}
	if len(s.Deltas) != 2 {
		t.Error("the caller's step was changed")
	}
}

func TestALostBaseBeginsTheChainAnew(t *testing.T) {
	c := NewChain(1 << 20)
	c.Add(stepOf(1, 2, 10))
	c.Add(stepOf(5, 6, 10))
	if _, ok := c.Path(1, 2); ok {
		t.Error("a step is kept that leads nowhere")
	}
	if _, ok := c.Path(5, 6); !ok {
		t.Error("the new step is lost")
	}
	c.Add(stepOf(6, 3, 10)) // back in number
	if _, ok := c.Path(5, 6); ok || c.Bytes() != 0 {
		t.Error("a version that goes back does not end the chain")
	}
}

func TestTensorAlongAChain(t *testing.T) {
	r := seeded(30)
	e, a := newEncoder(t), newApplier(t)
	old := random(r, 100_000)
	versions := [][]byte{old}
	c := NewChain(1 << 20)
	for v := range uint64(3) {
		now := versions[v]
		next := change(r, now, 2, 0.02, ulps)
		versions = append(versions, next)
		content, made := e.Encode(nil, pairOf(now, next, 2), 0)
		c.Add(Step{From: v, To: v + 1, Deltas: map[string]Delta{"w": {content, made}, "once": {content, made}}})
	}
	path, _ := c.Path(0, 3)
	deltas, cost, ok := Tensor(path, "w", false)
	if !ok || len(deltas) != 3 || cost.Bytes == 0 || cost.Work == 0 {
		t.Fatalf("along the path: %d deltas, %+v, %v", len(deltas), cost, ok)
	}
	dst, base := make([]byte, len(old)), slices.Clone(old)
	for i, d := range deltas {
		p := pairOf(versions[i], versions[i+1], 2)
		if err := a.Apply(Target{Dst: dst, Base: base, BaseDigest: p.Base, Digest: p.Result}, d.Content); err != nil {
			t.Fatalf("delta %d: %v", i, err)
		}
		base = dst
	}
	if !slices.Equal(dst, versions[3]) {
		t.Error("the chain leads to another version")
	}
	path[1].Deltas["w"] = Delta{Summary: Summary{Length: 7}}
	for _, name := range []string{"w", "unknown"} {
		if _, _, ok := Tensor(path, name, false); ok {
			t.Errorf("a tensor %s that cannot go along has deltas", name)
		}
	}
}

func ExampleChain() {
	c := NewChain(1 << 20)
	c.Add(Step{From: 7, To: 8})
	c.Add(Step{From: 8, To: 9})
	path, ok := c.Path(7, 9)
	fmt.Println(len(path), ok)
	_, ok = c.Path(6, 9)
	fmt.Println(ok)
	// Output:
	// 2 true
	// false
}
