package ops

import (
	"container/list"
	"math/rand/v2"
	"sync"

	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// generators are those of the random nodes of one session. A node has one generator for all graphs
// of the session, as in TensorFlow: the numbers go on when another graph has the node.
type generators struct {
	mu sync.Mutex // guards the fields below, and those of the generators that say so
	of map[randomNode]*generator
	// unused are the *generator of graphs that are gone, the longest unused first.
	unused list.List
}

// randomNode is what a generator belongs to. A client that gives the name to a node with other seeds
// begins another sequence.
type randomNode struct {
	device, name, op string
	seed, seed2      int64
}

// generator gives the numbers of a random node. Each run of the node takes the next ones.
type generator struct {
	node    randomNode
	kernels int           // that use it; guarded by generators.mu
	idle    *list.Element // in generators.unused, when no kernel uses it; guarded by generators.mu

	mu  sync.Mutex // guards gen
	gen philox
}

// newGenerator returns the generator of a node. Without seeds it begins at random.
func newGenerator(node randomNode) *generator {
	seed, seed2 := uint64(node.seed), uint64(node.seed2)
	if seed == 0 && seed2 == 0 {
		seed, seed2 = rand.Uint64(), rand.Uint64()
	}
	return &generator{node: node, gen: newPhilox(seed, seed2)}
}

// reserve returns a philox for n elements.
func (g *generator) reserve(n, groups int) philox {
	g.mu.Lock()
	defer g.mu.Unlock()
	gen := g.gen
	g.gen.skip(uint64(n) * uint64(groups))
	return gen
}

// take returns the generator of a node for a kernel, which gives it back to put.
func (s *generators) take(n *graph.Node) *generator {
	node := randomNode{n.Device, n.Name, n.Op, n.Int("seed"), n.Int("seed2")}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.of[node]
	if g == nil {
		if s.of == nil {
			s.of = make(map[randomNode]*generator)
		}
		g = newGenerator(node)
		s.of[node] = g
	}
	if g.idle != nil {
		s.unused.Remove(g.idle)
		g.idle = nil
	}
	g.kernels++
	return g
}

// put ends the use by a kernel.
func (s *generators) put(g *generator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.kernels--; g.kernels > 0 {
		return
	}
	g.idle = s.unused.PushBack(g)
	if s.unused.Len() > maxUnused {
		oldest, _ := s.unused.Remove(s.unused.Front()).(*generator)
		delete(s.of, oldest.node)
	}
}

// randomKernel is the kernel of a random node. The executor closes it with the graph.
type randomKernel struct {
	graph.KernelFunc
	close func()
}

// Close gives the generator back.
func (k randomKernel) Close() error { k.close(); return nil }

// kernel returns the kernel of a random node.
func (s *generators) kernel(n *graph.Node, compute func(c *graph.Context, g *generator) error) graph.Kernel {
	g := s.take(n)
	return randomKernel{
		KernelFunc: func(c *graph.Context) error { return compute(c, g) },
		close:      sync.OnceFunc(func() { s.put(g) }),
	}
}
