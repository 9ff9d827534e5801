package ops

import (
	"maps"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// State is the variables, the queues and the random generators of one worker session (graph.State).
type State struct {
	registry   *Registry
	generators generators
	private    kept[privateNode, *location] // of objects without a shared_name
	// shares says that the resources belong to another State.
	shares bool
	*resources
}

// resources are the variables and objects of the sessions that share them.
type resources struct {
	mu         sync.Mutex // guards the fields below
	containers map[string]map[resourceName]resource
	closed     bool
}

// defaultContainer is the name of the container of nodes that name none, as in TensorFlow.
const defaultContainer = "localhost"

// resourceName names a resource of a container. As in TensorFlow resources of different kinds may
// have the same name.
type resourceName struct{ kind, name string }

// resource is what a container holds.
type resource interface {
	// drop frees what the resource holds. Steps may still use it.
	drop()
}

// Rewrite implements graph.State. This set runs each node by itself.
func (s *State) Rewrite(g *graph.Graph) (*graph.Graph, error) { return g, nil }

// NewSession implements graph.State.
func (s *State) NewSession() graph.State {
	return &State{registry: s.registry, shares: true, resources: s.resources}
}

// Reset implements graph.State.
func (s *State) Reset(containers []string) {
	if len(containers) == 0 {
		containers = []string{defaultContainer}
	}
	s.reset(func() []string { return containers })
}

// reset drops the resources of the containers that names returns, which may use what mu guards.
func (s *resources) reset(names func() []string) {
	var dropped []resource
	s.mu.Lock()
	for _, name := range names() {
		if name == "" {
			name = defaultContainer
		}
		for _, r := range s.containers[name] {
			dropped = append(dropped, r)
		}
		delete(s.containers, name)
	}
	s.mu.Unlock()
	for _, r := range dropped {
		r.drop()
	}
}

// Close implements graph.State.
func (s *State) Close() {
	for _, p := range s.private.all() {
		p.remove()
	}
	if s.shares {
		return
	}
	s.reset(func() []string {
		s.closed = true
		return slices.Collect(maps.Keys(s.containers))
	})
}

// find returns a resource, which create makes if it does not exist. A nil create gives NotFound.
func (s *resources) find(container string, name resourceName, create func() (resource, error)) (resource, error) {
	if container == "" {
		container = defaultContainer
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.containers[container][name]; r != nil {
		return r, nil
	}
	if create == nil {
		return nil, status.Errorf(status.NotFound, "Resource %s/%s/%s does not exist.", container, name.name, name.kind)
	}
	if s.closed {
		return nil, status.Errorf(status.Aborted, "%s %q: the session has ended", name.kind, name.name)
	}
	r, err := create()
	if err != nil {
		return nil, err
	}
	if s.containers[container] == nil {
		s.containers[container] = make(map[resourceName]resource)
	}
	s.containers[container][name] = r
	return r, nil
}

// remove takes a resource out of its container and drops it. It reports whether it was there.
func (s *resources) remove(container string, name resourceName) bool {
	if container == "" {
		container = defaultContainer
	}
	s.mu.Lock()
	r := s.containers[container][name]
	delete(s.containers[container], name)
	s.mu.Unlock()
	if r != nil {
		r.drop()
	}
	return r != nil
}

// nameOf returns the name of the resource of a node: shared_name, else the node's own.
func nameOf(n *graph.Node) string {
	if shared := n.Text("shared_name"); shared != "" {
		return shared
	}
	return n.Name
}
