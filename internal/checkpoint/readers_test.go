package checkpoint

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
)

// readerConn is a connection of a test.
type readerConn struct {
	mu             sync.Mutex // guards all below
	heard          uint64
	collects, cuts int
	cut            time.Time // the first time
}

func (c *readerConn) Heard() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}

func (c *readerConn) hear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard++
}

func (c *readerConn) Collect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.collects++
}

func (c *readerConn) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cuts++; c.cuts == 1 {
		c.cut = time.Now()
	}
}

// seen returns how many collections there were, how many times it was cut, and when the first time.
func (c *readerConn) seen() (collects, cuts int, cut time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.collects, c.cuts, c.cut
}

// onceGone reads a tensor of a version from memory over a connection, withdraws the version, and calls test.
func onceGone(t *testing.T, test func(t *testing.T, c *readerConn, by tensor.Lender, lent *Lent, end func())) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		update(t, c)
		x := c.publications["w"].entries[0].held.Retain()
		conn, by := new(readerConn), x.Buffer().Lender()
		by.ReadBegins(conn)
		lent, err := c.Withdraw(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		test(t, conn, by, lent, func() {
			by.ReadEnds(conn)
			x.Release()
			<-lent.Done()
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if lent.readers.timer != nil && lent.readers.timer.Stop() {
			t.Error("it looks at connections when the memory is back")
		}
	})
}

// A connection that reads a version that is gone is cut when nothing comes from it, whatever pull it reads for.
func TestAConnectionThatReadsAVersionThatIsGoneIsCut(t *testing.T) {
	for _, test := range []struct {
		name  string
		heard bool // in each second
		want  time.Duration
	}{{"silent", false, aliveWithin}, {"heard", true, leaveWithin}} {
		t.Run(test.name, func(t *testing.T) {
			onceGone(t, func(t *testing.T, c *readerConn, _ tensor.Lender, _ *Lent, end func()) {
				defer end()
				begin := time.Now()
				for range 60 {
					time.Sleep(lookEvery / 2)
					synctest.Wait()
					if test.heard {
						c.hear()
					}
					time.Sleep(lookEvery / 2)
					synctest.Wait()
				}
				collects, cuts, cut := c.seen()
				if cuts != 1 || cut.Sub(begin) != test.want {
					t.Errorf("it is cut %d times, after %v", cuts, cut.Sub(begin))
				}
				if most := int((leaveWithin + aliveWithin) / lookEvery); collects < 4 || collects > most {
					t.Errorf("garbage is collected %d times", collects)
				}
			})
		})
	}
}

// A connection whose reads have ended is left alone, also one whose reads ended because garbage was collected.
func TestAConnectionWhoseReadsHaveEndedIsNotCut(t *testing.T) {
	onceGone(t, func(t *testing.T, c *readerConn, _ tensor.Lender, _ *Lent, end func()) {
		for collects := 0; collects < 2; collects, _, _ = c.seen() {
			time.Sleep(lookEvery)
			synctest.Wait()
		}
		end()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, cuts, _ := c.seen(); cuts > 0 {
			t.Error("it is cut")
		}
	})
}

// Reads that begin when the version is gone, since they had waited, get no more time than others.
func TestReadsThatBeginLateGetNoMoreTime(t *testing.T) {
	onceGone(t, func(t *testing.T, c *readerConn, by tensor.Lender, _ *Lent, end func()) {
		begin, other := time.Now(), new(readerConn)
		const long = 5 * lookEvery / 2
		for range 12 { // each ends before the next one begins
			by.ReadBegins(other)
			time.Sleep(long)
			synctest.Wait()
			other.hear()
			by.ReadEnds(other)
		}
		if _, cuts, cut := other.seen(); cuts == 0 || cut.Sub(begin) > leaveWithin+long {
			t.Errorf("it is cut %d times, after %v", cuts, cut.Sub(begin))
		}
		end()
	})
}
