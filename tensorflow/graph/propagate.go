package graph

import "github.com/tryst-rdma/tryst/rendezvous"

// The propagation of values, dead values and iterations through a graph, with the rules of
// TensorFlow (core/common_runtime/propagator_state.cc):
//
//		task ── finish(outputs) ──> tasks that have become ready
//
//	  - A node runs when all its inputs have come. If one of them is dead the node does not run, and
//	    its outputs are dead.
//	  - Merge runs at its first live value, and is dead when all values are. The dead value of an
//	    Enter makes it dead at once: the loop is in a branch that was not taken.
//	  - ControlTrigger is never dead.
//	  - Enter leads into iteration 0 of a new frame, and into all iterations if it is constant. There is
//	    one frame for each iteration of the outer frame.
//	  - NextIteration leads into the next iteration; a dead one ends here. It waits while the frame
//	    has as many iterations as it may, or has one and the step holds as much as it may.
//	  - A live Exit leads into the iteration that the frame was entered from. A dead one counts only
//	    in the last iteration, and leads there when the frame is done.
//	  - An iteration is done when no node of it is under way, no frame that was entered from it lives, and
//	    the iteration before is done; iteration 0 also when all Enter nodes have come. A frame is
//	    done when all its iterations are. What is done is forgotten.
//
// A propagator does nothing by itself: it is a value that one run of an executor guards with a lock,
// and that tests search with all orders of completions.
type propagator struct {
	plan *plan
	root *frameState
	// ready are the tasks that have become ready; the caller takes them.
	ready []task
	// dropped are values that nobody needs any more. The caller releases them without its lock.
	dropped []Value
	// spare keeps iterations of finished frames for the next ones, by framePlan.index.
	spare [][]*iteration
	// held counts the iterations that run ahead; taken is the part of this propagator.
	held  *held
	taken int64
	// off switches a rule off, for the tests that show that the search finds it.
	off rule
}

// rule is one of the rules above that a test can switch off.
type rule int

const (
	allRules rule = iota
	ruleDeadEnter
	ruleControlTrigger
	ruleDeadExits
	ruleParallel
	ruleInvariants
	ruleDeadNext
	rulePendingEnters
	ruleRelease
	ruleHeld
)

// task is one run of a node.
type task struct {
	item *item
	iter *iteration
	dead bool
	at   int64 // when it became ready, in nanoseconds since the begin of the run, if it is observed
}

// frameIter returns the iteration as rendezvous keys name it.
func (t task) frameIter() rendezvous.FrameIter {
	return rendezvous.FrameIter{Frame: t.iter.frame.id, Iter: t.iter.number}
}

// inputs returns the values of the inputs, in the state of the iteration.
func (t task) inputs() []Value {
	return t.iter.inputs[t.item.first : t.item.first+len(t.item.node.In)]
}

// frameState is one run of a loop, or that of the root frame.
type frameState struct {
	plan   *framePlan
	id     uint64
	parent *iteration // where the frame was entered from; nil for the root

	// live are the iterations that are not done, in order. The last one has the number newest.
	live   []*iteration
	newest int64
	// missingEnters is the number of Enter nodes that have not come.
	missingEnters int
	invariants    []deferred // values of constant Enter nodes
	next          []deferred // values for an iteration that may not begin yet
	deadExits     []*item    // in the newest iteration
}

type deferred struct {
	item  *item
	value Value
}

// iteration is the state of one iteration of a frame.
type iteration struct {
	frame    *frameState
	number   int64
	nodes    []nodeState
	inputs   []Value
	underWay int // nodes that are ready or run
	// children are the frames that were entered from here, by their plan.
	children map[*framePlan]*frameState
}

// newPropagator returns the propagator of a plan. The caller sets held.
func newPropagator(p *plan) *propagator {
	return &propagator{plan: p, root: &frameState{plan: p.frames[0]}, spare: make([][]*iteration, len(p.frames))}
}

// start begins a run: it makes the nodes without inputs ready. A propagator can be started again
// when no task is left.
func (p *propagator) start() {
	it := p.newIteration(p.root, 0)
	p.root.live = append(p.root.live[:0], it)
	for _, r := range p.plan.roots {
		p.begin(r, it, false)
	}
}

func (p *propagator) newIteration(f *frameState, number int64) *iteration {
	if list := p.spare[f.plan.index]; len(list) > 0 {
		it := list[len(list)-1]
		p.spare[f.plan.index] = list[:len(list)-1]
		it.frame, it.number, it.underWay = f, number, 0
		copy(it.nodes, f.plan.pending)
		return it
	}
	it := &iteration{frame: f, number: number, nodes: make([]nodeState, len(f.plan.pending)), inputs: make([]Value, f.plan.inputs)}
	copy(it.nodes, f.plan.pending)
	return it
}

