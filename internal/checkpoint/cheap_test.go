package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// What a call of Publications costs its server before the client has paid for it.

// manyTensors returns a catalog whose publication p has n tensors of some bytes each, with the given name before their
// numbers.
func manyTensors(t testing.TB, n, bytes int, name string) *Catalog {
	t.Helper()
	c, err := NewCatalog(CatalogOptions{Device: cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU"}, Incarnation: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(bytes), make([]byte, bytes))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	all := make([]*tensor.Tensor, n)
	for i := range all {
		all[i] = x.Named(fmt.Sprint(name, i))
	}
	if _, err := c.PublishTensors(t.Context(), "p%;@/", all...); err != nil {
		t.Fatal(err)
	}
	return c
}

// charging is a stream of Open that charges a message before it is built, as those of transport/grpc.LimitCalls.
type charging struct {
	ctx      context.Context
	charge   func(size int) error
	messages []*trystpb.OpenResponse
}

func (s *charging) SendBuilt(size int, build func() proto.Message) error {
	if err := s.charge(size); err != nil {
		return err
	}
	m, _ := build().(*trystpb.OpenResponse)
	s.messages = append(s.messages, m)
	return nil
}

func (s *charging) Context() context.Context   { return s.ctx }
func (*charging) SetHeader(metadata.MD) error  { return nil }
func (*charging) SendHeader(metadata.MD) error { return nil }
func (*charging) SetTrailer(metadata.MD)       {}
func (*charging) SendMsg(any) error            { return errors.New("it was not charged") }
func (*charging) RecvMsg(any) error            { return errors.New("nothing follows") }

// keysTo sends the keys of all tensors to a stream.
func keysTo(c *Catalog, s *charging, pieceBytes int64) error {
	p := c.publications["p%;@/"]
	return c.sendKeys(p, p.entries, 1, cluster.ClientTask(), pieceBytes, false, &grpc.GenericServerStream[trystpb.OpenRequest, trystpb.OpenResponse]{ServerStream: s})
}

// TestNoKeyIsMadeBeforeItIsCharged: a call that waits until its client reads, or is gone, has made no key.
func TestNoKeyIsMadeBeforeItIsCharged(t *testing.T) {
	c := manyTensors(t, 10_000, 1, "layer.")
	full := errors.New("full")
	s := &charging{ctx: t.Context(), charge: func(int) error { return full }}
	if n := testing.AllocsPerRun(10, func() {
		if err := keysTo(c, s, 0); !errors.Is(err, full) {
			t.Fatal(err)
		}
	}); n > 50 {
		t.Errorf("%v allocations before the first message is charged", n)
	}
}

// TestKeysFitTheirCharge, whatever the names and the pieces are; each message but that of one key is small.
func TestKeysFitTheirCharge(t *testing.T) {
	for name, tt := range map[string]struct {
		prefix     string
		n, bytes   int
		pieceBytes int64
	}{
		"short": {"", 2000, 1, 0}, "escaped": {strings.Repeat("%;\x01", 100), 500, 1, 0}, "long": {strings.Repeat("%", maxName-8), 5, 1, 0},
		"pieces": {"w.", 3, 5<<20 + 1, pieceGrid},
	} {
		c := manyTensors(t, tt.n, tt.bytes, tt.prefix)
		charged := []int(nil)
		s := &charging{ctx: t.Context(), charge: func(size int) error { charged = append(charged, size); return nil }}
		if err := keysTo(c, s, tt.pieceBytes); err != nil {
			t.Fatal(err)
		}
		keys, total := 0, 0
		for i, m := range s.messages {
			size := proto.Size(m)
			if size > charged[i] || len(m.GetKeys()) > 1 && charged[i] > keysPerMessage || m.GetLast() != (i == len(s.messages)-1) {
				t.Errorf("%s: message %d of %d has %d keys and %d bytes, charged %d", name, i, len(s.messages), len(m.GetKeys()), size, charged[i])
			}
			keys, total = keys+len(m.GetKeys()), total+size
		}
		if want := tt.n * max(1, (tt.bytes+pieceGrid-1)/pieceGrid); keys != want {
			t.Errorf("%s: %d keys, want %d", name, keys, want)
		}
		if len(s.messages) > 1+2*total/keysPerMessage && tt.n > 5 {
			t.Errorf("%s: %d messages for %d bytes", name, len(s.messages), total)
		}
	}
}

// TestUnknownNameIsComparedWithSomeNames: any caller may ask for names that are not there, of a publication with
// millions.
func TestUnknownNameIsComparedWithSomeNames(t *testing.T) {
	looked, known := 0, strings.Repeat("n", 1000)
	text := nearest(known+"x", func(yield func(string) bool) {
		for range 1_000_000 {
			looked++
			if !yield(known) {
				return
			}
		}
	})
	if looked < 100 || looked > maxCompared/len(known)+1 {
		t.Errorf("%d names of %d bytes were compared", looked, len(known))
	}
	if !strings.HasPrefix(text, "the nearest are ") {
		t.Error(text)
	}
}

// TestRepeatedNamesOfAnOpenTakeNothing: what the choice of tensors takes depends on the publication, not on the
// number of names in the request.
func TestRepeatedNamesOfAnOpenTakeNothing(t *testing.T) {
	p := manyTensors(t, 1000, 1, "x").publications["p%;@/"]
	names := make([]string, 1<<20)
	for i := range names {
		names[i] = []string{"x999", "x0", "x64", "x63"}[i%4]
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := p.choose(names)
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != 4 || got[0] != p.entries[0] || got[1] != p.entries[63] || got[2] != p.entries[64] || got[3] != p.entries[999] {
		t.Errorf("%d entries, %v", len(got), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes for %d names", used, len(names))
	}
}

// TestListIsMadeOnce for all calls, until a publication comes or goes.
func TestListIsMadeOnce(t *testing.T) {
	c := manyTensors(t, 1, 1, "x")
	s := &service{catalog: c}
	list := func() *trystpb.ListResponse {
		l, err := s.List(t.Context(), new(trystpb.ListRequest))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	names := func(l *trystpb.ListResponse) (names []string) {
		b, err := proto.Marshal(l)
		var parsed trystpb.ListResponse
		if err == nil {
			err = proto.Unmarshal(b, &parsed)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parsed.GetPublications() {
			names = append(names, p.GetName())
		}
		return names
	}
	first := list()
	if list() != first || len(names(first)) != 1 {
		t.Errorf("%v, and then %v", first, list())
	}
	x, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(1), []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	if _, err := c.PublishTensors(t.Context(), "q", x.Named("x")); err != nil {
		t.Fatal(err)
	}
	if got := names(list()); len(got) != 2 {
		t.Errorf("after a publication: %q", got)
	}
	if _, err := c.Withdraw(t.Context(), "p%;@/"); err != nil {
		t.Fatal(err)
	}
	if got := names(list()); len(got) != 1 || got[0] != "q" {
		t.Errorf("after a withdrawal: %q", got)
	}
	c.Close()
	if got := names(list()); len(got) != 0 {
		t.Errorf("after the end: %q", got)
	}
}
