package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

const piece = checkpoint.PieceBytes

// begun is a pull that was stopped in the middle: what it left in a directory is what a killed
// process leaves, too.
type begun struct {
	t     *testing.T
	from  string // the published file
	out   string
	place *place
	*checkpoint.Puller
}

// begin publishes a file, pulls it, and stops when so many bytes have come.
func begin(t *testing.T, published string, stop int64) *begun {
	t.Helper()
	h := serve(t)
	h.publish("m", published)
	b := &begun{t: t, from: published, out: filepath.Join(t.TempDir(), "copy"+filepath.Ext(published))}
	b.place, b.Puller = at(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.Save(ctx, checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Progress: func(p checkpoint.Progress) {
		if p.Bytes >= stop {
			cancel()
		}
	}}, checkpoint.SaveOptions{Out: b.out})
	mustBe(t, err, status.Cancelled, b.out+".part", "--no-resume")
	requireOnly(t, filepath.Dir(b.out), filepath.Base(b.out)+".part", filepath.Base(b.out)+".part.journal")
	return b
}

// again pulls again, checks the file, and returns what was found of it and the summary.
func (b *begun) again(o checkpoint.SaveOptions) (found []checkpoint.Found, sum *checkpoint.Summary) {
	b.t.Helper()
	b.place.mu.Lock()
	clear(b.place.asked)
	b.place.mu.Unlock()
	o.Out, o.Found = b.out, func(f checkpoint.Found) { found = append(found, f) }
	sum, err := b.Save(b.t.Context(), checkpoint.PullRequest{}, o)
	must(b.t, err)
	if !bytes.Equal(readFile(b.t, b.from), readFile(b.t, b.out)) {
		b.t.Error("the copy differs")
	}
	requireOnly(b.t, filepath.Dir(b.out), filepath.Base(b.out))
	return found, sum
}

// threeTensors is a file with tensors a and c, and between them b, which has three pieces.
func threeTensors(t *testing.T) string {
	t.Helper()
	return writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil,
		patterned(t, "a", 3*mib), patterned(t, "b", 2*piece+3*mib), patterned(t, "c", 3*mib))
}

// TestPullGoesOnWithWhatAnEarlierOneWrote: whole tensors and pieces are not requested again.
func TestPullGoesOnWithWhatAnEarlierOneWrote(t *testing.T) {
	b := begin(t, threeTensors(t), 3*mib+piece+mib)
	found, sum := b.again(checkpoint.SaveOptions{})
	if len(found) != 1 || found[0].Path != b.out+".part" || found[0].Err != nil || found[0].Bytes != 2*piece+3*mib {
		t.Errorf("found %+v", found)
	}
	if sum.Resumed != 2*piece+3*mib || sum.Bytes != 2*piece+9*mib || sum.Tensors != 3 || !sum.Verified {
		t.Errorf("summary %+v", sum)
	}
	if a, p, c := b.place.receives("/a"), b.place.receives("/b"), b.place.receives("/c"); a != 0 || p != 1 || c != 1 {
		t.Errorf("%d, %d and %d requests for a, b and c", a, p, c)
	}
}

// TestVerificationShowsProgressAndEnds: what is read before a pull goes on is reported, up to all of
// it, and a pull that is cancelled in the middle of a tensor reads no more of it, and keeps it.
func TestVerificationShowsProgressAndEnds(t *testing.T) {
	b := begin(t, threeTensors(t), 3*mib+2*piece+3*mib)
	ctx, cancel := context.WithCancel(t.Context())
	var first int64
	_, err := b.Save(ctx, checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: b.out, Verifying: func(done, total int64) {
		if first == 0 {
			first = done
		}
		if cancel(); total != 2*piece+6*mib {
			t.Errorf("%d bytes will be read, want %d", total, 2*piece+6*mib)
		}
		if done > 6*mib {
			t.Errorf("%d bytes were read after the cancel", done)
		}
	}})
	mustBe(t, err, status.Cancelled, "was cancelled")
	if first == 0 || first > 2*mib {
		t.Errorf("the first report came after %d bytes", first)
	}
	var last, all int64
	_, sum := b.again(checkpoint.SaveOptions{Verifying: func(done, total int64) { last, all = done, total }})
	if last != all || all != 2*piece+6*mib || sum.Resumed != 2*piece+6*mib {
		t.Errorf("the last report was %d of %d bytes; %d are resumed", last, all, sum.Resumed)
	}
}