// forget drops the values of an iteration that is done.
func (p *propagator) forget(it *iteration) {
	for i := range it.inputs {
		p.drop(it.inputs[i])
		it.inputs[i] = Value{}
	}
	if spare := &p.spare[it.frame.plan.index]; len(*spare) < maxSpare {
		*spare = append(*spare, it)
	}
	it.frame = nil
}

func (p *propagator) drop(v Value) {
	if v.Tensor != nil || v.Opaque != nil {
		p.dropped = append(p.dropped, v)
	}
}

// begin makes a node ready.
func (p *propagator) begin(to *item, it *iteration, dead bool) {
	it.nodes[to.place].started = true
	it.underWay++
	if to.kind == kindControlTrigger && p.off != ruleControlTrigger {
		dead = false
	}
	p.ready = append(p.ready, task{item: to, iter: it, dead: dead})
}

// finish propagates the end of a task. out are the outputs of the node, which finish takes over; it
// is not read when the task is dead, and may be nil then. The inputs of the task have been taken out of
// the iteration before.
func (p *propagator) finish(t task, out []Value) {
	it := t.iter
	switch t.item.kind {
	case kindEnter:
		p.enter(t, out)
	case kindExit:
		p.exit(t, out)
	case kindNextIteration:
		p.nextIteration(t, out)
	default:
		p.activate(t.item, it, t.dead, out)
	}
	it.underWay--
	p.cleanUp(it)
}

// activate passes the outputs of a node to the nodes that wait for them in an iteration.
func (p *propagator) activate(from *item, it *iteration, dead bool, out []Value) {
	for i := range from.edges {
		e := &from.edges[i]
		v := Value{Dead: true}
		if !dead {
			if v = out[e.from]; !e.last {
				v = v.Retain()
			}
		}
		p.arrive(from, e, it, v)
	}
	if !dead {
		for _, i := range from.unused {
			p.drop(out[i])
		}
	}
	for _, to := range from.controls {
		p.arriveControl(to, it, dead)
	}
}

// arrive passes one value to one input.
func (p *propagator) arrive(from *item, e *outEdge, it *iteration, v Value) {
	to, s := e.to, &it.nodes[e.to.place]
	if v.Dead {
		p.drop(v)
		s.dead++
	}
	if to.kind == kindMerge {
		p.arriveMerge(from, e, it, v)
		return
	}
	if !v.Dead {
		it.inputs[e.slot] = v
	}
	if s.pending--; s.pending == 0 {
		p.begin(to, it, s.dead > 0)
	}
}

// arriveMerge passes a value to a Merge, which takes the first live one.
func (p *propagator) arriveMerge(from *item, e *outEdge, it *iteration, v Value) {
	to, s := e.to, &it.nodes[e.to.place]
	if v.Dead {
		if from.kind == kindEnter && p.off != ruleDeadEnter {
			s.dead = int32(len(to.node.In)) // no other value will come
		}
		if s.dead == int32(len(to.node.In)) && s.pending == 1 && !s.started {
			p.begin(to, it, true)
		}
		return
	}
	if s.pending&1 == 0 || s.started {
		p.drop(v)
		return
	}
	it.inputs[e.slot] = v
	if s.pending &^= 1; s.pending == 0 {
		p.begin(to, it, false)
	}
}

// arriveControl passes the end of a node to one that waits for it by a control edge.
func (p *propagator) arriveControl(to *item, it *iteration, dead bool) {
	s := &it.nodes[to.place]
	if to.kind != kindMerge {
		if dead {
			s.dead++
		}
		if s.pending--; s.pending == 0 {
			p.begin(to, it, s.dead > 0)
		}
		return
	}
	s.pending -= 2
	if allDead := s.dead == int32(len(to.node.In)); !s.started && (s.pending == 0 || s.pending == 1 && allDead) {
		p.begin(to, it, s.pending == 1)
	}
}

// enter leads into a frame.
func (p *propagator) enter(t task, out []Value) {
	f := p.child(t.iter, t.item)
	v := Value{Dead: true}
	if !t.dead {
		v = out[0]
	}
	if t.item.constant {
		for _, it := range f.live {
			p.activateOne(t.item, it, v.Retain())
			if p.off == ruleInvariants {
				break
			}
		}
		f.invariants = append(f.invariants, deferred{t.item, v})
	} else {
		p.activateOne(t.item, f.live[0], v)
	}
	f.missingEnters--
	p.cleanUp(f.live[0])
}

