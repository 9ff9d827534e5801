package graph

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// loopGraph counts from 0 to limit.
func loopGraph(limit, parallel int) string {
	frame := fmt.Sprintf(`T=int32 frame_name="w" parallel_iterations=%d`, parallel)
	return fmt.Sprintf(`
		zero = Const() dtype=int32 value=#0
		one = Const() dtype=int32 value=#1
		limit = Const() dtype=int32 value=#%d
		e = Enter(zero) %s
		onec = Enter(one) %s is_constant=true
		limitc = Enter(limit) %s is_constant=true
		m = Merge(e, n) T=int32 N=2
		l = Less(m, limitc) T=int32
		c = LoopCond(l)
		s = Switch(m, c) T=int32
		b = AddV2(s:1, onec) T=int32
		n = NextIteration(b) T=int32
		x = Exit(s) T=int32`, limit, frame, frame, frame)
}

func TestLoopRuns(t *testing.T) {
	for _, limit := range []int{0, 1, 1000} {
		for _, parallel := range []int{1, 2, 10} {
			out, err := runGraph(t, newFakeSet(), loopGraph(limit, parallel)+fetch("r", "x"))
			if err != nil || scalar(t, out["r"]) != int32(limit) {
				t.Errorf("limit %d: %v, %v", limit, out, err)
			}
		}
	}
}

// TestLoopFramesAreThoseOfTensorFlow has ids that TensorFlow 2.21 logged for tf.while_loop in
// tf.while_loop: "Create frame: ;1;w/in/while_context id: 10809711634696326648".
func TestLoopFramesAreThoseOfTensorFlow(t *testing.T) {
	outer := childFrameID(0, 0, "w/while_context")
	for _, c := range []struct{ got, want uint64 }{
		{outer, 5328607504811956670},
		{childFrameID(outer, 0, "w/in/while_context"), 10809711634696325627},
		{childFrameID(outer, 1, "w/in/while_context"), 10809711634696326648},
	} {
		if c.got != c.want {
			t.Errorf("id %d, want %d", c.got, c.want)
		}
	}
}

func TestLoopKeysNameTheIteration(t *testing.T) {
	out, err := runGraph(t, newFakeSet(), loopGraph(2, 10)+fetch("r", "m"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		key := fmt.Sprintf("r;%d:%d", childFrameID(0, 0, "w"), i)
		if v, ok := out[key]; !ok || scalar(t, v) != int32(i) {
			t.Errorf("%s: %+v in %v", key, v, out)
		}
	}
}

// simulation runs a plan one task after another, in a random order, and checks the rules on the way.
type simulation struct {
	p     *propagator
	r     *rand.Rand
	tasks []task
	sent  map[string]int32
	live  int // buffers
	steps int
	ran   map[*item]int // in the root frame
}

const maxSimulatedSteps = 200_000

func (s *simulation) run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	s.p.start()
	s.take()
	for ; len(s.tasks) > 0; s.steps++ {
		if s.steps == maxSimulatedSteps {
			return fmt.Errorf("the graph does not end")
		}
		i := s.r.IntN(len(s.tasks))
		t := s.tasks[i]
		s.tasks[i] = s.tasks[len(s.tasks)-1]
		s.tasks = s.tasks[:len(s.tasks)-1]
		if err := s.step(t); err != nil {
			return err
		}
		if err := checkFrames(s.p.root); err != nil {
			return err
		}
		first := s.p.plan.frames[0].state // counted for each frame once
		if state := stateIn(s.p.root); state > first+s.p.held.limit {
			return fmt.Errorf("the iterations take %d bytes, at most %d and %d may be taken", state, first, s.p.held.limit)
		}
	}
	if n := s.p.held.used.Load(); n != 0 {
		return fmt.Errorf("%d bytes are taken at the end", n)
	}
	if len(s.p.root.live) > 0 {
		return fmt.Errorf("the root frame is not done")
	}
	if s.live > 0 {
		return fmt.Errorf("%d values are left", s.live)
	}
	for _, it := range s.p.plan.items {
		if it.frame == 0 && s.ran[it] != 1 {
			return fmt.Errorf("node %s ran %d times", it.node.Name, s.ran[it])
		}
	}
	return nil
}

func (s *simulation) take() {
	s.tasks = append(s.tasks, s.p.ready...)
	s.p.ready = s.p.ready[:0]
	releaseAll(s.p.dropped)
	s.p.dropped = s.p.dropped[:0]
}

