package collective

import (
	"fmt"

	"github.com/tryst-rdma/tryst/status"
)

// The numbers of TensorFlow's ring algorithms. All members must have the same: they determine the
// sizes and the keys of the buffers.
const (
	// chunkAlignment is EIGEN_MAX_ALIGN_BYTES of TensorFlow's builds: a chunk of an all-reduce
	// has a multiple of it.
	chunkAlignment = 64
	// maxChunk is the size in bytes above which a chunk is subdivided, where the number of
	// subdivisions is not given.
	maxChunk = 4 << 20
	// defaultSubdivisions is how many subdivisions such an operation may have for each device of
	// a task.
	defaultSubdivisions = 2
	// oneSubdivision as the maximum of subdivisions is TensorFlow's way to ask for exactly one.
	oneSubdivision = -1
)

// alignedChunk returns the elements of each chunk of an all-reduce but the last ones, which may be
// shorter or empty. A chunk whose size is a multiple of the alignment already gets one alignment
// more, as in TensorFlow.
func alignedChunk(elementSize int, elements int64, chunks int) int64 {
	size, n := int64(elementSize), int64(chunks)
	chunk := (elements + n - 1) / n
	return chunk + (chunkAlignment-chunk*size%chunkAlignment)/size
}

// chunkRange returns the elements of chunk i.
func chunkRange(i int, chunk, elements int64) (first, n int64) {
	first = min(elements, int64(i)*chunk)
	return first, min(elements, first+chunk) - first
}

// subdivisions returns the offset of each subdivision of an all-reduce whose offsets are not given.
// limit is how many there may be for each device of a task, 0 for the default.
func subdivisions(m *members, bytes int64, limit int) []int {
	if limit == oneSubdivision {
		return []int{0}
	}
	perTask := m.size() / len(m.perTask)
	if limit <= 0 {
		limit = defaultSubdivisions
	}
	n := 1
	for bytes/int64(m.size()*n) > maxChunk && n < limit*perTask {
		n++
	}
	stride := max(1, perTask/n)
	offsets := make([]int, n)
	for i := range offsets {
		offsets[i] = stride * i
		if i%2 == 1 {
			offsets[i] = -offsets[i]
		}
	}
	return offsets
}

// ring is one subdivision of an all-reduce or gather: an order of the members.
type ring struct {
	order []int // ranks in the group
	place int   // of this member
}

// newRing rotates the devices of each task by offset. A negative offset begins at the end of the
// task and goes backwards.
func newRing(m *members, rank, offset int) ring {
	r := ring{order: make([]int, 0, m.size())}
	before := 0
	for _, n := range m.perTask {
		for i := range n {
			at := i + offset
			if offset < 0 {
				at = n - 1 - (i-offset)%n
			}
			member := before + at%n
			if member == rank {
				r.place = len(r.order)
			}
			r.order = append(r.order, member)
		}
		before += n
	}
	return r
}

// neighbour returns the rank in the group of the member that is so many places further.
func (r *ring) neighbour(by int) int {
	n := len(r.order)
	return r.order[((r.place+by)%n+n)%n]
}

// execKey begins the keys of all buffers of one run of an operation.
func execKey(group, instance int32, frame uint64, iter int64) string {
	return fmt.Sprintf("%d:%d:%d:%d", group, instance, frame, iter)
}

// ringKey is the key of a chunk: pass is 0 while values are merged and 1 while results are passed
// on, field numbers the chunks of all subdivisions, and place is that of the sender in the ring.
func ringKey(exec string, pass, field, place int) string {
	return fmt.Sprintf("%s:%d:%d:%d", exec, pass, field, place)
}

// treeKey is the key of a broadcast from one member of a tree to another.
func treeKey(exec string, tree, from, to int) string {
	return fmt.Sprintf("%s:%d:%d:%d", exec, tree, from, to)
}

// tree is one tree of a broadcast. With several tasks the first tree connects one device of each,
// and one more tree for each task connects its devices.
type tree struct {
	number int
	order  []int // ranks in the group
	place  int   // of this member
	source int   // the place of the root
}

// newTrees returns the trees that a member has a place in, in their order.
func newTrees(m *members, rank, source int) []tree {
	var trees []tree
	first := 0 // the number of the tree of the first task
	if len(m.perTask) > 1 {
		first = 1
		t := tree{place: -1, source: m.taskOf(source)}
		before := 0
		for task, n := range m.perTask {
			entry := before
			if task == t.source {
				entry = source
			}
			if entry == rank {
				t.place = task
			}
			t.order = append(t.order, entry)
			before += n
		}
		if t.place >= 0 {
			trees = append(trees, t)
		}
	}
	task := m.taskOf(rank)
	t := tree{number: first + task}
	before := 0
	for _, n := range m.perTask[:task] {
		before += n
	}
	for i := range m.perTask[task] {
		t.order = append(t.order, before+i)
	}
	t.place = rank - before
	if m.taskOf(source) == task {
		t.source = source - before
	}
	return append(trees, t)
}

// parent returns the place that this member receives from; −1 for the root.
//
// The tree is a binary heap. A root at another place than 0 is added in front of the order, and
// keeps its place too; nobody sends to it there.
func (t *tree) parent() int {
	switch {
	case t.place == t.source:
		return -1
	case t.source == 0:
		return (t.place - 1) / 2
	case t.place < 2:
		return t.source
	default:
		return t.place/2 - 1
	}
}

// children returns the places that this member sends to. broadcaster says that it is the source of
// the whole broadcast: only that one sends to the places 0 and 1, as in TensorFlow.
func (t *tree) children(broadcaster bool) []int {
	var to []int
	next := 2*t.place + 1
	if t.source != 0 {
		next++
		if broadcaster {
			if len(t.order) > 1 {
				to = append(to, 0)
			}
			if len(t.order) > 2 && t.source != 1 {
				to = append(to, 1)
			}
		}
	}
	for i := next; i < next+2; i++ {
		if i < len(t.order) && i != t.source {
			to = append(to, i)
		}
	}
	return to
}

// checkOffsets refuses offsets of subdivisions that no ring of the group has.
func checkOffsets(offsets []int64, m *members) error {
	if len(offsets) > m.size()*defaultSubdivisions {
		return status.Errorf(status.InvalidArgument, "subdiv_offsets has %d entries for a group of %d devices; leave it empty", len(offsets), m.size())
	}
	for _, o := range offsets {
		if o <= -int64(m.size()) || o >= int64(m.size()) {
			return status.Errorf(status.InvalidArgument, "subdiv_offsets has %d, but the group has %d devices; leave it empty", o, m.size())
		}
	}
	return nil
}
