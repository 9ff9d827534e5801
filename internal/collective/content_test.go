package collective

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
)

func mustAny(content []byte) *anypb.Any {
	return &anypb.Any{TypeUrl: extraURL, Value: appendContent(nil, content, DefaultChunk)}
}

// TestContentIsThatOfGeneratedCode: TensorFlow parses what is written by hand, and the other way
// round.
func TestContentIsThatOfGeneratedCode(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 4097, 10000} {
		for _, chunk := range []int{-1, 1, 100, DefaultChunk} {
			content := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, n/7+1)[:n]
			var extra tfpb.RecvBufRespExtra
			if err := proto.Unmarshal(appendContent(nil, content, chunk), &extra); err != nil {
				t.Fatal(err)
			}
			for i, part := range extra.GetTensorContent() {
				if chunk > 0 && len(part) != min(chunk, n-i*chunk) {
					t.Errorf("%d bytes in chunks of %d: chunk %d has %d", n, chunk, i, len(part))
				}
			}
			if !bytes.Equal(bytes.Join(extra.GetTensorContent(), nil), content) {
				t.Errorf("%d bytes in chunks of %d are not the content", n, chunk)
			}
			options, err := anypb.New(&extra)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, n)
			if err := copyContent(got, &tfpb.RecvBufResponse{TransportOptions: options}); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes in chunks of %d are not read back: %v", n, chunk, err)
			}
		}
	}
	if err := copyContent(make([]byte, 1), &tfpb.RecvBufResponse{TransportOptions: &anypb.Any{TypeUrl: "x"}}); err == nil {
		t.Error("options of another type are accepted")
	}
}

// FuzzContent: no response makes copyContent write beyond the destination or panic, and what it
// accepts is what generated code reads.
func FuzzContent(f *testing.F) {
	f.Add([]byte{}, 0)
	f.Add(appendContent(nil, make([]byte, 100), 7), 100)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x7f}, 8)
	f.Add([]byte{0x12, 1, 0, 0x0a, 1, 5}, 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		n &= 1<<12 - 1
		memory := make([]byte, n+8)
		err := copyContent(memory[:n:n], &tfpb.RecvBufResponse{TransportOptions: &anypb.Any{TypeUrl: extraURL, Value: b}})
		if !bytes.Equal(memory[n:], make([]byte, 8)) {
			t.Fatal("bytes beyond the destination were written")
		}
		var extra tfpb.RecvBufRespExtra
		if parsed := proto.Unmarshal(b, &extra); err == nil && parsed == nil && !bytes.Equal(memory[:n], bytes.Join(extra.GetTensorContent(), nil)) {
			t.Errorf("%x: generated code reads another content", b)
		}
	})
}

func TestBufferKeys(t *testing.T) {
	m := group(1, 1)
	for _, step := range []int64{0, 1, 1<<57 - 1, -5} {
		k, err := bufferKey(step, m.list[1], device(0, 0), "1:2:0:0:0:1:2")
		if err != nil {
			t.Fatal(err)
		}
		got, key, ok := parseBuffer(k.Edge())
		if got != step || key != "1:2:0:0:0:1:2" || !ok {
			t.Errorf("step %d: %q is parsed as %d, %q, %v", step, k.Edge(), got, key, ok)
		}
		if wireStep(step) >= 0 != (step < 0) {
			t.Errorf("the buffers of step %d have the step %d", step, wireStep(step))
		}
	}
	p := newNetwork(t, 1).process(0)
	for _, edge := range []string{"x", "buffer", rendezvous.BufferPrefix, rendezvous.BufferPrefix + "1", rendezvous.BufferPrefix + "x:k", rendezvous.BufferPrefix + "11111111111111111:k"} {
		k, err := rendezvous.NewKey(device(0, 0), 1000, device(1, 0), edge, rendezvous.FrameIter{})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, ok := parseBuffer(edge); ok {
			t.Errorf("%q is parsed", edge)
		}
		if _, ok := p.Publisher().TakePublished(k); ok {
			t.Errorf("%q has a value", edge)
		}
		ended := false
		answers := p.Publisher().RecvPublished(t.Context(), k, func(_ rendezvous.Value, _ rendezvous.Args, err error) { ended = err != nil })
		if answers != p.Publisher().Publishes(k) || answers != ended {
			t.Errorf("%q: answers %v, ended %v", edge, answers, ended)
		}
	}
}
