package checkpoint

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/rendezvous"
)

// FuzzEdgeName: whatever the names are, the key parses and gives them back.
func FuzzEdgeName(f *testing.F) {
	f.Add("gpt2", "wte.weight")
	f.Add("a@b/c", "x;y%3B")
	f.Add("%", "/")
	f.Add("\x00", "é\n\x7f")
	f.Fuzz(func(t *testing.T, publication, tensor string) {
		if publication == "" || tensor == "" {
			return
		}
		const version = "0123456789abcdef"
		name := EdgeName(publication, version, tensor)
		for _, part := range []piece{{3 << 20, 77}, {}} {
			name = edgeName(publication, version, tensor, part)
			p, v, x, got, ok := parseEdge(name)
			if !ok || p != publication || v != version || x != tensor || got != part || ContinuesTensor(name) != (part.off > 0) {
				t.Fatalf("%q, %q and %v became %q, and then %q, %q and %v (%v)", publication, tensor, part, name, p, x, got, ok)
			}
		}
		const device = "/job:worker/replica:0/task:0/device:CPU:0"
		key, err := rendezvous.ParseKey(rendezvous.CreateKey(device, 1, device, name, rendezvous.FrameIter{}))
		if err != nil || key.Edge() != name {
			t.Fatalf("%q: %v", name, err)
		}
	})
}

// FuzzParseEdge: what parses is what EdgeName writes.
func FuzzParseEdge(f *testing.F) {
	f.Add("publication:gpt2@0123/wte.weight")
	f.Add("publication:%40@v/%2")
	f.Add("publication:0")
	f.Add("publication:gpt2@0123:1048576+77/wte.weight")
	f.Add("publication:gpt2@0123:+1+01/wte.weight")
	f.Add("publication:gpt2@0123:0+0/wte.weight")
	f.Fuzz(func(t *testing.T, s string) {
		if p, v, x, part, ok := parseEdge(s); ok && edgeName(p, v, x, part) != s {
			t.Fatalf("%q parses, and is %q when written", s, edgeName(p, v, x, part))
		}
	})
}

// FuzzGlob compares patterns with path.Match, on names without a slash.
func FuzzGlob(f *testing.F) {
	for _, s := range []string{"h.*.weight", "[a-c]?", "[^0-9]*", `\*\[`, "[]", "[-]", "[a", "a-b", `[\]-]`, "*?*", "[é-ü]", "[ -.]", "[^;-9]*"} {
		f.Add(s, "h.0.weight")
		f.Add(s, "b]")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		re, err := compileGlob(pattern)
		if strings.Contains(name, "/") || !utf8.ValidString(name) || !utf8.ValidString(pattern) {
			return
		}
		want, pathErr := path.Match(pattern, name)
		if err == nil && pathErr == nil && re.MatchString(name) != want {
			t.Fatalf("%q matches %q: %v, path.Match says %v", pattern, name, !want, want)
		}
		// A range that runs backwards holds nothing for path.Match; here it is refused, as the typing error that it is.
		if err != nil && want && !strings.Contains(err.Error(), "runs backwards") {
			t.Fatalf("%q: %v; path.Match takes it", pattern, err)
		}
	})
}

// FuzzManifest: a manifest from a server never makes a puller panic, leave its
// directory, or plan a file that does not hold its tensors.
func FuzzManifest(f *testing.F) {
	m := &Manifest{
		Publication: Publication{Name: "m"}, Algorithm: XXH64,
		Entries: []TensorInfo{{Name: "x", DType: 1, Digest: make([]byte, 8), Bytes: 4, Offset: 72}},
		Files:   []FileInfo{{Name: "m.safetensors", Format: FormatSafetensors, Bytes: 76, Header: []byte("@\x00\x00\x00\x00\x00\x00\x00{}")}},
	}
	b, err := proto.Marshal(m.proto())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	m.Files[0] = FileInfo{Name: "../m.npy", Format: FormatNPY}
	if b, err = proto.Marshal(m.proto()); err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var p trystpb.DescribeResponse
		if proto.Unmarshal(b, &p) != nil {
			return
		}
		m, err := manifestOf(&p)
		if err != nil {
			return
		}
		all, err := m.choose(nil)
		if err != nil {
			t.Fatal(err)
		}
		pl := &pull{manifest: m, chosen: all}
		dir := t.TempDir()
		outputs, err := pl.directory(dir)
		if err != nil {
			return
		}
		for _, out := range outputs {
			if path.Dir(out.path) != dir {
				t.Fatalf("a file is written to %s", out.path)
			}
			for _, i := range out.entries {
				if e := m.Entries[i]; out.head != nil && out.array == nil && (out.offsets[i] < int64(len(out.head)) || out.offsets[i]+e.Bytes > out.size) {
					t.Fatalf("tensor %q at %d takes %d of %d bytes", e.Name, out.offsets[i], e.Bytes, out.size)
				}
			}
		}
	})
}
