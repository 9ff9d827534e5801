package library

import (
	"encoding/binary"
	"slices"

	"github.com/tryst-rdma/tryst/status"
)

// set is a set of symbols, by its number in sets.
type set int32

// symbol is an output of a node that subgraphs end at. The outputs of a Switch are never alive
// together, and a control edge may be alive when the data is dead, so each is one.
type symbol int32

// sets has each set of symbols once, so that equal sets have equal numbers.
type sets struct {
	members [][]symbol
	numbers map[string]set
	unions  map[[2]set]set
	symbols map[value]symbol
	size    int
}

// empty is the set without symbols.
const empty set = 0

func newSets() *sets {
	return &sets{members: [][]symbol{nil}, numbers: map[string]set{"": empty}, unions: map[[2]set]set{}, symbols: map[value]symbol{}}
}

// of returns the set that has only the symbol of a value.
func (s *sets) of(v value) set {
	y, ok := s.symbols[v]
	if !ok {
		y = symbol(len(s.symbols))
		s.symbols[v] = y
	}
	return s.intern([]symbol{y})
}

// union returns the union of two sets.
func (s *sets) union(a, b set) set {
	switch {
	case a == b || b == empty:
		return a
	case a == empty:
		return b
	case a > b:
		a, b = b, a
	}
	if u, ok := s.unions[[2]set{a, b}]; ok {
		return u
	}
	all := slices.Concat(s.members[a], s.members[b])
	slices.Sort(all)
	u := s.intern(slices.Compact(all))
	s.unions[[2]set{a, b}] = u
	return u
}

// within reports whether b has all of a.
func (s *sets) within(a, b set) bool { return s.union(a, b) == b }

func (s *sets) intern(members []symbol) set {
	key := make([]byte, 0, 4*len(members))
	for _, m := range members {
		key = binary.LittleEndian.AppendUint32(key, uint32(m))
	}
	if n, ok := s.numbers[string(key)]; ok {
		return n
	}
	n := set(len(s.members))
	s.members = append(s.members, members)
	s.numbers[string(key)] = n
	s.size += len(members)
	return n
}

// controlPort is the index of the symbol of a node's control edges.
const controlPort = -1

// front returns the frontier of a node.
func (c *cutter) front(n *node) set {
	f := empty
	var add func(from *node, port int)
	add = func(from *node, port int) {
		switch from.place {
		case inGo:
			f = c.sets.union(f, c.sets.of(value{from, port}))
		case apart:
			f = c.sets.union(f, c.sets.of(value{from, 0}))
		case inSubgraph:
			f = c.sets.union(f, from.front)
		case copied: // its user waits in its place
			for _, before := range from.control {
				add(before, controlPort)
			}
		}
	}
	for _, in := range n.inputs {
		add(in.n, in.i)
	}
	for _, from := range n.control {
		add(from, controlPort)
	}
	return f
}

// subgraph is the nodes of one function.
type subgraph struct {
	nodes []*node
	front set
	apart bool // it has one node, which is apart
	waits bool // it may wait
	// lasts says how long its kernel does. If that is longer than the graph, all graphs of the session have
	// one function for its node.
	lasts lifetime
	unit  *unit // once assembled
}

// group makes the subgraphs.
func (c *cutter) group() error {
	byFront := map[set]*subgraph{}
	for _, n := range c.nodes {
		switch n.place {
		case inGo, copied:
		case apart:
			n.subgraph = &subgraph{nodes: []*node{n}, apart: true, waits: c.waits(n), lasts: c.lifetime(n)}
			c.subgraphs = append(c.subgraphs, n.subgraph)
		case inSubgraph:
			n.front = c.front(n)
			p := byFront[n.front]
			if p == nil {
				p = &subgraph{front: n.front}
				byFront[n.front] = p
				c.subgraphs = append(c.subgraphs, p)
			}
			p.nodes = append(p.nodes, n)
			n.subgraph = p
			if c.sets.size > maxSymbols {
				return status.Errorf(status.ResourceExhausted, "node %q: the graph has too many receives and branches that depend on each other to be cut into TensorFlow functions", n.name)
			}
		}
	}
	c.join()
	c.dissolve()
	return nil
}

