package checkpoint_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// mapping is a file that a program writes through a mapping.
type mapping struct {
	t       *testing.T
	path    string
	content []byte
}

func mapFile(t *testing.T, path string) *mapping {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	info, err := f.Stat()
	must(t, err)
	content, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Munmap(content)) })
	m := &mapping{t, path, content}
	m.touch()
	return m
}

// touch changes nothing, but the times: until the kernel writes the pages to the disk, they stay the same then.
func (m *mapping) touch() {
	for i := 0; i < len(m.content); i += os.Getpagesize() {
		m.content[i] ^= 1
		m.content[i] ^= 1
	}
}

// change changes the last byte of the file, and reports whether all its times are as they were.
func (m *mapping) change() bool {
	m.t.Helper()
	before, err := os.Stat(m.path)
	must(m.t, err)
	m.content[len(m.content)-1] ^= 1
	after, err := os.Stat(m.path)
	must(m.t, err)
	return after.ModTime().Equal(before.ModTime()) && checkpoint.ChangeTime(after).Equal(checkpoint.ChangeTime(before))
}

// changeUnseen changes the file of the only publication of h so that none of its times shows it. Where that
// needs another version, it calls published again.
func (m *mapping) changeUnseen(h *host, published func()) {
	m.t.Helper()
	for tries := 1; ; tries++ {
		published()
		if m.change() {
			return
		}
		if tries > 100 {
			m.t.Fatalf("the file system of %s sets the times at each write through a mapping; let TMPDIR name another", m.path)
		}
		m.touch() // the kernel wrote the pages to the disk just now
		must(m.t, h.catalog.Reload(m.t.Context()))
	}
}

// writtenInPlace serves a file that is about to be written in place. The last of its tensors is x.
func writtenInPlace(t *testing.T, options ...func(*checkpoint.CatalogOptions)) (h *host, m *mapping, said *events) {
	t.Helper()
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, named(t, "a", tensor.Uint8, 1000), named(t, "x", tensor.Uint8, 1000))
	m, said = mapFile(t, path), newEvents()
	h = serve(t, append(options, func(o *checkpoint.CatalogOptions) { o.CacheBytes, o.Settle, o.Logger = -1, -1, slog.New(said) })...)
	h.publish("m", path)
	return h, m, said
}

// TestFileWrittenInPlaceWithAllItsOldTimes: nothing but the content shows it. The pull that finds it reports it to
// the server, which compares the tensor, refuses the next pulls with the name of the file in one warning, and
// takes what is there at Reload.
func TestFileWrittenInPlaceWithAllItsOldTimes(t *testing.T) {
	for name, mmap := range map[string]bool{"read": false, "mapped": true} {
		t.Run(name, func(t *testing.T) {
			h, m, said := writtenInPlace(t, func(o *checkpoint.CatalogOptions) { o.MMap = mmap })
			m.changeUnseen(h, func() {})
			before, err := h.dial().Describe(t.Context(), "m", "")
			must(t, err)
			_, err = h.dial().tryPull(t, checkpoint.PullRequest{})
			mustBe(t, err, status.DataLoss, `"x"`, "damaged", "m.safetensors changed", "with all its old times", "publish it again")
			for range 2 {
				_, err = h.dial().tryPull(t, checkpoint.PullRequest{})
				mustBe(t, err, status.FailedPrecondition, "m.safetensors", "with all its old times", "publish it again")
			}
			if n := said.count("WARN"); n != 1 || said.count("m.safetensors") == 0 {
				t.Errorf("%d warnings: %q", n, said.all)
			}
			must(t, h.catalog.Reload(t.Context()))
			got := h.dial().pull(t, checkpoint.PullRequest{})
			if b := got[1].Bytes(); b[len(b)-1] != m.content[len(m.content)-1] {
				t.Error("Reload did not take what is there")
			}
			after, err := h.dial().Describe(t.Context(), "m", "")
			must(t, err)
			if after.Version == before.Version {
				t.Error("Reload found nothing")
			}
		})
	}
}

// TestPiecesOfAFileWrittenInPlaceWithAllItsOldTimes: the same with a tensor that comes in pieces, into a file.
func TestPiecesOfAFileWrittenInPlaceWithAllItsOldTimes(t *testing.T) {
	path := writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, patterned(t, "x", 2*piece+3))
	m := mapFile(t, path)
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes, o.Settle = -1, -1 })
	h.publish("m", path)
	m.changeUnseen(h, func() {})
	_, err := h.dial().Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: t.TempDir()})
	mustBe(t, err, status.DataLoss, `"x"`, "damaged", "m.safetensors changed", "with all its old times")
}

// TestTensorsAreComparedOnceForReports: reports without a reason make the server read each tensor once, of the
// names that it has, and refuse nothing. What it has not compared yet is compared.
func TestTensorsAreComparedOnceForReports(t *testing.T) {
	h, m, said := writtenInPlace(t)
	report := func(name string) error {
		t.Helper()
		return h.report(t, name, "a")
	}
	m.changeUnseen(h, func() {
		for _, name := range []string{"", "no such", "x", "x"} {
			must(t, report(name))
		}
	})
	for range 3 {
		must(t, report("x")) // was compared before it changed
	}
	if n := said.count("WARN"); n != 0 {
		t.Errorf("%d warnings: %q", n, said.all)
	}
	m.content[len(m.content)-1001] ^= 1 // the last byte of a
	if err := report("a"); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("the report of another tensor: %v", err)
	}
}

// report opens tensors of publication m with a report of a damaged one.
func (h *host) report(t *testing.T, damaged string, tensors ...string) error {
	t.Helper()
	o, err := h.dial().open(t, &trystpb.OpenRequest{Publication: "m", Tensors: tensors, Damaged: damaged})
	if err == nil {
		o.cancel()
	}
	return err
}

// TestReportHidesNoOtherChange: the comparison of the one tensor does not count for its file, whose times show
// that it was written.
func TestReportHidesNoOtherChange(t *testing.T) {
	dir := t.TempDir()
	other := writeSafetensors(t, filepath.Join(dir, "a.safetensors"), nil, named(t, "a", tensor.Uint8, 1000))
	path := writeSafetensors(t, filepath.Join(dir, "b.safetensors"), nil, named(t, "b", tensor.Uint8, 1000), named(t, "x", tensor.Uint8, 1000))
	h := serve(t, func(o *checkpoint.CatalogOptions) { o.Settle = -1 })
	h.publish("m", other, path)
	content := readFile(t, path)
	content[len(content)-1] ^= 1
	writeFile(t, path, content)
	must(t, os.Chtimes(path, time.Time{}, time.Unix(1, 0)))
	must(t, h.report(t, "b", "a"))
	if err := h.report(t, "", "b"); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("after the report: %v", err)
	}
}

// TestDamageOnTheWayRefusesNothing: the server finds the file as it was published, and the puller's error is
// about the tensor alone.
func TestDamageOnTheWayRefusesNothing(t *testing.T) {
	h, _, said := writtenInPlace(t)
	h.damage = func(v rendezvous.Value) { v.Tensor.Bytes()[7] ^= 1 }
	_, err := h.dial().tryPull(t, checkpoint.PullRequest{Tensors: []string{"x"}})
	mustBe(t, err, status.DataLoss, `"x"`, "damaged")
	h.damage = nil
	h.dial().pull(t, checkpoint.PullRequest{})
	if n := said.count("WARN"); n != 0 {
		t.Errorf("%d warnings: %q", n, said.all)
	}
	must(t, h.catalog.Reload(t.Context()))
	if said.count("changed=0 unchanged=1") != 1 {
		t.Errorf("%q", said.all)
	}
}
