package collective

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// shapes are the devices of each task in the tests of operations.
var shapes = [][]int{{1}, {1, 1}, {1, 1, 1}, {1, 1, 1, 1}, {2, 2}, {3}, {2, 1, 3}}

func TestAllReduceGivesAllMembersTheSame(t *testing.T) {
	for _, shape := range shapes {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v plain=%v", shape, plain), func(t *testing.T) {
				n := newNetwork(t, shape...)
				n.process(0).plain = plain
				groups := n.members(t, 7)
				for _, elements := range []int{0, 1, 15, 16, 100, 5000} {
					sum := make([]float32, elements)
					for rank := range groups {
						v, _ := tensor.Values[float32](ramp(t, rank, elements))
						for i := range v {
							sum[i] += v[i]
						}
					}
					mean := make([]float32, elements)
					for i := range sum {
						mean[i] = sum[i] / float32(len(groups))
					}
					want := map[Merge][]float32{Add: sum, Mean: mean}
					if len(groups) == 1 {
						want[Mean] = sum
					}
					for merge, want := range want {
						errs := each(len(groups), func(i int) error {
							in := ramp(t, i, elements)
							out, err := groups[i].AllReduce(t.Context(), in, merge)
							if err != nil {
								return err
							}
							wantElements(t, fmt.Sprintf("%v of %d elements at rank %d", merge, elements, i), out, want...)
							out.Release()
							if !in.Buffer().Unique() {
								return errors.New("the input has references after the operation")
							}
							return nil
						})
						if err := errors.Join(errs...); err != nil {
							t.Fatal(err)
						}
					}
				}
				if calls := n.bufs.Load(); len(shape) > 1 && (calls > 0) != plain {
					t.Errorf("%d calls of RecvBuf", calls)
				}
			})
		}
	}
}

