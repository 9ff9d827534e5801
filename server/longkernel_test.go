package server

import (
	"context"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// longKernels is a KernelSet whose Neg computes until it is told to end, whatever its context says.
type longKernels struct {
	graph.KernelSet
	runs, end chan struct{}
}

func (k longKernels) NewState() (graph.State, error) {
	s, err := k.KernelSet.NewState()
	return longState{s, k}, err
}

type longState struct {
	graph.State
	k longKernels
}

func (s longState) NewSession() graph.State { return longState{s.State.NewSession(), s.k} }

func (s longState) NewKernel(n *graph.Node) (graph.Kernel, error) {
	k, err := s.State.NewKernel(n)
	if n.Op != "Neg" || err != nil {
		return k, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		close(s.k.runs)
		<-s.k.end
		return k.Compute(c)
	}), nil
}

// TestCloseLeavesAKernelThatComputes: Close ends although a kernel goes on, and says so. The kernel,
// which ends later, finds its memory as it was.
func TestCloseLeavesAKernelThatComputes(t *testing.T) {
	t.Parallel()
	k := longKernels{ops.New(), make(chan struct{}), make(chan struct{})}
	end := sync.OnceFunc(func() { close(k.end) })
	defer end()
	s, err := Start(t.Context(), settings(), Options{Kernels: k})
	if err != nil {
		t.Fatal(err)
	}
	session := openSession(t, s, master.Options{})
	g := session.NewGraph()
	g.Fetch("y", g.Add("neg", "Neg", ofFloat, g.Feed("x", tensor.Float32)), tensor.Float32)
	p := registerGraph(t, session, g)
	x := float(t, 5)
	defer x.Release()
	called := make(chan error, 1)
	go func() {
		_, err := p.Run(context.Background(), master.NewStep(), map[string]*tensor.Tensor{"x": x})
		called <- err
	}()
	wait(t, k.runs, "the kernel")
	now, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- s.Close(now) }()
	wantStatus(t, wait(t, closed, "Close"), status.DeadlineExceeded, "go on computing")
	if err := wait(t, called, "the call of the master"); err == nil {
		t.Error("the call succeeded")
	}
	wait(t, s.Done(), "the end of the server")
	end() // its goroutines end, which the package checks
}
