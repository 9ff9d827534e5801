package collective

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// device returns a CPU of a task of the job worker.
func device(task, index int) cluster.Device {
	return cluster.Device{Task: cluster.Task{Job: "worker", Index: task}, Type: "CPU", Index: index}
}

// group returns the members of a group with so many devices in each task.
func group(perTask ...int) *members {
	var list []member
	for task, n := range perTask {
		for i := range n {
			d := device(task, i)
			list = append(list, member{d, &tfpb.DeviceAttributes{Name: d.String(), DeviceType: "CPU", Incarnation: uint64(100*task + i + 1)}})
		}
	}
	slices.Reverse(list) // newMembers ranks them
	return newMembers(1, "CPU", list)
}

func TestRanksFollowTheNumbersOfTheNames(t *testing.T) {
	m := group(1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	for i := range m.size() - 1 {
		a, b := m.list[i].device, m.list[i+1].device
		if a.Task.Index > b.Task.Index || a.Task == b.Task && a.Index > b.Index {
			t.Errorf("rank %d is %v, and rank %d is %v", i, a, i+1, b)
		}
	}
	if r := m.rank(device(10, 0)); r != 11 {
		t.Errorf("task 10 has rank %d, want 11: its number counts, not its text", r)
	}
	if m.taskOf(3) != 2 || m.taskOf(4) != 3 {
		t.Error("taskOf does not count the second device of task 2")
	}
}

func TestChunksAreThoseOfTensorFlow(t *testing.T) {
	for _, c := range []struct {
		size     int
		elements int64
		chunks   int
		want     int64
	}{
		{4, 1, 2, 16},     // one element in a chunk of 64 bytes
		{4, 32, 2, 32},    // 64 bytes each: one alignment is added
		{4, 33, 2, 32},    // 68 bytes are rounded up to 128
		{8, 1000, 3, 336}, // 334 elements are 2672 bytes, rounded up to 2688
		{2, 1 << 20, 4, 1<<18 + 32},
	} {
		if got := alignedChunk(c.size, c.elements, c.chunks); got != c.want {
			t.Errorf("%d elements of %d bytes in %d chunks: %d elements each, want %d", c.elements, c.size, c.chunks, got, c.want)
		}
	}
}

func TestChunksCoverTheTensorOnce(t *testing.T) {
	for _, elements := range []int64{0, 1, 15, 16, 17, 100, 1000, 12345} {
		for chunks := 1; chunks < 9; chunks++ {
			next := int64(0)
			for i := range chunks {
				first, n := chunkRange(i, alignedChunk(4, elements, chunks), elements)
				if n > 0 && first != next {
					t.Fatalf("%d elements, chunk %d of %d begins at %d, want %d", elements, i, chunks, first, next)
				}
				next += n
			}
			if next != elements {
				t.Errorf("%d elements: %d chunks have %d", elements, chunks, next)
			}
		}
	}
}

func TestRingsOfSubdivisions(t *testing.T) {
	m := group(3, 3)
	for offset, want := range map[int]string{0: "[0 1 2 3 4 5]", 1: "[1 2 0 4 5 3]", -1: "[1 0 2 4 3 5]", -2: "[0 2 1 3 5 4]"} {
		for rank := range m.size() {
			r := newRing(m, rank, offset)
			if got := fmt.Sprint(r.order); got != want {
				t.Errorf("offset %d: order %s, want %s", offset, got, want)
			}
			if r.order[r.place] != rank {
				t.Errorf("offset %d: rank %d has place %d in %v", offset, rank, r.place, r.order)
			}
		}
	}
	r := newRing(m, 0, 0)
	if r.neighbour(1) != 1 || r.neighbour(-1) != 5 {
		t.Errorf("the neighbours of rank 0 are %d and %d", r.neighbour(-1), r.neighbour(1))
	}
}

func TestSubdivisionsGrowWithTheTensor(t *testing.T) {
	m := group(4, 4)
	for _, c := range []struct {
		bytes int64
		limit int
		want  string
	}{
		{1 << 20, 0, "[0]"},
		{1 << 30, oneSubdivision, "[0]"},
		{1 << 30, 0, "[0 -1 2 -3 4 -5 6 -7]"},
		{1 << 30, 1, "[0 -1 2 -3]"},
		{64 << 20, 0, "[0 -2]"},
	} {
		if got := fmt.Sprint(subdivisions(m, c.bytes, c.limit)); got != c.want {
			t.Errorf("%d bytes, limit %d: %s, want %s", c.bytes, c.limit, got, c.want)
		}
	}
}

// TestTreesReachEachMemberOnce sends along all trees, for each source.
func TestTreesReachEachMemberOnce(t *testing.T) {
	for _, shape := range [][]int{{1}, {2}, {5}, {8}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1}, {2, 2}, {3, 1, 4}, {1, 2, 3, 4, 5}} {
		m := group(shape...)
		for source := range m.size() {
			sent := map[string]bool{}
			for rank := range m.size() {
				for _, tr := range newTrees(m, rank, source) {
					for _, to := range tr.children(rank == source) {
						key := treeKey("e", tr.number, tr.place, to)
						if sent[key] {
							t.Fatalf("%v, source %d: %s is sent twice", shape, source, key)
						}
						sent[key] = true
					}
				}
			}
			for rank := range m.size() {
				received := 0
				for _, tr := range newTrees(m, rank, source) {
					if tr.order[tr.place] != rank {
						t.Fatalf("%v: rank %d has place %d in tree %v", shape, rank, tr.place, tr.order)
					}
					p := tr.parent()
					if p < 0 {
						continue
					}
					key := treeKey("e", tr.number, p, tr.place)
					if !sent[key] {
						t.Errorf("%v, source %d: rank %d waits for %s, which nobody sends", shape, source, rank, key)
					}
					delete(sent, key)
					received++
				}
				want := 1
				if rank == source {
					want = 0
				}
				if received != want {
					t.Errorf("%v, source %d: rank %d receives %d times, want %d", shape, source, rank, received, want)
				}
			}
			if len(sent) != 0 {
				t.Errorf("%v, source %d: nobody receives %v", shape, source, sent)
			}
		}
	}
}