// activateOne is activate for a node with one output, and takes over the value.
func (p *propagator) activateOne(from *item, it *iteration, v Value) {
	out := [1]Value{v}
	p.activate(from, it, v.Dead, out[:])
}

// child returns the frame that an Enter node leads into, and begins it at the first one.
func (p *propagator) child(it *iteration, enter *item) *frameState {
	if f := it.children[enter.child]; f != nil {
		return f
	}
	f := &frameState{plan: enter.child, id: childFrameID(it.frame.id, it.number, enter.child.name), parent: it, missingEnters: enter.child.enters}
	f.live = append(f.live, p.newIteration(f, 0))
	if it.children == nil {
		it.children = make(map[*framePlan]*frameState)
	}
	it.children[f.plan] = f
	return f
}

func (p *propagator) exit(t task, out []Value) {
	f := t.iter.frame
	switch {
	case !t.dead:
		p.activate(t.item, f.parent, false, out)
	case t.iter.number == f.newest:
		f.deadExits = append(f.deadExits, t.item)
	}
}

func (p *propagator) nextIteration(t task, out []Value) {
	f, it := t.iter.frame, t.iter
	v := Value{Dead: true}
	switch {
	case !t.dead:
		v = out[0]
	case p.off != ruleDeadNext:
		return
	}
	if it.number < f.newest {
		p.activateOne(t.item, f.iteration(it.number+1), v)
		return
	}
	f.next = append(f.next, deferred{t.item, v})
	if len(f.live) < f.plan.parallel || p.off == ruleParallel {
		p.beginAhead(f)
	}
}

// beginAhead begins the next iteration of a frame beside those that run, unless the step holds as much
// as it may: then it begins when one of them is done.
func (p *propagator) beginAhead(f *frameState) {
	if p.off != ruleHeld && !p.held.take(f.plan.state) {
		return
	}
	p.taken += f.plan.state
	p.beginIteration(f)
}

// give gives back what an iteration that ran ahead has taken.
func (p *propagator) give(n int64) {
	p.held.give(n)
	p.taken -= n
}

// iteration returns the iteration with a number, which must not be done.
func (f *frameState) iteration(number int64) *iteration { return f.live[number-f.live[0].number] }

// beginIteration begins the next iteration of a frame, with the values that wait for it.
func (p *propagator) beginIteration(f *frameState) {
	f.newest++
	it := p.newIteration(f, f.newest)
	f.live = append(f.live, it)
	f.deadExits = f.deadExits[:0]
	next := f.next
	f.next = nil
	for _, d := range next {
		p.activateOne(d.item, it, d.value)
	}
	for _, d := range f.invariants {
		p.activateOne(d.item, it, d.value.Retain())
	}
}

// cleanUp forgets the iterations of a frame that are done, from it on, and then the frame if it is
// done.
func (p *propagator) cleanUp(it *iteration) {
	f := it.frame
	for len(f.live) > 0 && f.live[0] == it && p.done(it) {
		f.live = append(f.live[:0], f.live[1:]...)
		p.forget(it)
		if len(f.live) > 0 {
			p.give(f.plan.state)
		}
		switch {
		case len(f.next) == 0:
		case len(f.live) > 0:
			p.beginAhead(f)
		default:
			p.beginIteration(f)
		}
		if len(f.live) > 0 {
			it = f.live[0]
		}
	}
	if len(f.live) == 0 && f.parent != nil {
		p.endFrame(f)
	}
}

// done reports whether an iteration is done, if the one before it is.
func (p *propagator) done(it *iteration) bool {
	entered := it.number > 0 || it.frame.missingEnters == 0 || p.off == rulePendingEnters
	return it.underWay == 0 && len(it.children) == 0 && entered
}

// endFrame forgets a frame whose iterations are done, and propagates the dead Exits of the last one.
func (p *propagator) endFrame(f *frameState) {
	for _, d := range f.invariants {
		if p.off != ruleRelease {
			p.drop(d.value)
		}
	}
	it := f.parent
	for _, exit := range f.deadExits {
		if p.off != ruleDeadExits {
			p.activate(exit, it, true, nil)
		}
	}
	delete(it.children, f.plan)
	p.cleanUp(it)
}

// abandon drops all values, at the end of a run that did not run all nodes.
func (p *propagator) abandon() {
	p.abandonFrame(p.root)
	p.give(p.taken)
}

func (p *propagator) abandonFrame(f *frameState) {
	for _, d := range append(f.invariants, f.next...) {
		p.drop(d.value)
	}
	f.invariants, f.next = nil, nil
	for _, it := range f.live {
		for _, c := range it.children {
			p.abandonFrame(c)
		}
		it.children = nil
		p.forget(it)
	}
	f.live = f.live[:0]
}
