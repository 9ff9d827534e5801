package rendezvous_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// Done closes for every way in which a step ends, whether it was called before or after, and Err has the reason.
func TestDoneClosesWhenAStepEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*rendezvous.Manager)
		want status.Code
	}{
		"abort":       {func(m *rendezvous.Manager) { m.AbortStep(1, status.New(status.DataLoss, "x")) }, status.DataLoss},
		"cleanup":     {func(m *rendezvous.Manager) { m.Cleanup(1) }, status.Aborted},
		"cleanup all": {func(m *rendezvous.Manager) { m.CleanupAll() }, status.Aborted},
		"shutdown":    {func(m *rendezvous.Manager) { m.Shutdown() }, status.Aborted},
		"close":       {func(m *rendezvous.Manager) { m.Close() }, status.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			m := rendezvous.NewManager(rendezvous.ManagerOptions{})
			defer m.Close()
			r, other := m.Find(1), m.Find(2)
			done, late := r.Done(), other.Done()
			select {
			case <-done:
				t.Fatal("done before the end")
			default:
			}
			if r.Err() != nil {
				t.Fatalf("before the end: %v", r.Err())
			}
			test.end(m)
			<-done
			if status.CodeOf(r.Err()) != test.want || r.Done() != done {
				t.Errorf("got %v, want %v", r.Err(), test.want)
			}
			<-m.Find(1).Done() // of a step that has ended
			m.Close()
			<-late
		})
	}
}

// Done and Abort at once: one of the two closes the channel, once.
func TestDoneAndAbortAtOnce(t *testing.T) {
	for range 1000 {
		l := rendezvous.NewLocal()
		var work sync.WaitGroup
		work.Go(func() { l.Abort(errors.New("x")) })
		work.Go(func() { <-l.Done() })
		work.Go(func() { <-l.Done() })
		work.Wait()
	}
}
