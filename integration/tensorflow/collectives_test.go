//go:build interop

package tensorflow_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// startMembers starts the members of a group in collectives.py, and returns them when they listen.
func startMembers(t *testing.T, mode string, c tasks, n, leader int) []*process {
	t.Helper()
	addresses, err := json.Marshal(c["worker"])
	if err != nil {
		t.Fatal(err)
	}
	members := make([]*process, n)
	for i := range members {
		members[i] = startPython(t, "collectives.py", mode, string(addresses), fmt.Sprint(i), fmt.Sprintf("/job:worker/replica:0/task:%d", leader))
	}
	for _, p := range members {
		if line := p.next(t); line != "ready" {
			t.Fatalf("collectives.py printed %q, want ready", line)
		}
	}
	return members
}

// next returns the next line that a process prints.
func (p *process) next(t *testing.T) string {
	t.Helper()
	lines := make(chan string, 1)
	go func() {
		line, _ := p.stdout.ReadString('\n')
		lines <- strings.TrimSpace(line)
	}()
	return await(t, lines, "a line of Python")
}

// startMember starts a Tryst server as task 2 of the job worker.
func startMember(t *testing.T, c tasks, leader int) *server.Server {
	t.Helper()
	cfg := server.Config{}
	spec, err := cluster.SpecFromLists(c)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cluster, cfg.Task, cfg.Listen = spec.Lists(), cluster.Task{Job: "worker", Index: 2}.String(), c["worker"][2]
	cfg.CollectiveLeader = cluster.Task{Job: "worker", Index: leader}.String()
	kernels := ops.New()
	if err := kernels.AddCollectives(); err != nil {
		t.Fatal(err)
	}
	s, err := server.Start(t.Context(), cfg, server.Options{Kernels: kernels, Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s
}

// TestCollectivesOfASession: two TensorFlow workers and a Tryst worker reduce, gather and broadcast
// in one session, and all get what three TensorFlow workers get. TensorFlow leads, then Tryst.
func TestCollectivesOfASession(t *testing.T) {
	run := func(t *testing.T, alone bool, leader int) map[string]any {
		c := newCluster(t, map[string]int{"worker": 3})
		n := 3
		if !alone {
			startMember(t, c, leader)
			n = 2
		}
		chief := startMembers(t, "session", c, n, leader)[0]
		if _, err := fmt.Fprintln(chief.stdin, "run"); err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if line := chief.next(t); json.Unmarshal([]byte(line), &got) != nil {
			t.Fatalf("collectives.py printed %q, want results", line)
		}
		return got
	}
	want := run(t, true, 0)
	for leader, name := range map[int]string{0: "TensorFlow leads", 2: "Tryst leads"} {
		t.Run(name, func(t *testing.T) {
			for what, got := range run(t, false, leader) {
				if !reflect.DeepEqual(got, want[what]) {
					t.Errorf("%s: got %v, want %v", what, got, want[what])
				}
			}
		})
	}
}

// TestCollectivesOfTheEagerRuntime: a Go program is in one group with two processes of TensorFlow 2.
func TestCollectivesOfTheEagerRuntime(t *testing.T) {
	values := func(rank int) []float32 {
		v := make([]float32, 1000)
		for i := range v {
			v[i] = float32(i%7*(rank+1) + rank)
		}
		return v
	}
	for leader, name := range map[int]string{0: "TensorFlow leads", 2: "Tryst leads"} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, map[string]int{"worker": 3})
			s := startMember(t, c, leader)
			members := startMembers(t, "eager", c, 2, leader)
			for _, m := range members {
				if _, err := fmt.Fprintln(m.stdin, "run"); err != nil {
					t.Fatal(err)
				}
			}
			g, err := s.NewGroup(t.Context(), 7, 3)
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			in, err := tensor.FromSlice(tensor.Vector(1000), values(2))
			if err != nil {
				t.Fatal(err)
			}
			mean, err := g.AllReduce(t.Context(), in, collective.Mean)
			if err != nil {
				t.Fatal(err)
			}
			defer mean.Release()
			all, err := g.Gather(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			defer all.Release()
			sent, err := tensor.FromSlice(tensor.Vector(1000), make([]float32, 1000))
			if err != nil {
				t.Fatal(err)
			}
			if err := g.Broadcast(t.Context(), 1, sent); err != nil {
				t.Fatal(err)
			}
			want := [3][]float32{make([]float32, 1000), nil, values(1)}
			for rank := range 3 {
				for i, v := range values(rank) {
					want[0][i] += v
				}
				want[1] = append(want[1], values(rank)...)
			}
			for i := range want[0] {
				want[0][i] /= 3
			}
			for i, got := range []*tensor.Tensor{mean, all, sent} {
				if v, err := tensor.Values[float32](got); err != nil || !reflect.DeepEqual(v, want[i]) {
					t.Errorf("operation %d: Tryst got %v, %v", i, v[:10], err)
				}
			}
			for task, m := range members {
				var got [3][]float32
				if line := m.next(t); json.Unmarshal([]byte(line), &got) != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("TensorFlow's task %d got %.200s", task, line)
				}
			}
		})
	}
}