// A byte that changed in the .part, in a whole tensor or in a piece, is sent again with its
// tensor or its piece.
func TestDamagedPartIsSentAgain(t *testing.T) {
	file := threeTensors(t)
	for name, c := range map[string]struct {
		at      int64 // in the tensors
		a, b, c int   // requests
	}{
		"whole tensor": {77, 1, 1, 1},
		"piece":        {3*mib + piece + 77, 0, 2, 1},
		"rest":         {3*mib + 2*piece + 2*mib, 0, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := begin(t, file, 3*mib+piece+mib)
			f, err := os.OpenFile(b.out+".part", os.O_RDWR, 0)
			must(t, err)
			defer f.Close()
			stat, err := f.Stat()
			must(t, err)
			at := stat.Size() - (2*piece + 9*mib) + c.at
			var one [1]byte
			_, err = f.ReadAt(one[:], at)
			must(t, err)
			one[0] ^= 1
			_, err = f.WriteAt(one[:], at)
			must(t, err)
			b.again(checkpoint.SaveOptions{})
			if x, y, z := b.place.receives("/a"), b.place.receives("/b"), b.place.receives("/c"); x != c.a || y != c.b || z != c.c {
				t.Errorf("%d, %d and %d requests for a, b and c", x, y, z)
			}
		})
	}
}

// A journal that lies about a piece, hash included, makes no wrong file: the digest of the tensor
// decides, and all of it is sent again.
func TestJournalIsOnlyAHint(t *testing.T) {
	file := threeTensors(t)
	b := begin(t, file, 3*mib+piece+mib)
	// Another file's pieces, with the plan of this one.
	other := begin(t, writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil,
		patterned(t, "a", 3*mib), named(t, "b", tensor.Uint8, 2*piece+3*mib), patterned(t, "c", 3*mib)), 3*mib+piece+mib)
	_, records, _ := strings.Cut(string(readFile(t, other.out+".part.journal")), "\n")
	plan, _, _ := strings.Cut(string(readFile(t, b.out+".part.journal")), "\n")
	writeFile(t, b.out+".part", readFile(t, other.out+".part"))
	writeFile(t, b.out+".part.journal", []byte(plan+"\n"+records))
	_, sum := b.again(checkpoint.SaveOptions{})
	if n := b.place.receives("/b"); n != 1+3 {
		t.Errorf("%d requests for b", n)
	}
	if sum.Bytes != 2*piece+9*mib || sum.Resumed != 3*mib { // a stays
		t.Errorf("summary %+v", sum)
	}
}

// TestPartThatDoesNotFitIsBegunAnew, with the reason.
func TestPartThatDoesNotFitIsBegunAnew(t *testing.T) {
	file := threeTensors(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, part, journal string)
		why    string
	}{
		"no journal":        {func(t *testing.T, _, j string) { must(t, os.Remove(j)) }, "no journal"},
		"empty journal":     {func(t *testing.T, _, j string) { writeFile(t, j, nil) }, "no first line"},
		"another release":   {func(t *testing.T, _, j string) { edit(t, j, `{"journal":1`, `{"journal":2`) }, "another release"},
		"damaged plan":      {func(t *testing.T, _, j string) { edit(t, j, `{`, `[`) }, "first line of its journal is damaged"},
		"damaged record":    {func(t *testing.T, _, j string) { edit(t, j, "\n", "\n-") }, "damaged at byte"},
		"short file":        {func(t *testing.T, p, _ string) { must(t, os.Truncate(p, 1000)) }, "1000 bytes"},
		"journal elsewhere": {func(t *testing.T, _, j string) { must(t, os.Remove(j)); must(t, os.Symlink(precious(t), j)) }, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			b := begin(t, file, 3*mib)
			c.change(t, b.out+".part", b.out+".part.journal")
			found, sum := b.again(checkpoint.SaveOptions{})
			if len(found) != 1 || found[0].Err == nil || !strings.Contains(found[0].Err.Error(), c.why) || sum.Resumed != 0 {
				t.Errorf("found %+v, resumed %d", found, sum.Resumed)
			}
			if n := b.place.receives("/"); n != 5 {
				t.Errorf("%d requests, want all 5", n)
			}
		})
	}
}