func TestAllReduceInSubdivisions(t *testing.T) {
	n := newNetwork(t, 3, 3)
	groups := n.members(t, 7)
	sum := make([]float32, 1000)
	for rank := range groups {
		v, _ := tensor.Values[float32](ramp(t, rank, 1000))
		for i := range v {
			sum[i] += v[i]
		}
	}
	errs := each(len(groups), func(i int) error {
		g := groups[i]
		out := (*tensor.Tensor)(nil)
		err := g.run(t.Context(), "AllReduce", func(x *exchange) (err error) {
			out, err = x.allReduce(ramp(t, i, 1000), Add, false, allReduceRings(g.m, i, []int{0, 1, -2}))
			return err
		})
		if err == nil {
			wantElements(t, "sum", out, sum...)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestGatherJoinsInTheOrderOfRanks(t *testing.T) {
	for _, shape := range shapes {
		n := newNetwork(t, shape...)
		groups := n.members(t, 7)
		var want []float32
		for rank := range groups {
			v, _ := tensor.Values[float32](ramp(t, rank, 5))
			want = append(want, v...)
		}
		errs := each(len(groups), func(i int) error {
			out, err := groups[i].Gather(t.Context(), ramp(t, i, 5))
			if err == nil {
				wantElements(t, fmt.Sprintf("gather of %v at rank %d", shape, i), out, want...)
			}
			return err
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBroadcastFromEachRank(t *testing.T) {
	for _, shape := range shapes {
		n := newNetwork(t, shape...)
		groups := n.members(t, 7)
		for root := range groups {
			want, _ := tensor.Values[float32](ramp(t, root, 50))
			errs := each(len(groups), func(i int) error {
				in := ramp(t, i, 50)
				if err := groups[i].Broadcast(t.Context(), root, in); err != nil {
					return err
				}
				wantElements(t, fmt.Sprintf("broadcast of %d in %v at rank %d", root, shape, i), in, want...)
				return groups[i].Barrier(t.Context())
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestMistakesOfOneMember: one member does something else than the others.
func TestMistakesOfOneMember(t *testing.T) {
	for _, c := range []struct {
		name   string
		wrong  *tensor.Tensor
		code   status.Code
		text   string
		plain  bool
		cancel bool
	}{
		{name: "size", wrong: ramp(t, 2, 5), code: status.InvalidArgument, text: "float[5]"},
		{name: "size, by RecvBuf", wrong: ramp(t, 2, 5), code: status.Internal, text: "Tensor Size Mismatch", plain: true},
		{name: "type", wrong: slice(t, make([]int32, 100)...), code: status.InvalidArgument, text: "int32"},
		{name: "cancel", wrong: ramp(t, 2, 100), code: status.Cancelled, text: "canceled", cancel: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, 1, 1, 1)
			for _, p := range n.tasks {
				p.plain = c.plain
			}
			groups := n.members(t, 7)
			errs := each(3, func(i int) error {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				in := ramp(t, i, 100)
				if i == 2 {
					in = c.wrong
					if c.cancel {
						cancel()
					}
				}
				_, err := groups[i].AllReduce(ctx, in, Add)
				return err
			})
			found := false
			for i, err := range errs {
				if err == nil {
					t.Fatalf("rank %d got a result: %v", i, errs)
				}
				found = found || status.CodeOf(err) == c.code && strings.Contains(err.Error(), c.text)
				if strings.Count(err.Error(), abortPrefix) > 1 {
					t.Errorf("rank %d has the prefix twice: %v", i, err)
				}
				if _, again := groups[i].AllReduce(t.Context(), ramp(t, i, 100), Add); again == nil {
					t.Errorf("rank %d can use the group after an error", i)
				}
			}
			if !found {
				t.Errorf("no member has %v with %q: %v", c.code, c.text, errs)
			}
		})
	}
}

func TestMistakesOfADeviceInTheSameProcess(t *testing.T) {
	groups := newNetwork(t, 2).members(t, 7)
	errs := each(2, func(i int) error {
		_, err := groups[i].AllReduce(t.Context(), ramp(t, i, 100+100*i), Add)
		return err
	})
	if err := errors.Join(errs...); errs[0] == nil || errs[1] == nil || !strings.Contains(err.Error(), "Tensor Size Mismatch") {
		t.Error(errs)
	}
}

func TestAMemberThatDiesEndsTheOperationAtAllOthers(t *testing.T) {
	n := newNetwork(t, 1, 1, 1, 1)
	groups := n.members(t, 7)
	n.kill(2)
	errs := each(4, func(i int) error {
		if i == 2 {
			return nil
		}
		_, err := groups[i].AllReduce(t.Context(), ramp(t, i, 100), Add)
		return err
	})
	for i, err := range errs {
		if i != 2 && status.CodeOf(err) != status.Unavailable {
			t.Errorf("rank %d: %v, want Unavailable", i, err)
		}
	}
	if status.IsDerived(errs[3]) || !status.IsDerived(errs[0]) {
		t.Errorf("the error of the one that has noticed is the root, the others are derived: %v", errs)
	}
}

func TestAGroupThatIsClosedEndsTheOthers(t *testing.T) {
	n := newNetwork(t, 1, 1)
	groups := n.members(t, 7)
	groups[1].Close()
	_, err := groups[0].AllReduce(t.Context(), ramp(t, 0, 100), Add)
	if status.CodeOf(err) != status.Aborted || !strings.Contains(err.Error(), "task:1 has left the group") {
		t.Error(err)
	}
	groups = n.members(t, 8)
	errs := each(2, func(i int) error { return groups[i].Barrier(t.Context()) })
	if err := errors.Join(errs...); err != nil {
		t.Errorf("another group: %v", err)
	}
}

// TestCloseEndsTheOwnOperation: the one that gives, and the one that receives, from a member that has
// not come.
func TestCloseEndsTheOwnOperation(t *testing.T) {
	for _, c := range []struct {
		name string
		root int
	}{{"gives", 0}, {"receives", 1}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				groups := newNetwork(t, 1, 1).members(t, 7)
				done := make(chan error, 1)
				go func() { done <- groups[0].Broadcast(t.Context(), c.root, ramp(t, 0, 100)) }()
				synctest.Wait()
				groups[0].Close()
				if err := <-done; status.CodeOf(err) != status.Aborted {
					t.Errorf("ended with %v, want Aborted", err)
				}
			})
		})
	}
}

// TestAnotherDeviceOfTheProcessLeaves: what this one provides is withdrawn with it.
func TestAnotherDeviceOfTheProcessLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups := newNetwork(t, 2, 1).members(t, 7)
		done := make(chan error, 1)
		go func() { done <- groups[0].Broadcast(t.Context(), 0, ramp(t, 0, 100)) }()
		synctest.Wait()
		groups[1].Close()
		if err := <-done; status.CodeOf(err) != status.Aborted {
			t.Errorf("ended with %v, want Aborted", err)
		}
	})
}

// TestAnErrorReachesTheMemberThatOnlyGives, in a group of Tryst alone, and where a member of TensorFlow
// has gone.
func TestAnErrorReachesTheMemberThatOnlyGives(t *testing.T) {
	for _, c := range []struct {
		name  string
		plain bool
		fault func(*testing.T, *network, []*Group)
		code  status.Code
		text  string
		after time.Duration // at most
	}{
		{"close", false, func(_ *testing.T, _ *network, g []*Group) { g[1].Close() }, status.Aborted, "task:1 has left the group", DefaultPeerTimeout / 2},
		{"gone", false, func(_ *testing.T, n *network, _ []*Group) { n.kill(1) }, status.Unavailable, "task:1 is not reached", DefaultPeerTimeout},
		{"silent", false, func(_ *testing.T, n *network, _ []*Group) { n.silence(1) }, status.Unavailable, "task:1: its process did not answer a call for 10s", DefaultPeerTimeout},
		{"restart", false, func(t *testing.T, n *network, _ []*Group) { n.start(t, 1, 1, 5) }, status.FailedPrecondition, "task:1", DefaultPeerTimeout / 2},
		{"TensorFlow gone", true, func(_ *testing.T, n *network, _ []*Group) { n.kill(1) }, status.Unavailable, "task:1 is not reached", DefaultPeerTimeout},
		{"TensorFlow silent", true, func(_ *testing.T, n *network, _ []*Group) { n.silence(1) }, status.Unavailable, "task:1: its process did not answer a call for 10s", DefaultPeerTimeout},
		{"TensorFlow restart", true, func(t *testing.T, n *network, _ []*Group) { n.start(t, 1, 1, 5) }, status.FailedPrecondition, "task:1", DefaultPeerTimeout / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, 1, 1)
				n.process(1).plain = c.plain
				groups := n.members(t, 7)
				done := make(chan error, 1)
				go func() { done <- groups[0].Broadcast(t.Context(), 0, ramp(t, 0, 100)) }()
				time.Sleep(time.Hour) // the member computes
				select {
				case err := <-done:
					t.Fatalf("a member that computes was given up: %v", err)
				default:
				}
				begin := time.Now()
				c.fault(t, n, groups)
				err := <-done
				if status.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) || time.Since(begin) > c.after {
					t.Errorf("after %v: %v; want %v with %q within %v", time.Since(begin), err, c.code, c.text, c.after)
				}
			})
		})
	}
}

