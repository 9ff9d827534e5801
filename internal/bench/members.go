package bench

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

// memberSetup makes a second process one of several that know each other.
type memberSetup struct {
	Rank    int `json:"rank"`
	Members int `json:"members"`
	// Addresses are those at which all members of Tryst listen, by rank.
	Addresses []string `json:"addresses,omitempty"`
	// Store is the path of a file by which the members of another program find each other. There
	// is no file yet.
	Store string `json:"store,omitempty"`
}

// config returns the settings of the server of a member: the members are the tasks of a cluster.
func (m memberSetup) config(v verbsSetup) (server.Config, error) {
	if len(m.Addresses) != m.Members || m.Rank < 0 || m.Rank >= m.Members {
		return server.Config{}, status.Errorf(status.InvalidArgument, "rank %d of %d members with %d addresses", m.Rank, m.Members, len(m.Addresses))
	}
	c := server.Config{Listen: m.Addresses[m.Rank], Cluster: map[string][]string{"worker": m.Addresses}, Task: m.task(m.Rank)}
	v.apply(&c)
	return c, nil
}

// task is the name of a member.
func (m memberSetup) task(rank int) string { return cluster.Task{Job: "worker", Index: rank}.String() }

// members is the first process's handle of all members of one side.
type members []*child

// startMembers starts n of them by a command, each with a setup of its own. The context that it
// returns ends when one of them does.
func startMembers(ctx context.Context, command func(context.Context) *exec.Cmd, n int, of func(rank int) setup) (_ members, _ context.Context, err error) {
	var all members
	for rank := range n {
		var c *child
		if c, ctx, err = startChild(ctx, command, of(rank)); err != nil {
			all.close()
			return nil, nil, status.From(err).WithPrefix(rankText(rank))
		}
		all = append(all, c)
	}
	return all, ctx, nil
}

func rankText(rank int) string { return "rank " + strconv.Itoa(rank) }

// startTasks starts n members of Tryst, again with other ports if one was taken meanwhile.
func (s *suite) startTasks(ctx context.Context, n int, of func(memberSetup) setup) (all members, within context.Context, err error) {
	for range portTries {
		var addresses []string
		if addresses, err = freeAddresses(ctx, n); err != nil {
			return nil, nil, err
		}
		all, within, err = startMembers(ctx, s.Command, n, func(rank int) setup {
			return of(memberSetup{Rank: rank, Members: n, Addresses: addresses})
		})
		if err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
			break
		}
	}
	return all, within, err
}

// freeAddresses returns n different addresses, which may be in use when somebody listens there.
func freeAddresses(ctx context.Context, n int) (addresses []string, err error) {
	var lc net.ListenConfig
	for range n {
		l, e := lc.Listen(ctx, "tcp", loopback)
		if e != nil {
			return nil, status.Errorf(status.Unavailable, "a port for a member: %w", e)
		}
		defer func() { err = errors.Join(err, l.Close()) }() // at the end, so that all differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

// close ends all at once: a member waits for the others.
func (m members) close() {
	var closed sync.WaitGroup
	for _, c := range m {
		closed.Go(c.close)
	}
	closed.Wait()
}