// precious is a file that must not be written to.
func precious(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "precious")
	writeFile(t, path, []byte("precious"))
	t.Cleanup(func() {
		if got := readFile(t, path); string(got) != "precious" {
			t.Errorf("the file behind the symbolic link is now %q", got)
		}
	})
	return path
}

func edit(t *testing.T, path, from, to string) {
	t.Helper()
	s := string(readFile(t, path))
	if !strings.Contains(s, from) {
		t.Fatalf("no %q in %q", from, s)
	}
	writeFile(t, path, []byte(strings.Replace(s, from, to, 1)))
}

// The process may have been killed in the middle of a record. The rest counts.
func TestIncompleteRecordIsIgnored(t *testing.T) {
	b := begin(t, threeTensors(t), 3*mib+piece+mib)
	journal := b.out + ".part.journal"
	s := readFile(t, journal)
	writeFile(t, journal, s[:len(s)-3])
	_, sum := b.again(checkpoint.SaveOptions{})
	if n := b.place.receives("/"); n != 3 || sum.Resumed != 3*mib+piece {
		t.Errorf("%d requests, resumed %d", n, sum.Resumed)
	}
}

func TestNoResumeBeginsAnew(t *testing.T) {
	b := begin(t, threeTensors(t), 3*mib+piece+mib)
	found, sum := b.again(checkpoint.SaveOptions{NoResume: true})
	if n := b.place.receives("/"); n != 5 || sum.Resumed != 0 || len(found) != 0 {
		t.Errorf("%d requests, resumed %d, found %+v", n, sum.Resumed, found)
	}
}

// An array goes on, too. One of strings, whose length on the disk is not known, begins anew.
func TestArraysGoOn(t *testing.T) {
	h := serve(t)
	_, err := h.catalog.PublishTensors(t.Context(), "m", patterned(t, "x", 2*piece+3*mib), tensortest.Strings(t, "a", "bb").Named("words"))
	must(t, err)
	p, puller := at(t, h)
	out := filepath.Join(t.TempDir(), "x.npy")
	ctx, cancel := context.WithCancel(t.Context())
	req := checkpoint.PullRequest{Tensors: []string{"x"}, Inflight: 1, InflightBytes: 1}
	req.Progress = func(checkpoint.Progress) { cancel() }
	_, err = puller.Save(ctx, req, checkpoint.SaveOptions{Out: out})
	mustBe(t, err, status.Cancelled)
	clear(p.asked)
	req.Progress = nil
	sum, err := puller.Save(t.Context(), req, checkpoint.SaveOptions{Out: out})
	must(t, err)
	if n := p.receives("/x"); n != 2 || sum.Resumed != piece {
		t.Errorf("%d requests, resumed %d", n, sum.Resumed)
	}
	words := filepath.Join(filepath.Dir(out), "words.npy")
	_, err = puller.Save(t.Context(), checkpoint.PullRequest{Tensors: []string{"words"}}, checkpoint.SaveOptions{Out: words})
	must(t, err)
	requireOnly(t, filepath.Dir(out), "words.npy", "x.npy")
}

