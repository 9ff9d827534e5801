package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

// onceReplaced publishes a file on virtual time, begins a pull of it, and calls test when a
// file with another seed has replaced it.
func onceReplaced(t *testing.T, seed byte, test func(t *testing.T, c *Catalog, old *publication, end func())) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewCatalog(CatalogOptions{Device: cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}, Incarnation: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		dir := t.TempDir()
		path := writeSeeded(t, filepath.Join(dir, "m.safetensors"), 0)
		if _, err := c.Publish(t.Context(), "m", path); err != nil {
			t.Fatal(err)
		}
		old, end, err := c.begin("m", "", newOpened(nil, false))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(writeSeeded(t, filepath.Join(dir, "other.safetensors"), seed), path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * DefaultSettle)
		test(t, c, old, end)
	})
}

// A version that was replaced stays as long as it is pulled, and a minute longer.
func TestAnOldVersionStaysWhileItIsPulled(t *testing.T) {
	onceReplaced(t, 1, func(t *testing.T, c *Catalog, old *publication, end func()) {
		version := old.manifest.Version
		if c.List()[0].Version == version {
			t.Fatal("it was not replaced")
		}
		time.Sleep(time.Hour)
		got := <-get(t.Context(), c.loader, old.entries[0])
		if got.err != nil {
			t.Fatal(got.err)
		}
		got.t.Release()
		end()
		time.Sleep(linger / 2)
		if _, err := c.Describe("m", version); err != nil {
			t.Error(err)
		}
		time.Sleep(linger/2 + 2*DefaultSettle)
		synctest.Wait()
		if _, err := c.Describe("m", version); status.CodeOf(err) != status.NotFound {
			t.Errorf("the old version is still here: %v", err)
		}
		if err := old.files[0].check(); status.CodeOf(err) != status.NotFound {
			t.Errorf("its file is still open: %v", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.publications["m"].entries); len(c.edges) != n {
			t.Errorf("%d keys of %d tensors", len(c.edges), n)
		}
	})
}

// A copy of the same content is the same version, whose keys stay when the first file is closed.
func TestACopyIsTheSameVersion(t *testing.T) {
	onceReplaced(t, 0, func(t *testing.T, c *Catalog, old *publication, end func()) {
		if m, err := c.Describe("m", ""); err != nil || m == &old.manifest || m.Version != old.manifest.Version {
			t.Errorf("version %s, %v; want %s", m.Version, err, old.manifest.Version)
		}
		end()
		time.Sleep(linger + 2*DefaultSettle)
		synctest.Wait()
		device := cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}
		key, err := rendezvous.NewKey(device, 1, device, EdgeName("m", old.manifest.Version, old.entries[0].info.Name), rendezvous.FrameIter{})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		if !c.RecvPublished(t.Context(), key, func(v rendezvous.Value, _ rendezvous.Args, err error) {
			if err == nil {
				v.Tensor.Release()
			}
			got <- err
		}) {
			t.Fatal("the key is not a publication's")
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
