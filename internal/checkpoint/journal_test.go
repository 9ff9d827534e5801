package checkpoint

import (
	"bytes"
	"encoding/json"
	"hash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// claimOf returns the record of text that was written at an offset.
func claimOf(off int64, text string) claim {
	return claim{piece{off, int64(len(text))}, xxhash.Sum64String(text)}
}

// FuzzJournal: whatever a journal has, what it claims lies in the file, and what was parsed is
// what would be written.
func FuzzJournal(f *testing.F) {
	p := plan{journalFormat, "m", "53f0", 1000, "9b1c"}
	first, err := json.Marshal(p)
	if err != nil {
		f.Fatal(err)
	}
	for _, records := range []string{"", "0 1000 00000000000000ff\n", "10 20 0123456789abcdef\n40 1 0", "0 0 0000000000000000\n", "-1 5 0000000000000000\n",
		"999 2 0000000000000000\n", "9223372036854775807 1 0000000000000000\n", "1 9223372036854775807 0000000000000000\n", "+1 1 0000000000000000\n", "1 1 0000000000000000 \n"} {
		f.Add([]byte(string(first) + "\n" + records))
	}
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"journal":1,"size":-1}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		claims, good, err := parseJournal(bytes.NewReader(b), p)
		if err != nil {
			return
		}
		if good < 0 || good > int64(len(b)) {
			t.Fatalf("%d of %d bytes are complete lines", good, len(b))
		}
		if end := bytes.IndexByte(b[good:], '\n') + 1; end > 0 { // a damaged one
			if c, ok := parseClaim(b[good:good+int64(end)], p.Size); ok {
				t.Fatalf("%+v was left out", c)
			}
		}
		line := bytes.IndexByte(b, '\n') + 1
		var records []byte
		for _, c := range claims {
			if c.off < 0 || c.n <= 0 || c.off > p.Size || c.end() > p.Size {
				t.Fatalf("%+v is not in a file of %d bytes", c, p.Size)
			}
			records = c.append(records)
		}
		if !bytes.Equal(records, b[line:good]) {
			t.Fatalf("%q became %q", b[line:good], records)
		}
	})
}

// What a journal records, the next one reads, after an incomplete line was cut off.
func TestJournalIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.part.journal")
	p := plan{journalFormat, "m", "53f0", 1000, "9b1c"}
	j, err := createJournal(path, p)
	if err != nil {
		t.Fatal(err)
	}
	j.record(claimOf(5, "hello"))
	if n := j.close(); n != 1 {
		t.Errorf("%d records", n)
	}
	j.record(claimOf(50, "late")) // after close nothing is written
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("10 5 77"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for want := 1; want < 3; want++ {
		j, claims, err := readJournal(path, p)
		if err != nil || len(claims) != want || claims[0].piece != (piece{5, 5}) {
			t.Fatalf("claims %+v, %v", claims, err)
		}
		j.record(claimOf(20, "again"))
		if n := j.close(); n != want+1 {
			t.Errorf("%d records", n)
		}
	}
	if _, err := createJournal(path, p); err == nil {
		t.Error("a journal was created over another")
	}
}

// TestRanges compares the set with one of single bytes.
func TestRanges(t *testing.T) {
	const size = 40
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test that can be repeated
	for range 2000 {
		var set ranges
		var bytes [size + 1]bool
		for range r.IntN(12) {
			off := r.Int64N(size)
			p := piece{off, 1 + r.Int64N(size-off)}
			if p.n > 8 {
				p.n = 8
			}
			set = set.add(p)
			for k := p.off; k < p.end(); k++ {
				bytes[k] = true
			}
		}
		total := int64(0)
		for k := range int64(size) {
			if bytes[k] {
				total++
			}
			end := k
			for bytes[end] {
				end++
				if !set.covers(piece{k, end - k}) {
					t.Fatalf("%v does not cover %d to %d", set, k, end)
				}
			}
			if set.from(k) != end || set.covers(piece{k, end - k + 1}) {
				t.Fatalf("%v from %d ends at %d, not %d", set, k, set.from(k), end)
			}
		}
		for i, p := range set {
			if p.n <= 0 || i > 0 && p.off <= set[i-1].end() {
				t.Fatalf("%v is not in order", set)
			}
		}
		if set.size() != total {
			t.Fatalf("%v has %d bytes, not %d", set, set.size(), total)
		}
	}
}

// TestJournalHasXXH64OfEachPart: with whatever digest the tensors were checked, or with none. What is
// known of a whole tensor by its check is not computed again.
func TestJournalHasXXH64OfEachPart(t *testing.T) {
	x := tensortest.Tensor(t, tensor.Uint8, 1000)
	want := xxhash.Sum64(x.Bytes())
	known := newHashOf(t, XXH64)
	for _, test := range []struct {
		what    string
		pl      *pull
		part    part
		content []byte
		want    uint64
	}{
		{"a whole tensor, checked by XXH64", pulling(XXH64, known, digestOf(known(), x)), part{}, nil, want},
		{"a whole tensor, checked by SHA-256", pulling(SHA256, newHashOf(t, SHA256), digestOf(newHashOf(t, SHA256)(), x)), part{}, x.Bytes(), want},
		{"a whole tensor, not checked", pulling(XXH64, nil, make([]byte, 8)), part{}, x.Bytes(), want},
		{"a piece", pulling(XXH64, known, digestOf(known(), x)), part{piece: piece{0, 100}}, x.Bytes()[:100], xxhash.Sum64(x.Bytes()[:100])},
	} {
		if got := test.pl.sum(test.part, test.content); got != test.want {
			t.Errorf("%s: %016x, want %016x", test.what, got, test.want)
		}
	}
}

func newHashOf(t *testing.T, algorithm string) func() hash.Hash {
	t.Helper()
	h, err := newHash(algorithm)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pulling returns a pull of one tensor with a digest.
func pulling(algorithm string, check func() hash.Hash, digest []byte) *pull {
	return &pull{newHash: check, manifest: &Manifest{Algorithm: algorithm, Entries: []TensorInfo{{Digest: digest}}}}
}
