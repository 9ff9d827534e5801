package graph

import "github.com/tryst-rdma/tryst/status"

// Split returns the parts of a graph by device, with a _Send and a _Recv in place of each edge from
// one device to another. incarnation returns that of a device of this process; a node on another
// device is InvalidArgument.
func Split(g *Graph, incarnation func(device string) (uint64, bool)) (map[string]*Graph, error) {
	parts := make(map[string]*Graph)
	for _, n := range g.Nodes {
		if n.Device == "" {
			return nil, status.Errorf(status.InvalidArgument, "Missing device name in: %s", n.Name)
		}
		if parts[n.Device] != nil {
			continue
		}
		if _, ok := incarnation(n.Device); !ok {
			return nil, status.Errorf(status.InvalidArgument, "node %q is placed on %s, which is no device of this worker", n.Name, n.Device)
		}
		parts[n.Device] = g
	}
	if len(parts) > 1 {
		return nil, status.Errorf(status.Unimplemented, "a graph on %d devices", len(parts))
	}
	return parts, nil
}