// step runs a task. Every tensor is counted until its release.
func (s *simulation) step(t task) error {
	s.ran[t.item]++
	if t.dead && t.item.kind != kindTransfer {
		releaseAll(t.inputs())
		s.p.finish(t, nil)
		s.take()
		return nil
	}
	out := make([]Value, len(t.item.node.OutTypes))
	c := &Context{Node: t.item.node, FrameIter: t.frameIter(), InDead: t.dead, Inputs: t.inputs(), Outputs: out}
	if t.item.kind == kindTransfer {
		name := t.item.node.Name
		if _, ok := s.sent[name]; ok || t.dead || len(name) != 2 {
			return fmt.Errorf("%s ran twice, or is dead", name)
		}
		v, err := tensor.Values[int32](c.Input(0))
		if err != nil {
			return err
		}
		s.sent[name] = v[0]
	} else if err := t.item.kernel.Compute(c); err != nil {
		return err
	}
	releaseAll(t.inputs())
	for i, v := range out {
		if v.Tensor == nil || t.item.kind != kindKernel {
			continue
		}
		s.live++
		data := v.Tensor.Bytes()
		counted, err := tensor.New(v.Tensor.DType(), v.Tensor.Shape(), tensor.NewBuffer(data, func() { v.Tensor.Release(); s.live-- }))
		if err != nil {
			return err
		}
		out[i].Tensor = counted
	}
	s.p.finish(t, out)
	s.take()
	return nil
}

// checkFrames checks that no frame has more iterations than it may.
func checkFrames(f *frameState) error {
	if len(f.live) > f.plan.parallel {
		return fmt.Errorf("frame %s has %d iterations, at most %d may run", f.plan.name, len(f.live), f.plan.parallel)
	}
	for _, it := range f.live {
		for _, c := range it.children {
			if err := checkFrames(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// stateIn returns what the iterations of a frame take, with those of the frames in it.
func stateIn(f *frameState) (state int64) {
	for _, it := range f.live {
		state += stateOfIteration + stateOfNode*int64(len(it.nodes)) + stateOfInput*int64(len(it.inputs))
		for _, c := range it.children {
			state += stateIn(c)
		}
	}
	return state
}

// simulate runs the random program of a seed with a rule off, and compares it with the direct run.
func simulate(t testing.TB, seed uint64, off rule) error {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	p := randomProgram(r)
	s := newFakeSet()
	e, err := NewExecutor(importGraph(t, s, p.graph(oneDevice)), s)
	if err != nil {
		t.Fatal(err)
	}
	sim := &simulation{p: newPropagator(e.plan), r: r, sent: map[string]int32{}, ran: map[*item]int{}}
	sim.p.off = off
	sim.p.held = &held{limit: 1 << 40}
	if off == allRules || off == ruleHeld {
		sim.p.held.limit = []int64{0, 4000, 12000, 1 << 40}[seed%4] // none, some or all iterations run ahead
	}
	if err := sim.run(); err != nil {
		return err
	}
	for i, want := range p.run() {
		if got, ok := sim.sent[fmt.Sprintf("v%d", i)]; !ok || got != want {
			return fmt.Errorf("v%d is %d (%v), want %d", i, got, ok, want)
		}
	}
	return nil
}

func searchSeeds(t *testing.T) uint64 {
	if testing.Short() {
		return 300
	}
	return 3000
}

// TestPropagationEqualsTheProgram runs random programs in random orders.
func TestPropagationEqualsTheProgram(t *testing.T) {
	for seed := range searchSeeds(t) {
		if err := simulate(t, seed, allRules); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestPropagationNeedsEachRule shows that the search finds a rule that is switched off.
func TestPropagationNeedsEachRule(t *testing.T) {
	for off, name := range map[rule]string{ruleDeadEnter: "a dead Enter makes Merge dead", ruleDeadExits: "dead Exits leave a finished frame",
		ruleParallel: "parallel_iterations", ruleInvariants: "constant Enter for all iterations", ruleDeadNext: "a dead NextIteration ends",
		rulePendingEnters: "iteration 0 waits for all Enters", ruleRelease: "invariants are released with the frame", ruleHeld: "the state of a step"} {
		found := false
		for seed := uint64(0); seed < 300 && !found; seed++ {
			found = simulate(t, seed, off) != nil
		}
		if !found {
			t.Errorf("without the rule %q nothing goes wrong", name)
		}
	}
}

func TestExecutorEqualsTheProgram(t *testing.T) {
	for seed := range searchSeeds(t) / 3 {
		p := randomProgram(rand.New(rand.NewPCG(seed, 1)))
		out, err := runGraph(t, newFakeSet(), p.graph(oneDevice))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, want := range p.run() {
			if got := scalar(t, out[fmt.Sprintf("v%d", i)]); got != want {
				t.Fatalf("seed %d: v%d is %d, want %d", seed, i, got, want)
			}
		}
	}
}

// TestControlTriggerIsNeverDead: what waits for it runs although the branch was not taken.
func TestControlTriggerIsNeverDead(t *testing.T) {
	for v := range 2 {
		out, err := runGraph(t, newFakeSet(), switchGraph(5*v))
		if err != nil || scalar(t, out["after"]) != 9 {
			t.Errorf("%v, %v", out, err)
		}
	}
}