// Files that are complete and files that have not begun go on as well.
func TestDirectoryGoesOn(t *testing.T) {
	from := writeSharded(t, t.TempDir(), model(t)...)
	h := serve(t)
	h.publish("m", from)
	p, puller := at(t, h)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := puller.Save(ctx, checkpoint.PullRequest{Inflight: 1, InflightBytes: 1, Progress: func(p checkpoint.Progress) {
		if p.Tensors == 5 {
			cancel()
		}
	}}, checkpoint.SaveOptions{Out: dir})
	mustBe(t, err, status.Cancelled, "2 files like ")
	before := p.receives("/")
	sum, err := puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir})
	must(t, err)
	if n := p.receives("/") - before; n > 3 || sum.Tensors != 7 { // one of them is empty
		t.Errorf("%d requests for the rest, %+v", n, sum)
	}
	requireOnly(t, dir, namesIn(t, from)...)
	for _, name := range namesIn(t, from) {
		if !bytes.Equal(readFile(t, filepath.Join(from, name)), readFile(t, filepath.Join(dir, name))) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestTheSameCommandFindsARightFileGood: of every kind of file, under any name, and nothing is requested
// but the description. A file of the same form with other content is not replaced.
func TestTheSameCommandFindsARightFileGood(t *testing.T) {
	h := serve(t)
	from := t.TempDir()
	h.publish("safetensors", writeSafetensors(t, filepath.Join(from, "m.safetensors"), nil, model(t)...))
	h.publish("foreign", foreign(t, filepath.Join(from, "f.safetensors")))
	h.publish("npy", writeNPY(t, filepath.Join(from, "x.npy"), patterned(t, "x", 1000)))
	h.publish("strings", writeNPY(t, filepath.Join(from, "s.npy"), tensortest.Strings(t, "one", "two")))
	_, err := h.catalog.PublishTensors(t.Context(), "memory", model(t)...)
	must(t, err)
	p, puller := at(t, h)
	for name, out := range map[string]string{"safetensors": "any.safetensors", "foreign": "f", "npy": "y.npy", "strings": "s.npy", "memory": "m.safetensors"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), out)
			save := func() error {
				_, err := puller.Save(t.Context(), checkpoint.PullRequest{Publication: name}, checkpoint.SaveOptions{Out: path})
				return err
			}
			must(t, save())
			content, before := readFile(t, path), p.receives("/")
			must(t, save())
			if n := p.receives("/"); n != before || !bytes.Equal(readFile(t, path), content) {
				t.Errorf("%d requests", n-before)
			}
			content[len(content)-1] ^= 1
			writeFile(t, path, content)
			mustBe(t, save(), status.AlreadyExists, path, "force")
			if !bytes.Equal(readFile(t, path), content) {
				t.Error("the file was changed")
			}
			requireOnly(t, filepath.Dir(path), out)
		})
	}
}

