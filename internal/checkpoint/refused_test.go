package checkpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
)

// TestPartOfAnotherVersionIsAnError that names both, and nothing of it is lost before the user has
// decided to begin anew.
func TestPartOfAnotherVersionIsAnError(t *testing.T) {
	file := threeTensors(t)
	for name, c := range map[string]struct {
		from, to string
		words    []string
	}{
		"version":     {`"version":"`, `"version":"0`, []string{`is of version "0`, "the present one is "}},
		"publication": {`"publication":"m"`, `"publication":"n"`, []string{`is of publication "n", not "m"`}},
		"tensors":     {`"head":"`, `"head":"0`, []string{"of a file with other tensors"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := begin(t, file, 3*mib)
			edit(t, b.out+".part.journal", c.from, c.to)
			part, journal := readFile(t, b.out+".part"), readFile(t, b.out+".part.journal")
			_, err := b.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: b.out})
			mustBe(t, err, status.FailedPrecondition, append(c.words, b.out+".part", "--no-resume begins anew")...)
			if strings.Contains(err.Error(), "the same pull goes on") {
				t.Errorf("got %v", err)
			}
			if string(readFile(t, b.out+".part")) != string(part) || string(readFile(t, b.out+".part.journal")) != string(journal) {
				t.Error("what was there has changed")
			}
			found, sum := b.again(checkpoint.SaveOptions{NoResume: true})
			if len(found) != 0 || sum.Resumed != 0 {
				t.Errorf("found %+v, resumed %d", found, sum.Resumed)
			}
		})
	}
}

// TestPartIsOnlyEmptiedWhenAllFilesCanBeWritten: an error about one file leaves what an earlier
// pull wrote of the other ones, even if it is to begin anew.
func TestPartIsOnlyEmptiedWhenAllFilesCanBeWritten(t *testing.T) {
	from := writeSharded(t, t.TempDir(), model(t)...)
	h := serve(t)
	h.publish("m", from)
	_, puller := at(t, h)
	names := namesIn(t, from)
	for _, noResume := range []bool{false, true} {
		dir := t.TempDir()
		first, last := filepath.Join(dir, names[0]), filepath.Join(dir, names[len(names)-1])
		writeFile(t, first+".part", []byte("precious"))
		writeFile(t, last, []byte("here already"))
		_, err := puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir, NoResume: noResume})
		mustBe(t, err, status.AlreadyExists, last)
		if got, err := os.ReadFile(first + ".part"); err != nil || string(got) != "precious" {
			t.Errorf("the .part has %q, %v", got, err)
		}
		must(t, os.Remove(last))
		writeFile(t, first, []byte("here already"))
		writeFile(t, last+".part", []byte("precious"))
		_, err = puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir, NoResume: noResume})
		mustBe(t, err, status.AlreadyExists, first)
		if got, err := os.ReadFile(last + ".part"); err != nil || string(got) != "precious" {
			t.Errorf("the .part has %q, %v", got, err)
		}
		must(t, os.Remove(first))
		// Another file cannot be opened.
		must(t, os.Remove(first+".part"))
		must(t, os.Mkdir(first+".part", 0o700))
		_, err = puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir, NoResume: noResume})
		if err == nil {
			t.Error("a directory was written to")
		}
		if got, err := os.ReadFile(last + ".part"); err != nil || string(got) != "precious" {
			t.Errorf("the .part has %q, %v", got, err)
		}
		must(t, os.Remove(first+".part"))
		_, err = puller.Save(t.Context(), checkpoint.PullRequest{}, checkpoint.SaveOptions{Out: dir, NoResume: noResume})
		must(t, err)
		requireOnly(t, dir, names...)
	}
}
