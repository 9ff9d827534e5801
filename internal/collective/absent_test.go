package collective

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// TestAnAbsentMemberOfAGroupIsNamed: at the leader, at another member, and whatever ends the wait. A leader
// that does not say, as TensorFlow's, is not waited for.
func TestAnAbsentMemberOfAGroupIsNamed(t *testing.T) {
	const absent = "group 7 is not complete: 2 of 3 members have joined, not /job:worker/replica:0/task:2: "
	for name, c := range map[string]struct {
		plain  bool // the leader is TensorFlow's
		silent bool // the leader stops before the end
		size   int
		cancel bool
		leader string
		member string
	}{
		"a deadline":    {size: 3, leader: absent + "context deadline exceeded", member: absent + "the leader of the collectives, /job:worker/replica:0/task:0: context deadline exceeded"},
		"a cancel":      {size: 3, cancel: true, leader: absent + "context canceled", member: absent + "the leader of the collectives"},
		"not the whole": {size: 4, leader: "2 of 4 members have joined: /job:worker/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:1/device:CPU:0: ", member: "2 of 4 members have joined: "},
		"TensorFlow's":  {size: 3, plain: true, leader: absent, member: "the leader of the collectives, /job:worker/replica:0/task:0: context deadline exceeded"},
		"silent":        {size: 3, silent: true, leader: absent, member: "the leader of the collectives, /job:worker/replica:0/task:0: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t, 1, 1, 1)
				n.process(0).plain = c.plain
				ctx, stop := context.WithTimeout(t.Context(), time.Minute)
				defer stop()
				code := status.DeadlineExceeded
				if c.cancel {
					code = status.Cancelled
					time.AfterFunc(time.Minute/2, stop)
				}
				if c.silent {
					time.AfterFunc(time.Minute/2, func() { n.silence(0) })
				}
				began := time.Now()
				errs := each(2, func(i int) error {
					_, err := n.process(i).NewGroup(ctx, GroupOptions{Key: 7, Size: c.size})
					return err
				})
				for i, want := range []string{c.leader, c.member} {
					if status.CodeOf(errs[i]) != code || !strings.Contains(errs[i].Error(), want) {
						t.Errorf("member %d: %v; want %v with %q", i, errs[i], code, want)
					}
				}
				if took := time.Since(began); took > time.Minute+askTimeout {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestADeadlineThatThePeerReachesFirstIsTheCallers: its clock may be ahead of this side's timer.
func TestADeadlineThatThePeerReachesFirstIsTheCallers(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	failed, fail := context.WithCancelCause(ctx)
	fail(status.New(status.Aborted, "a member has left"))
	late := status.New(status.DeadlineExceeded, "stream terminated by RST_STREAM")
	for what, c := range map[string]struct {
		ctx  context.Context
		err  error
		want bool
	}{
		"the peer's deadline":      {ctx, late, true},
		"without a deadline":       {t.Context(), late, false},
		"another error":            {ctx, status.New(status.Unavailable, "gone"), false},
		"an operation that failed": {failed, late, false},
	} {
		if got := byCaller(c.ctx, c.err); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestAMemberThatDoesNotCallIsNamed: the calls of the others end with their contexts.
func TestAMemberThatDoesNotCallIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1, 1, 1)
		groups := n.members(t, 7)
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		errs := each(2, func(i int) error {
			_, err := groups[i].Gather(ctx, ramp(t, i, 10))
			return err
		})
		named := 0
		for i, err := range errs {
			if status.CodeOf(err) != status.DeadlineExceeded || !strings.Contains(err.Error(), "(while waiting for rank ") {
				t.Errorf("member %d: %v", i, err)
			}
			if strings.Contains(err.Error(), "(while waiting for rank 2, /job:worker/replica:0/task:2)") {
				named++
			}
		}
		if named == 0 {
			t.Errorf("nobody names the absent member: %v", errs)
		}
	})
}

func TestDescribeAbsent(t *testing.T) {
	task := func(job string, i int) cluster.Task { return cluster.Task{Job: job, Index: i} }
	tasks := []cluster.Task{task("worker", 2), task("worker", 0), task("ps", 0), task("worker", 1)}
	for _, c := range []struct {
		joined []cluster.Device
		size   int
		want   string
	}{
		{nil, 2, "none of 2 members has joined"},
		{[]cluster.Device{device(1, 0)}, 3, "1 of 3 members have joined, not /job:worker/replica:0/task:0, /job:worker/replica:0/task:2"},
		{[]cluster.Device{device(1, 0)}, 2, "1 of 2 members have joined: /job:worker/replica:0/task:1/device:CPU:0"},
		{[]cluster.Device{device(0, 0), device(0, 1), device(0, 2)}, 5, "3 of 5 members have joined, not /job:worker/replica:0/task:1, /job:worker/replica:0/task:2"},
	} {
		if got := describeAbsent(c.joined, c.size, tasks); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	var many []cluster.Task
	for i := range 12 {
		many = append(many, task("worker", i))
	}
	if got := list(many); !strings.HasSuffix(got, "task:9, and 2 more") {
		t.Error(got)
	}
}
