package graph

import (
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Step is what the kernels of one step share.
type Step struct {
	ID         int64
	Rendezvous rendezvous.Rendezvous
	// Allocator provides the memory of outputs.
	Allocator tensor.Allocator
	// Observe, if not nil, is called after each node has run, from any goroutine.
	Observe func(NodeRun)
	// Workers bounds the kernels that compute at once; nil means that each executor has its own
	// bound of GOMAXPROCS.
	Workers *Workers
	// Print, if not nil, shows a text that a node prints, for a stream as TensorFlow names it ("stderr", "log(info)").
	Print func(n *Node, stream, text string)
	// Collectives is for the kernels of package collective; nil without them.
	Collectives any
}

// NodeRun says when a node has run. It is a record for step stats.
type NodeRun struct {
	Node *Node
	// Scheduled is when the inputs were there, Start and End are those of the kernel.
	Scheduled, Start, End time.Time
	// Outputs are the shapes and types of the outputs; valid during the call of Observe.
	Outputs []Value
	Err     error
}

// NodeError returns err with the name of the node in the form of TensorFlow, once: an error that
// names a node already is returned as it is. The code and the payloads of err stay.
func NodeError(node string, err error) error {
	s := status.From(err)
	if hasNode(s.Message()) {
		return err
	}
	return s.WithSuffix(fmt.Sprintf("\n\t [[{{node %s}}]]", node))
}