// TestALeaderThatIsSilentEndsOperations: they wait in a call of it.
func TestALeaderThatIsSilentEndsOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1, 1)
		n.silence(0)
		_, err := n.process(1).run(t, 3, of(2, 7, 1), reduces(t, ramp(t, 0, 10), reductionOf(t, "Max", "Id")))
		if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "the leader of the collectives, /job:worker/replica:0/task:0: its process did not answer") {
			t.Error(err)
		}
	})
}

// TestCloseOfAnOldGroupLeavesTheNewOne: a program may close a group late, for instance by defer, when
// it has entered another one with the same key. Two devices of a process are members of one group.
func TestCloseOfAnOldGroupLeavesTheNewOne(t *testing.T) {
	n := newNetwork(t, 2, 1)
	old := n.members(t, 7)
	groups := n.members(t, 7)
	for _, g := range old {
		g.Close()
	}
	if err := errors.Join(each(3, func(i int) error { return groups[i].Barrier(t.Context()) })...); err != nil {
		t.Fatal(err)
	}
	if err := old[0].Barrier(t.Context()); status.CodeOf(err) != status.Aborted {
		t.Errorf("the old group: %v", err)
	}
	groups[1].Close()
	errs := each(3, func(i int) error { return groups[i].Barrier(t.Context()) })
	for i, err := range errs {
		if status.CodeOf(err) != status.Aborted {
			t.Errorf("rank %d after rank 1 has left: %v", i, err)
		}
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	n := newNetwork(t, 1, 1)
	groups := n.members(t, 7)
	done := make(chan error, 2)
	go func() { done <- groups[0].Barrier(t.Context()) }()
	go func() {
		_, err := n.process(0).NewGroup(t.Context(), GroupOptions{Key: 8, Size: 2})
		done <- err
	}()
	n.process(0).Close()
	for range 2 {
		if err := <-done; status.CodeOf(err) != status.Aborted {
			t.Errorf("ended with %v, want Aborted", err)
		}
	}
	if _, err := n.process(0).NewGroup(t.Context(), GroupOptions{Key: 9, Size: 1}); status.CodeOf(err) != status.Aborted {
		t.Errorf("NewGroup after Close: %v", err)
	}
}

func TestBadArgumentsOfAGroup(t *testing.T) {
	n := newNetwork(t, 1)
	c := n.process(0)
	for _, o := range []GroupOptions{{Size: 1}, {Key: 1}, {Key: 1, Size: -1}, {Key: 1, Size: maxGroupSize + 1}} {
		if _, err := c.NewGroup(t.Context(), o); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := c.NewGroup(t.Context(), GroupOptions{Key: 1, Size: 1, Device: device(0, 5)}); status.CodeOf(err) != status.NotFound {
		t.Errorf("a device that is not there: %v", err)
	}
	g := n.members(t, 7)[0]
	text, err := tensor.FromStrings(tensor.Vector(1), []string{"x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Broadcast(t.Context(), 1, text); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
	if _, err := g.AllReduce(t.Context(), text, Merge(7)); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
	if _, err := g.AllReduce(t.Context(), text, Add); status.CodeOf(err) != status.InvalidArgument {
		t.Error(err)
	}
}

// TestStepsOfMastersDoNotEndGroups: any master can run, abort and clean up a step with the id that the
// groups have.
func TestStepsOfMastersDoNotEndGroups(t *testing.T) {
	n := newNetwork(t, 1, 1)
	c := n.process(0)
	use := func(groups []*Group) {
		t.Helper()
		if err := errors.Join(each(2, func(i int) error { return groups[i].Barrier(t.Context()) })...); err != nil {
			t.Fatal(err)
		}
	}
	groups := n.members(t, 7)
	c.EndStep(groupStep)
	use(groups)
	c.AbortStep(groupStep, status.New(status.Internal, "a kernel failed"))
	use(groups)
	if _, err := c.run(t, groupStep, of(-1, 7, 1), reduces(t, ramp(t, 0, 10), reductionOf(t, "Max", "Id"))); status.CodeOf(err) != status.InvalidArgument || !strings.Contains(err.Error(), "step 0") {
		t.Errorf("a kernel in step 0: %v", err)
	}
	use(groups)
	use(n.members(t, 8))
}

// TestAGroupWithAMemberOfTensorFlow: that one runs kernels in the step of the eager runtime.
func TestAGroupWithAMemberOfTensorFlow(t *testing.T) {
	for leader := range 2 {
		n := newNetwork(t, 1, 1, 1)
		other := 1 - leader // the member of TensorFlow
		if leader == 1 {
			for _, p := range n.tasks {
				p.opts.Leader = device(1, 0).Task
			}
		}
		n.process(other).plain = true
		errs := each(3, func(i int) error {
			in := ramp(t, i, 100)
			if i == other {
				out, err := n.process(other).run(t, groupStep, of(3, 7, 1), reduces(t, in, reductionOf(t, "Max", "Id")))
				if err != nil {
					return err
				}
				defer out.Release()
				_, err = n.process(other).run(t, groupStep, of(3, 7, 2), sends(t, in))
				return err
			}
			g, err := n.process(i).NewGroup(t.Context(), GroupOptions{Key: 7, Size: 3})
			if err != nil {
				return err
			}
			top, err := g.AllReduce(t.Context(), in, Max)
			if err != nil {
				return err
			}
			if !tensor.Equal(top, ramp(t, 2, 100)) {
				t.Errorf("rank %d: %v is not the largest", i, top)
			}
			if err := g.Broadcast(t.Context(), other, in); err != nil {
				return err
			}
			if !tensor.Equal(in, ramp(t, other, 100)) {
				t.Errorf("rank %d: %v is not what was broadcast", i, in)
			}
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Errorf("leader %d: %v", leader, err)
		}
	}
}