// join makes one subgraph of two where nobody can see the difference: all that a subgraph of pure nodes
// computes is for one other subgraph, and for subgraphs that wait for all that this one waits for. Chains of
// layers become one function, although each layer waits for a weight of its own.
func (c *cutter) join() {
	users := c.users()
	into := map[*subgraph]*subgraph{}
	for _, p := range slices.Backward(c.subgraphs) {
		if !c.pure(p) {
			continue
		}
		for u := range users[p] { // those that have been joined to others meanwhile
			if at := into[u]; at != nil {
				delete(users[p], u)
				for into[at] != nil {
					at = into[at]
				}
				users[p][at] = true
			}
		}
		next, ok := c.onlyUser(users[p])
		if !ok {
			continue
		}
		for _, n := range p.nodes {
			n.subgraph = next
		}
		next.nodes = append(next.nodes, p.nodes...)
		for u := range users[p] {
			if u != next {
				users[next][u] = true
			}
		}
		p.nodes, into[p] = nil, next
	}
	c.subgraphs = slices.DeleteFunc(c.subgraphs, func(p *subgraph) bool { return len(p.nodes) == 0 })
	for _, p := range c.subgraphs {
		slices.SortStableFunc(p.nodes, func(a, b *node) int { return a.order - b.order })
	}
}

// users returns the subgraphs that use each subgraph. Its own key nil stands for a Go node.
func (c *cutter) users() map[*subgraph]map[*subgraph]bool {
	users := map[*subgraph]map[*subgraph]bool{}
	for _, p := range c.subgraphs {
		users[p] = map[*subgraph]bool{}
	}
	for _, n := range c.nodes {
		if n.place == copied {
			continue
		}
		use := func(from *node) {
			if from.subgraph != nil && from.subgraph != n.subgraph {
				users[from.subgraph][n.subgraph] = true // n.subgraph is nil in Go
			}
		}
		for _, from := range n.predecessors() {
			use(from)
			if from.place == copied {
				for _, before := range from.control {
					use(before)
				}
			}
		}
	}
	return users
}

// onlyUser returns the user that all other users depend on; false when there is none.
func (c *cutter) onlyUser(users map[*subgraph]bool) (*subgraph, bool) {
	var first *subgraph
	for u := range users {
		if u == nil || u.apart {
			return nil, false
		}
		if first == nil || len(c.sets.members[u.front]) < len(c.sets.members[first.front]) {
			first = u
		}
	}
	if first == nil {
		return nil, false
	}
	for u := range users {
		if !c.sets.within(first.front, u.front) {
			return nil, false
		}
	}
	return first, true
}

// pure reports whether no node of p has an effect, or reads what another node may change.
func (c *cutter) pure(p *subgraph) bool {
	if p.apart {
		return false
	}
	for _, n := range p.nodes {
		if n.opDef.GetIsStateful() || c.library.has(n.op) {
			return false
		}
		for _, in := range n.inputs {
			if in.isReference() {
				return false
			}
		}
	}
	return true
}

// dissolve moves the nodes of subgraphs into Go where a function would cost more than they do.
func (c *cutter) dissolve() {
	c.subgraphs = slices.DeleteFunc(c.subgraphs, func(p *subgraph) bool {
		for _, n := range p.nodes {
			if !c.light(n) {
				return false
			}
		}
		for _, n := range p.nodes {
			n.place, n.subgraph = inGo, nil
		}
		return true
	})
	c.constantsForGo()
}

// light reports whether a node costs less in Go than in a function.
func (c *cutter) light(n *node) bool {
	if c.set.own.OpDef(n.op) == nil || c.library.has(n.op) {
		return false
	}
	switch n.op {
	case "NoOp":
		return true
	case "Const":
		return n.outTypes[0].Valid()
	case "Identity":
		in := n.inputs[0]
		return !in.isReference() && !c.isRead(in) && (in.n.place != copied || c.isConst(in.n))
	}
	return false
}

// constantsForGo gives the nodes that went to Go constants of their own.
func (c *cutter) constantsForGo() {
	var constants []*node
	own := map[*node]*node{}
	for _, n := range c.nodes {
		if n.place != inGo {
			continue
		}
		for i, in := range n.inputs {
			if in.n.place != copied {
				continue
			}
			if own[in.n] == nil {
				k := *in.n
				k.place, k.name = inGo, k.name+"/in_go"
				own[in.n] = &k
				constants = append(constants, &k)
			}
			n.inputs[i].n = own[in.n]
		}
	}
	c.nodes = append(constants, c.nodes...)
}
