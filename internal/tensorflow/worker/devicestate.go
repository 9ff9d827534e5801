package worker

import (
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// Each device has variables and queues of its own, as in TensorFlow: those of two devices may have the
// same name. So with several devices a session has a State of the kernel set for each.

// deviceSet is a kernel set whose states are of several devices.
type deviceSet struct{ graph.KernelSet }

// setFor returns the kernel set of a process with a number of devices.
func setFor(set graph.KernelSet, devices int) graph.KernelSet {
	if set == nil || devices <= 1 {
		return set
	}
	return deviceSet{set}
}

// NewState implements graph.KernelSet. The result is a *deviceStates.
func (d deviceSet) NewState() (graph.State, error) {
	return newDeviceStates(func(deviceID) (graph.State, error) { return d.KernelSet.NewState() }), nil
}

// deviceID is a device of this process, under whatever task name a session knows it.
type deviceID struct {
	kind  string
	index int
}

// deviceStates is the states of the devices. Each is made when it is needed.
type deviceStates struct {
	open func(deviceID) (graph.State, error) // makes that of a device

	mu     sync.Mutex // guards the fields below
	states map[deviceID]graph.State
	closed bool
}

func newDeviceStates(open func(deviceID) (graph.State, error)) *deviceStates {
	return &deviceStates{open: open, states: make(map[deviceID]graph.State)}
}

// stateOf returns the state for the nodes of a device.
func stateOf(s graph.State, device string) (graph.State, error) {
	if d, ok := s.(*deviceStates); ok {
		return d.on(device)
	}
	return s, nil
}

func (d *deviceStates) on(device string) (graph.State, error) {
	name, err := cluster.ParseDevice(device)
	if err != nil {
		return nil, err
	}
	return d.at(deviceID{name.Type, name.Index})
}

func (d *deviceStates) at(id deviceID) (graph.State, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.states[id]; s != nil {
		return s, nil
	}
	if d.closed {
		return nil, status.Errorf(status.Aborted, "%s:%d: the session has ended", id.kind, id.index)
	}
	s, err := d.open(id)
	if err != nil {
		return nil, err
	}
	d.states[id] = s
	return s, nil
}

// NewSession implements graph.State.
func (d *deviceStates) NewSession() graph.State {
	return newDeviceStates(func(id deviceID) (graph.State, error) {
		s, err := d.at(id)
		if err != nil {
			return nil, err
		}
		return s.NewSession(), nil
	})
}

// Rewrite implements graph.State.
func (d *deviceStates) Rewrite(g *graph.Graph) (*graph.Graph, error) {
	if len(g.Nodes) == 0 {
		return g, nil
	}
	s, err := d.on(g.Nodes[0].Device)
	if err != nil {
		return nil, err
	}
	return s.Rewrite(g)
}

// NewKernel implements graph.State.
func (d *deviceStates) NewKernel(n *graph.Node) (graph.Kernel, error) {
	s, err := d.on(n.Device)
	if err != nil {
		return nil, graph.NodeError(n.Name, err)
	}
	return s.NewKernel(n)
}

// Reset implements graph.State.
func (d *deviceStates) Reset(containers []string) {
	for _, s := range d.all(false) {
		s.Reset(containers)
	}
}

// Close implements graph.State.
func (d *deviceStates) Close() {
	for _, s := range d.all(true) {
		s.Close()
	}
}

// all returns the states that were made, and with closing makes no others.
func (d *deviceStates) all(closing bool) (states []graph.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = d.closed || closing
	for _, s := range d.states {
		states = append(states, s)
	}
	return states
}
