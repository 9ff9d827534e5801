package graph

// What an Identity reads from a reference variable is no copy in TensorFlow but the memory of the
// variable: who takes the value sees all updates that came before itself, also those after the Identity. The
// read node of a variable, which waits for nothing, is for programs like these:
//
//	read = Identity(v)
//	update = AssignAdd(v, 1)
//	token = Fill(n, read, ^update)    the new value
//
// So nodes that hand a value on, that is those of handsOn and of control flow, give the variable itself
// (Value.Var), and the executor takes the snapshot for the node that computes with it.

// findAliases finds the nodes that hand on the memory of variables, and those that take it.
func (p *plan) findAliases() {
	var todo []*item
	lend := func(it *item) {
		if n := handsOn(it); n > 0 && it.handed == 0 {
			it.handed = n
			todo = append(todo, it)
		}
	}
	for _, it := range p.items {
		if it.refs && !it.takesReference() {
			lend(it)
		}
	}
	for len(todo) > 0 {
		it := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, e := range it.edges {
			e.to.refs = true
			if e.slot-e.to.first < handsOn(e.to) {
				lend(e.to)
			}
		}
	}
}

// takesReference reports whether the op declares an input as a reference.
func (it *item) takesReference() bool {
	for _, t := range it.node.InTypes {
		if t.IsRef() {
			return true
		}
	}
	return false
}

// handsOn returns how many inputs of a node, the first ones, it gives as its outputs as they are.
func handsOn(it *item) int {
	switch it.kind {
	case kindSwitch, kindEnter, kindExit, kindNextIteration:
		return 1
	case kindMerge:
		return len(it.node.In)
	case kindKernel:
		switch it.node.Op {
		case "Identity", "StopGradient", "PreventGradient", "PlaceholderWithDefault":
			return 1
		case "IdentityN":
			return len(it.node.In)
		}
	}
	return 0
}
