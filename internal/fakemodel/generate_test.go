package fakemodel

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// The parameters are those that the models are known by. GPT-2's files hold a
// causal mask of 1024×1024 for each layer besides; that its smallest one's
// content ends at byte 548,090,880 is what the documentation of safetensors
// shows ("Metadata Parsing").
func TestModelsHaveTheLayoutOfTheOriginals(t *testing.T) {
	const mask = 1024 * 1024
	for _, tt := range []struct {
		name              string
		tensors           int
		parameters, masks int64
		elementSize       int64
	}{
		{"gpt2", 160, 124_439_808, 12, 4},
		{"gpt2-medium", 316, 354_823_168, 24, 4},
		{"gpt2-large", 472, 774_030_080, 36, 4},
		{"gpt2-xl", 628, 1_557_611_200, 48, 4},
		{"llama-3.2-1b", 146, 1_235_814_400, 0, 2},
		{"llama-3.1-8b", 291, 8_030_261_248, 0, 2},
	} {
		m, err := model(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		if want := (tt.parameters + tt.masks*mask) * tt.elementSize; len(m.Specs) != tt.tensors || m.Bytes != want {
			t.Errorf("%s has %d tensors and %d bytes, want %d and %d", tt.name, len(m.Specs), m.Bytes, tt.tensors, want)
		}
	}
	m, err := model("")
	if err != nil || m.Name != "gpt2" || m.Bytes != 548_090_880 {
		t.Errorf("the default is %s with %d bytes, %v", m.Name, m.Bytes, err)
	}
	if _, err := model("gpt4"); status.CodeOf(err) != status.InvalidArgument || !bytes.Contains([]byte(err.Error()), []byte("tiny, gpt2, gpt2-medium")) {
		t.Errorf("an unknown model: %v", err)
	}
}

func generated(t *testing.T, o Options) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.safetensors")
	o.Model = "tiny"
	if _, err := Generate(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGenerateFollowsTheSeed(t *testing.T) {
	a := generated(t, Options{Seed: 7})
	if !bytes.Equal(a, generated(t, Options{Seed: 7})) {
		t.Error("the same seed gave other bytes")
	}
	if bytes.Equal(a, generated(t, Options{Seed: 8})) {
		t.Error("another seed gave the same bytes")
	}
}

// Part by part or at once: the content is the same.
func TestFillAtAnyOffset(t *testing.T) {
	f := newFiller(1, "w", tensor.Float32)
	whole := make([]byte, 1021)
	f.fill(whole, 0)
	parts := make([]byte, len(whole))
	for at := 0; at < len(parts); at += 104 {
		f.fill(parts[at:min(at+104, len(parts))], int64(at))
	}
	if !bytes.Equal(whole, parts) {
		t.Error("the parts differ from the whole")
	}
	g := newFiller(1, "v", tensor.Float32)
	g.fill(parts, 0)
	if bytes.Equal(whole, parts) {
		t.Error("two tensors have the same content")
	}
}

// No float is infinite or no number, and all are like weights.
func TestGeneratedFloatsAreFinite(t *testing.T) {
	b := make([]byte, 1<<16)
	for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16} {
		newFiller(3, "w", d).fill(b, 0)
		var negative int
		for e := b; len(e) > 0; e = e[d.Size():] {
			v := floatOf(d, e)
			if a := math.Abs(v); a < 1.0/128 || a >= 1.0/8 {
				t.Fatalf("%v: %v", d, v)
			}
			if v < 0 {
				negative++
			}
		}
		if n := len(b) / d.Size(); negative < n/3 || negative > n*2/3 {
			t.Errorf("%v: %d of %d are negative", d, negative, n)
		}
	}
	newFiller(3, "w", tensor.Float8E4M3FN).fill(b, 0)
	for _, v := range b {
		if v == 0x80 || v&0x7f == 0x7f {
			t.Fatalf("the 8-bit float %#x is NaN in one of the formats", v)
		}
	}
	newFiller(3, "w", tensor.Float8E5M2).fill(b, 0)
	for _, v := range b {
		if v&0x7c == 0x7c {
			t.Fatalf("%#x is not finite", v)
		}
	}
	newFiller(3, "w", tensor.Bool).fill(b, 0)
	for _, v := range b {
		if v > 1 {
			t.Fatalf("the bool %d", v)
		}
	}
}

// floatOf decodes one little-endian element.
func floatOf(d tensor.DType, b []byte) float64 {
	switch d {
	case tensor.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case tensor.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case tensor.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	}
	h := binary.LittleEndian.Uint16(b) // a normal number of binary16
	v := math.Ldexp(1+float64(h&0x3ff)/1024, int(h>>10&0x1f)-15)
	if h>>15 == 1 {
		v = -v
	}
	return v
}

// Shards hold the same tensors as one file, and their index fits.
func TestGenerateShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	made, err := Generate(t.Context(), dir, Options{Model: "tiny", Shards: 3, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Files) != 4 || filepath.Base(made.Files[3]) != safetensors.IndexName {
		t.Errorf("files %q", made.Files)
	}
	c, err := checkpoint.NewCatalog(checkpoint.CatalogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if p, err := c.Publish(t.Context(), "m", dir); err != nil || p.Tensors != made.Tensors {
		t.Errorf("the directory publishes %d tensors, want %d: %v", p.Tensors, made.Tensors, err)
	}
	whole, tensors := contents(t, generated(t, Options{Seed: 5})), 0
	for _, name := range made.Files[:3] {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range contents(t, b) {
			if tensors++; !bytes.Equal(content, whole[name]) {
				t.Errorf("tensor %q differs", name)
			}
		}
	}
	if tensors != made.Tensors || tensors != len(whole) {
		t.Errorf("the shards have %d tensors, and one file %d, want %d", tensors, len(whole), made.Tensors)
	}
	for _, o := range []Options{{Model: "tiny", Shards: 1000}, {Model: "tiny", Shards: -1}} {
		if _, err := Generate(t.Context(), dir, o); status.CodeOf(err) != status.InvalidArgument {
			t.Errorf("%d shards: %v", o.Shards, err)
		}
	}
}

// contents returns the content of each tensor of a file.
func contents(t *testing.T, file []byte) map[string][]byte {
	t.Helper()
	h, err := safetensors.ReadHeader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]byte)
	for _, info := range h.Tensors() {
		all[info.Name] = file[info.Offset : info.Offset+info.Bytes]
	}
	return all
}

func TestGenerateLeavesNothingWhenItFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	ctx, cancel := context.WithCancel(t.Context())
	var last int64
	_, err := Generate(ctx, path, Options{Model: "tiny", Progress: func(done, total int64) {
		last = done
		cancel()
	}})
	if status.CodeOf(err) != status.Cancelled || last == 0 {
		t.Errorf("got %v after %d bytes", err, last)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("%v is left", entries)
	}
	if _, err := Generate(t.Context(), filepath.Join(dir, "model.bin"), Options{Model: "tiny"}); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("model.bin: %v", err)
	}
	if _, err := Generate(t.Context(), path, Options{Model: "tiny"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Generate(t.Context(), path, Options{Model: "tiny"}); status.CodeOf(err) != status.AlreadyExists {
		t.Errorf("an existing file: %v", err)
	}
	if _, err := Generate(t.Context(), path, Options{Model: "tiny", Force: true}); err != nil {
		t.Error(err)
	}
}

func BenchmarkFill(b *testing.B) {
	buf := make([]byte, blockSize)
	f := newFiller(1, "w", tensor.Float32)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		f.fill(buf, 0)
	}
}

// A tensor that is written in blocks has them in their order.
func TestGenerateATensorInBlocks(t *testing.T) {
	const size = 2*blockSize + 12345
	m := &Model{Name: "m", Specs: []safetensors.Spec{{Name: "x", DType: tensor.Uint8, Shape: tensor.Vector(size)}}, Bytes: size}
	path := filepath.Join(t.TempDir(), "m.safetensors")
	outputs, err := m.outputs(path, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	to, err := checkpoint.Create([]checkpoint.NewFile{outputs[0].NewFile}, checkpoint.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Discard()
	if err := m.write(t.Context(), outputs, to, 7); err != nil {
		t.Fatal(err)
	}
	if unsynced, err := to.Commit(); unsynced != nil || err != nil {
		t.Fatal(unsynced, err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want, got := make([]byte, size), file[outputs[0].offsets[0]:]
	newFiller(7, "x", tensor.Uint8).fill(want, 0)
	if !bytes.Equal(got, want) {
		t.Error("the content differs")
	}
}