// TestFinishedFilesAreRecognised: a pull that was killed while its files got their names goes on
// without Force, and does not request what is finished. A file with other content is not replaced, and
// nothing is changed then.
func TestFinishedFilesAreRecognised(t *testing.T) {
	from := writeSharded(t, t.TempDir(), model(t)...)
	h := serve(t)
	h.publish("m", from)
	p, puller := at(t, h)
	whole := t.TempDir()
	_, err := puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: whole})
	must(t, err)
	names := namesIn(t, whole)
	asked := p.receives("/")
	sum, err := puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: whole})
	must(t, err)
	if n := p.receives("/"); n != asked || sum.Tensors != 7 || sum.Resumed != sum.Bytes || len(sum.Files) != len(names) {
		t.Errorf("the same command again: %d requests, summary %+v", n-asked, sum)
	}
	_, err = puller.Save(t.Context(), checkpoint.PullRequest{SkipDigests: true}, checkpoint.SaveOptions{Out: whole})
	mustBe(t, err, status.AlreadyExists, names[0], "force")
	for _, change := range []string{"", "content", "head"} {
		dir := t.TempDir()
		first := readFile(t, filepath.Join(whole, names[0]))
		switch change {
		case "content":
			first[len(first)-1] ^= 1
		case "head":
			first[20] ^= 1
		}
		writeFile(t, filepath.Join(dir, names[0]), first)
		before := p.receives("/")
		var found []checkpoint.Found
		sum, err := puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir, Found: func(f checkpoint.Found) { found = append(found, f) }})
		n := p.receives("/") - before
		if change != "" {
			mustBe(t, err, status.AlreadyExists, names[0], "force")
			if n != 0 || !bytes.Equal(readFile(t, filepath.Join(dir, names[0])), first) {
				t.Errorf("%s: %d requests, or the file was replaced", change, n)
			}
			requireOnly(t, dir, names[0])
			continue
		}
		must(t, err)
		if len(found) != 1 || found[0].Path != filepath.Join(dir, names[0]) || found[0].Bytes != sum.Resumed || sum.Resumed == 0 || sum.Tensors != 7 || len(sum.Files) != len(names) || n != 7-3 {
			t.Errorf("found %+v, %d requests, summary %+v", found, n, sum)
		}
		requireOnly(t, dir, names...)
		for _, name := range names {
			if !bytes.Equal(readFile(t, filepath.Join(from, name)), readFile(t, filepath.Join(dir, name))) {
				t.Errorf("%s differs", name)
			}
		}
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A large tensor that is damaged on the way is sent again once, and is an error after that.
func TestDamagedPiecesAreSentAgain(t *testing.T) {
	for _, times := range []int{1, 2} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			h := serve(t, func(o *checkpoint.CatalogOptions) { o.CacheBytes = -1 })
			h.publish("m", writeSafetensors(t, filepath.Join(t.TempDir(), "m.safetensors"), nil, patterned(t, "x", 2*piece+3*mib)))
			var damaged atomic.Int64
			h.damage = func(v rendezvous.Value) { // the last piece
				if b := v.Tensor.Bytes(); len(b) == 3*mib && damaged.Add(1) <= int64(times) {
					b[9] ^= 1
				}
			}
			p, puller := at(t, h)
			out := filepath.Join(t.TempDir(), "m.safetensors")
			var last checkpoint.Progress
			_, err := puller.Save(t.Context(), checkpoint.PullRequest{Progress: func(now checkpoint.Progress) { last = now }}, checkpoint.SaveOptions{Out: out})
			if times == 1 {
				must(t, err)
				if last.Bytes != 2*piece+3*mib || last.Tensors != 1 {
					t.Errorf("the last progress is %+v", last)
				}
			} else {
				mustBe(t, err, status.DataLoss, `"x"`, "damaged", "10.0.0.1:2222")
			}
			if n := p.receives("/x"); n != 6 {
				t.Errorf("%d requests, want twice the 3 pieces", n)
			}
		})
	}
}

// TestSaveHasLittleUnderWay: however many receives a pull may have at once, at most 64 MiB are
// requested and not recorded, so that no more is sent again after the process was killed.
func TestSaveHasLittleUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(200*mib), make([]byte, 200*mib))
		must(t, err)
		h := published(t, x.Named("x"))
		p, puller := at(t, h)
		open := make(chan struct{})
		wait := func(string) error {
			<-open
			return nil
		}
		p.fail.Store(&wait)
		saved := make(chan error)
		go func() {
			_, err := puller.Save(t.Context(), checkpoint.PullRequest{Inflight: 100, InflightBytes: 1 << 40}, checkpoint.SaveOptions{Out: filepath.Join(t.TempDir(), "x.safetensors")})
			saved <- err
		}()
		synctest.Wait()
		if n := p.receives("/x"); n != 64*mib/piece {
			t.Errorf("%d pieces of %d bytes are under way, want 64 MiB", n, piece)
		}
		close(open)
		must(t, <-saved)
	})
}
