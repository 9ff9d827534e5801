package ops

import (
	"math/rand/v2"
	"sync"

	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// generators are those of the random nodes of one session. The numbers of a node go on when another graph has
// it.
type generators struct{ kept[randomNode, *generator] }

// randomNode is what a generator belongs to. A client that gives the name to a node with other seeds
// begins another sequence.
type randomNode struct {
	device, name, op string
	seed, seed2      int64
}

// generator gives the numbers of a random node. Each run of the node takes the next ones.
type generator struct {
	mu  sync.Mutex // guards gen
	gen philox
}

// seeded returns a generator. Without seeds it begins at random.
func seeded(seed, seed2 int64) philox {
	a, b := uint64(seed), uint64(seed2) //nolint:gosec // the bits count
	if a == 0 && b == 0 {
		a, b = rand.Uint64(), rand.Uint64()
	}
	return newPhilox(a, b)
}

// reserve returns a philox for n elements.
func (g *generator) reserve(n, groups int) philox {
	g.mu.Lock()
	defer g.mu.Unlock()
	gen := g.gen
	g.gen.skip(uint64(n) * uint64(groups))
	return gen
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
	node := randomNode{n.Device, n.Name, n.Op, n.Int("seed"), n.Int("seed2")}
	g := s.take(node, func() *generator { return &generator{gen: seeded(node.seed, node.seed2)} })
	return randomKernel{
		KernelFunc: func(c *graph.Context) error { return compute(c, g.value) },
		close:      sync.OnceFunc(func() { s.put(g) }),
	}
}
