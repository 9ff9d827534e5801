package checkpoint

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/tensor"
)

// An old version waits for pulls that come back, but not while the owner of its memory waits.
func TestWaitingForMemoryEndsThePauseAfterPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{Device: cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}, Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		update := func() *Lent {
			x, err := tensor.Make[float32](tensor.Heap{}, 8)
			if err != nil {
				t.Fatal(err)
			}
			defer x.Release()
			lent, err := c.Update(t.Context(), "w", []*tensor.Tensor{x.Named("a")}, UpdateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return lent
		}
		pull := func() (end func()) {
			_, end, err := c.begin("w", "", newOpened(nil, false))
			if err != nil {
				t.Fatal(err)
			}
			return end
		}
		takes := func(l *Lent, want time.Duration) {
			t.Helper()
			begin := time.Now()
			<-l.Done()
			if d := time.Since(begin); d != want {
				t.Errorf("the memory was back after %v, not %v", d, want)
			}
		}
		first := update()
		pull()()
		second := update()
		takes(first, comeBack)

		end := pull()
		update()
		short, cancel := context.WithTimeout(t.Context(), comeBack)
		defer cancel()
		if err := second.Wait(short); err == nil {
			t.Error("the memory is back while a pull is under way")
		}
		waited := make(chan error)
		go func() { waited <- second.Wait(t.Context()) }()
		synctest.Wait()
		end()
		takes(second, 0)
		if err := <-waited; err != nil {
			t.Error(err)
		}

		third := update()
		pull()()
		update()
		synctest.Wait()
		begin := time.Now()
		if err := third.Wait(t.Context()); err != nil || !time.Now().Equal(begin) {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}
