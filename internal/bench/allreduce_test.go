package bench

import (
	"net"
	"sync"
	"testing"
	"time"
)

// TestAllReduce runs the members in one process.
func TestAllReduce(t *testing.T) {
	for _, provider := range []string{"", "tcp"} {
		var addresses []string
		for range 4 {
			l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addresses = append(addresses, l.Addr().String())
			l.Close()
		}
		times := allMembers(t, addresses, AllReduce{Provider: provider, Bytes: 1 << 16, Rounds: 3})
		for rank, took := range times {
			if len(took) != 3 {
				t.Errorf("over %q rank %d measured %v", provider, rank, took)
			}
		}
	}
}

// allMembers runs an all-reduce with all its members.
func allMembers(t testing.TB, addresses []string, a AllReduce) [][]time.Duration {
	times := make([][]time.Duration, len(addresses))
	var members sync.WaitGroup
	for rank := range addresses {
		members.Go(func() {
			m := a
			m.Addresses, m.Rank = addresses, rank
			var err error
			if times[rank], err = m.Run(t.Context()); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	members.Wait()
	return times
}
