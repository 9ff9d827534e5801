package graph

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// checkCycles returns an error for a cycle. Only an edge from NextIteration to Merge may lead back:
// the value then belongs to the next iteration.
func checkCycles(g *Graph) error {
	missing := make([]int32, len(g.Nodes)) // inputs that have not been visited
	ready := make([]*Node, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		for _, in := range n.In {
			if !leadsBack(in.Node, n) {
				missing[n.ID]++
			}
		}
		missing[n.ID] += int32(len(n.ControlIn))
		if missing[n.ID] == 0 {
			ready = append(ready, n)
		}
	}
	for i := 0; i < len(ready); i++ {
		for _, e := range ready[i].Out {
			if e.From != ControlSlot && leadsBack(ready[i], e.To) {
				continue
			}
			if missing[e.To.ID]--; missing[e.To.ID] == 0 {
				ready = append(ready, e.To)
			}
		}
	}
	if len(ready) == len(g.Nodes) {
		return nil
	}
	return cycleError(g, missing)
}

// leadsBack reports whether a data edge is the one that a loop may have.
func leadsBack(from, to *Node) bool {
	return kindOf(from.Op) == kindNextIteration && kindOf(to.Op) == kindMerge
}

// cycleError names the nodes of one cycle among those with missing inputs. Each of them has such an
// input, so following these inputs backward ends in a cycle.
func cycleError(g *Graph, missing []int32) error {
	var at *Node
	for _, n := range g.Nodes {
		if missing[n.ID] > 0 {
			at = n
			break
		}
	}
	seen := make(map[*Node]int)
	var path []*Node
	for {
		if i, ok := seen[at]; ok {
			path = path[i:]
			break
		}
		seen[at] = len(path)
		path = append(path, at)
		at = missingInput(at, missing)
	}
	var b strings.Builder
	for i := range min(len(path), maxErrorNodes) {
		b.WriteString(strconv.Quote(path[len(path)-1-i].Name) + " -> ")
	}
	if len(path) > maxErrorNodes {
		b.WriteString("… -> ")
	}
	b.WriteString(strconv.Quote(path[len(path)-1].Name))
	return status.Errorf(status.InvalidArgument, "the graph has a cycle of %d nodes: %s: only an edge from NextIteration to Merge may lead back", len(path), b.String())
}

func missingInput(n *Node, missing []int32) *Node {
	for _, in := range n.In {
		if missing[in.Node.ID] > 0 && !leadsBack(in.Node, n) {
			return in.Node
		}
	}
	for _, c := range n.ControlIn {
		if missing[c.ID] > 0 {
			return c
		}
	}
	return n // not reached: every missing input is counted
}
