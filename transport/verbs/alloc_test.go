package verbstransport_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// TestAllocationsOfASmallReceive bounds the allocations of both sides together, from Send
// to the value: the tensor, and a few records of each side. The number of messages or of
// waiting receives does not add to it.
func TestAllocationsOfASmallReceive(t *testing.T) {
	t.Run("InMemory", func(t *testing.T) { allocationsOfASmallReceive(t, clusterOptions{require: true}) })
	t.Run("Roce", func(t *testing.T) { allocationsOfASmallReceive(t, plainRoce()) })
}

func allocationsOfASmallReceive(t *testing.T, o clusterOptions) {
	const most = 23
	r := newBenchRig(t, 8, o)
	ends := make(chan error, 1)
	done := func(v rendezvous.Value, _ rendezvous.Args, err error) {
		if err == nil {
			v.Tensor.Release()
		}
		ends <- err
	}
	async := func() error {
		if err := r.out.Send(r.key, rendezvous.Args{}, r.x, false); err != nil {
			return err
		}
		r.in.RecvAsync(t.Context(), r.key, rendezvous.Args{}, done)
		return <-ends
	}
	look := time.NewTimer(pollInterval)
	defer look.Stop()
	early := func() error { // requested before it is sent
		r.in.RecvAsync(t.Context(), r.key, rendezvous.Args{}, done)
		// AllocsPerRun leaves one processor. While a goroutine yields in a loop there, no
		// goroutine polls the sockets, so this one sleeps between checks.
		for r.kept.Stats().Waiting == 0 {
			look.Reset(pollInterval)
			<-look.C
		}
		if err := r.out.Send(r.key, rendezvous.Args{}, r.x, false); err != nil {
			return err
		}
		return <-ends
	}
	for _, c := range []struct {
		what string
		most float64
		once func() error
	}{
		{"Recv", most, r.once},
		{"RecvAsync", most + 7, async},           // watching a context that can end (context.AfterFunc)
		{"RecvAsync and Send", most + 21, early}, // and watching the request in the table of the step
	} {
		var failed error
		run := func() {
			if err := c.once(); err != nil {
				failed = err
			}
		}
		for range 200 {
			run()
		}
		// Timers and probes of the channel allocate occasionally, and so do acknowledgements alone, which a busy machine has
		// more of: the least of several measurements counts.
		n := 1e9
		for range 4 {
			n = min(n, testing.AllocsPerRun(500, run))
		}
		if n > c.most {
			t.Errorf("%s: %v allocations, want at most %v", c.what, n, c.most)
		}
		if failed != nil {
			t.Error(failed)
		}
	}
}
