package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/protocoltest"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// message is implemented by every kind.
type message interface {
	Length() int
	Append([]byte) []byte
	Parse([]byte) error
}

func newMessage(k Kind) message {
	switch k {
	case KindHello:
		return new(Hello)
	case KindCredit:
		return new(Credit)
	case KindBye:
		return new(Bye)
	case KindRequest:
		return new(Request)
	case KindMeta:
		return new(Meta)
	case KindReRequest:
		return new(ReRequest)
	case KindEager:
		return new(Eager)
	case KindError:
		return new(Error)
	case KindCancel:
		return new(Cancel)
	case KindCancelled:
		return new(Cancelled)
	case KindAck:
		return new(Ack)
	case KindQuery:
		return new(Query)
	case KindWaiting:
		return new(Waiting)
	case KindUnknown:
		return new(Unknown)
	}
	return nil
}

func counts(n ...uint32) (c Counts) {
	c.N = uint8(copy(c.Of[:], n)) //nolint:gosec // a handful
	return c
}

func ids(of ...uint64) (s IDs) {
	for _, id := range of {
		s = s.Append(id)
	}
	return s
}

func listOf(h Header, of ...uint64) list { return list{h, ids(of...)} }

const key = "/job:ps/replica:0/task:0/device:CPU:0;00000000deadbeef;/job:worker/replica:0/task:1/device:CPU:0;w;0:0"

var (
	vector = Value{DType: tensor.Float32, Size: 8, Dims: AppendDims(nil, 2)}
	large  = Value{DType: tensor.BFloat16, Size: 33554432, Dims: AppendDims(nil, 4096, 4096)}
	dest   = Dest{Imm: NewImm(5, 17), N: 1, Rails: [MaxRails]Remote{{0x7f12_3400_0000, 0x8877}}}
	// onSecond has two rails, of which the second carries the content.
	onSecond = Dest{Imm: NewImm(5, 17), N: 2, First: 1, Rails: [MaxRails]Remote{1: {0x7f12_3400_0000, 0x8877}}}
	// onBoth has two rails of different devices. Both carry the content, beginning with
	// the second.
	onBoth = Dest{Imm: NewImm(5, 17), N: 2, First: 1, Rails: [MaxRails]Remote{{0x7f12_3400_0000, 0x8877}, {0x2000, 0x6655}}}
)

// examples are the messages in the hex blocks of PROTOCOL.md section 8, by block name.
var examples = []struct {
	name string
	m    message
}{
	{"verbs-hello", &Hello{Header: Header{Taken: counts(0)}, Generation: 7, From: 0x1111, To: 0x2222}},
	{"verbs-credit", &Credit{Header{Taken: counts(64, 3)}}},
	{"verbs-bye", &Bye{Header: Header{Taken: counts(9)}, Reason: []byte("shutdown")}},
	{"verbs-request", &Request{
		Header: Header{Taken: counts(1)}, ID: 0x0a0b0c0d0e0f0102, Requester: 0x1111, Responder: 0x2222, Step: -3, Attempt: 1, Key: []byte(key),
	}},
	{"verbs-request-dest", &Request{
		Header: Header{Taken: counts(2), Acks: ids(0x0a0b0c0d0e0f0102)},
		ID:     0x42, Requester: 0x1111, Responder: 0x2222, Left: 6, Step: 4, Attempt: 2, Key: []byte(key), HasDest: true, Dest: dest, Value: large,
	}},
	{"verbs-meta", &Meta{Header: Header{Taken: counts(3)}, ID: 0x42, Value: large}},
	{"verbs-rerequest", &ReRequest{Header: Header{Taken: counts(4)}, ID: 0x42, HasDest: true, Dest: dest}},
	{"verbs-rerequest-second", &ReRequest{Header: Header{Taken: counts(4, 0)}, ID: 0x42, HasDest: true, Dest: onSecond}},
	{"verbs-rerequest-both", &ReRequest{Header: Header{Taken: counts(4, 0)}, ID: 0x42, HasDest: true, Dest: onBoth}},
	{"verbs-rerequest-none", &ReRequest{Header: Header{Taken: counts(4)}, ID: 0x42}},
	{"verbs-eager", &Eager{Header: Header{Taken: counts(5)}, ID: 0x43, Value: vector, Content: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}}},
	{"verbs-eager-dead", &Eager{Header: Header{Taken: counts(5)}, ID: 0x44, Value: Value{DType: tensor.Float32, Dead: true, Dims: AppendDims(nil, 0)}}},
	{"verbs-error", &Error{
		Header: Header{Taken: counts(6)}, ID: 0x45, Code: status.Aborted, Text: []byte("Cleanup 4"), Payloads: Payloads(nil).Append("k", []byte("v")),
	}},
	{"verbs-cancel", &Cancel{listOf(Header{WantCounts: true, Taken: counts(7)}, 0x46)}},
	{"verbs-cancelled", &Cancelled{list: listOf(Header{}, 0x46), Each: true}},
	{"verbs-ack", &Ack{listOf(Header{WantCounts: true, Taken: counts(8)}, 0x42, 0x43)}},
	{"verbs-query", &Query{listOf(Header{Taken: counts(9)}, 0x47)}},
	{"verbs-waiting", &Waiting{listOf(Header{Taken: counts(9)}, 0x47)}},
	{"verbs-unknown", &Unknown{listOf(Header{Taken: counts(9)}, 0x47)}},
}

// TestV1EveryKindIsAsProtocolWritesIt compares the encoding of each example with
// PROTOCOL.md, and decodes and encodes the bytes of PROTOCOL.md.
func TestV1EveryKindIsAsProtocolWritesIt(t *testing.T) {
	seen := make(map[Kind]bool)
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			want := protocoltest.Example(t, e.name)
			got := e.m.Append(nil)
			if !bytes.Equal(got, want) {
				t.Errorf("written:\n%s\nPROTOCOL.md section 8:\n%s", hex.Dump(got), hex.Dump(want))
			}
			if n := e.m.Length(); n != len(got) {
				t.Errorf("Length is %d, and %d bytes were written", n, len(got))
			}
			kind, err := KindOf(want)
			if err != nil {
				t.Fatal(err)
			}
			seen[kind] = true
			m := newMessage(kind)
			if err := m.Parse(want); err != nil {
				t.Fatal(err)
			}
			if again := m.Append(nil); !bytes.Equal(again, want) {
				t.Errorf("read and written again:\n%s", hex.Dump(again))
			}
		})
	}
	for k := KindHello; k.Valid(); k++ {
		if !seen[k] {
			t.Errorf("PROTOCOL.md section 8 has no example of %v", k)
		}
	}
}

func TestV1FieldsComeBack(t *testing.T) {
	for _, e := range examples {
		b := e.m.Append(nil)
		kind, _ := KindOf(b)
		m := newMessage(kind)
		if err := m.Parse(b); err != nil {
			t.Errorf("%s: %v", e.name, err)
			continue
		}
		if got, want := fmt.Sprintf("%+v", m), fmt.Sprintf("%+v", e.m); got != want {
			t.Errorf("%s came back as\n%s, want\n%s", e.name, got, want)
		}
	}
}

// TestV1EveryByteCounts cuts every example at every length, and appends a byte.
func TestV1EveryByteCounts(t *testing.T) {
	for _, e := range examples {
		b := e.m.Append(nil)
		kind, _ := KindOf(b)
		for n := range b {
			if newMessage(kind).Parse(b[:n:n]) == nil {
				t.Errorf("%s is taken when cut to %d bytes", e.name, n)
			}
			// Now the header gives the length of the cut message: the body is too short.
			cut := bytes.Clone(b[:n])
			if n >= headerFixed {
				cut[4], cut[5] = byte(n), byte(n>>8)
			}
			if newMessage(kind).Parse(cut) == nil && kind != KindEager && kind != KindError {
				t.Errorf("%s is taken when cut to %d bytes with the length in its header changed", e.name, n)
			}
		}
		long := append(bytes.Clone(b), 0)
		if newMessage(kind).Parse(long) == nil {
			t.Errorf("%s is taken with a byte after its end", e.name)
		}
		// Now the header counts the byte: the body is too long.
		binary.LittleEndian.PutUint32(long[4:], uint32(len(long)))
		if newMessage(kind).Parse(long) == nil {
			t.Errorf("%s is taken with a byte after its body", e.name)
		}
	}
}

// TestV8Dims0To254: values of 0 to 254 dimensions are encoded and decoded.
func TestV8Dims0To254(t *testing.T) {
	for n := range tensor.MaxDims + 1 {
		dims := make([]int64, n)
		for i := range dims {
			dims[i] = 1
		}
		v := Value{DType: tensor.Uint8, Size: 1, Dims: AppendDims(nil, dims...)}
		m := Meta{Header: Header{Taken: counts(make([]uint32, MaxRails)...), Acks: make(IDs, 8*MaxHeaderAcks)}, ID: 1, Value: v}
		b := m.Append(nil)
		if len(b) > MinMessage {
			t.Fatalf("META with %d dimensions takes %d bytes", n, len(b))
		}
		var got Meta
		if err := got.Parse(b); err != nil {
			t.Fatalf("%d dimensions: %v", n, err)
		}
		if !got.Value.Same(&v) || got.Value.Dims.Count() != n {
			t.Fatalf("%d dimensions came back as %d", n, got.Value.Dims.Count())
		}
	}
	m := Meta{ID: 1, Value: Value{DType: tensor.Uint8, Dims: make(Dims, 8*255)}}
	if err := m.Parse(m.Append(nil)); err == nil {
		t.Error("255 dimensions are taken")
	}
}

// TestValuesThatNoTensorHas: a type, shape and size that do not match are refused.
func TestValuesThatNoTensorHas(t *testing.T) {
	for name, v := range map[string]Value{
		"size too small":      {DType: tensor.Float32, Size: 7, Dims: AppendDims(nil, 2)},
		"size too large":      {DType: tensor.Float32, Size: 9, Dims: AppendDims(nil, 2)},
		"negative":            {DType: tensor.Float32, Size: 8, Dims: AppendDims(nil, -2)},
		"overflow":            {DType: tensor.Uint8, Size: 0, Dims: AppendDims(nil, 1<<32, 1<<32)},
		"overflow of bytes":   {DType: tensor.Float64, Size: 0, Dims: AppendDims(nil, 1<<61)},
		"huge":                {DType: tensor.String, Proto: true, Size: math.MaxUint64},
		"no type":             {DType: 0},
		"unknown type":        {DType: 77},
		"reference":           {DType: tensor.Float32 + 100, Size: 4},
		"strings as memory":   {DType: tensor.String, Size: 0, Dims: AppendDims(nil, 0)},
		"memory as proto":     {DType: tensor.Float32, Proto: true, Size: 4},
		"dead with a content": {DType: tensor.Float32, Dead: true, Size: 4, Dims: AppendDims(nil, 1)},
		"dead with a size":    {DType: tensor.Float32, Dead: true, Size: 4, Dims: AppendDims(nil, 0)},
		"dead with a shape":   {DType: tensor.Float32, Dead: true, Dims: AppendDims(nil, 1<<31-1)},
		"dead scalar":         {DType: tensor.Float32, Dead: true},
		"dead matrix":         {DType: tensor.Float32, Dead: true, Dims: AppendDims(nil, 0, 1<<40)},
		"dead doubles":        {DType: tensor.Float64, Dead: true, Dims: AppendDims(nil, 0)},
		"dead strings":        {DType: tensor.String, Dead: true, Proto: true, Dims: AppendDims(nil, 0)},
	} {
		m := Meta{ID: 1, Value: v}
		if err := m.Parse(m.Append(nil)); err == nil {
			t.Errorf("%s is taken: %+v", name, m.Value)
		}
	}
	for name, v := range map[string]Value{
		"scalar":        {DType: tensor.Float64, Size: 8},
		"empty":         {DType: tensor.Float64, Dims: AppendDims(nil, 0, 1<<40)},
		"over 4 GiB":    {DType: tensor.Float64, Size: 8 << 40, Dims: AppendDims(nil, 1<<40)},
		"strings":       {DType: tensor.String, Proto: true, Size: 70_000, Dims: AppendDims(nil, 3)},
		"dead":          {DType: tensor.Float32, Dead: true, Dims: AppendDims(nil, 0)},
		"empty strings": {DType: tensor.String, Proto: true, Size: 0, Dims: AppendDims(nil, 0)},
	} {
		m := Meta{ID: 1, Value: v}
		if err := m.Parse(m.Append(nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestV22ErrorText: the longest text is decoded, a longer one is refused.
func TestV22ErrorText(t *testing.T) {
	text := status.Truncate(strings.Repeat("ä", 1<<19))
	m := Error{Header: Header{Taken: counts(make([]uint32, MaxRails)...)}, ID: 1, Code: status.Internal, Text: []byte(text)}
	b := m.Append(nil)
	if len(b) > MinMessage {
		t.Fatalf("the longest text makes a message of %d bytes", len(b))
	}
	var got Error
	if err := got.Parse(b); err != nil || string(got.Text) != text {
		t.Errorf("it came back with %v", err)
	}
	m.Text = make([]byte, maxErrorText+1)
	if err := m.Parse(m.Append(nil)); err == nil {
		t.Error("a longer text is taken")
	}
}

// TestFirstRailThatIsNotThere: the first rail of a destination is one of its rails.
func TestFirstRailThatIsNotThere(t *testing.T) {
	m := ReRequest{Header: Header{Taken: counts(4, 0)}, ID: 0x42, HasDest: true, Dest: onSecond}
	m.Dest.First = 2
	if err := new(ReRequest).Parse(m.Append(nil)); err == nil || !strings.Contains(err.Error(), "begins on rail 2 of 2") {
		t.Error(err)
	}
}

// TestKeysOfRequests: a key has 1 to MaxKey bytes, and its length field is checked.
func TestKeysOfRequests(t *testing.T) {
	for _, n := range []int{1, len(key), MaxKey} {
		m := Request{Header: Header{Taken: counts(1)}, ID: 1, Attempt: 1, Key: bytes.Repeat([]byte{'k'}, n)}
		var got Request
		if err := got.Parse(m.Append(nil)); err != nil || !bytes.Equal(got.Key, m.Key) {
			t.Errorf("a key of %d bytes came back as %d, %v", n, len(got.Key), err)
		}
	}
	m := Request{Header: Header{Taken: counts(1)}, ID: 1, Attempt: 1}
	if err := new(Request).Parse(m.Append(nil)); err == nil || !strings.Contains(err.Error(), "REQUEST has no key") {
		t.Errorf("no key: %v", err)
	}
	m.Key = []byte(key)
	for n := range len(key) + 2 {
		b := m.Append(nil)
		b[headerFixed+4+44] = byte(n)
		if err := new(Request).Parse(b); (err == nil) != (n == len(key)) {
			t.Errorf("a key of %d bytes with the length field %d: %v", len(key), n, err)
		}
	}
	b := m.Append(nil)
	b[headerFixed+4+46] = 5
	if err := new(Request).Parse(b); err == nil || !strings.Contains(err.Error(), "0x0005 where zero belongs") {
		t.Errorf("a reserved field that is not 0: %v", err)
	}
}

func TestImm(t *testing.T) {
	for _, c := range []struct {
		slot, generation uint32
		want             uint32
	}{{0, 0, 0}, {5, 17, 0x5011}, {Slots - 1, SlotGenerations - 1, math.MaxUint32}, {1, SlotGenerations, 0x1000}} {
		i := NewImm(c.slot, c.generation)
		if uint32(i) != c.want || i.Slot() != c.slot || i.Generation() != c.generation%SlotGenerations {
			t.Errorf("slot %d generation %d is %#x: %v", c.slot, c.generation, uint32(i), i)
		}
	}
}

// TestListCapacity: that many ids fit into a message, and no more.
func TestListCapacity(t *testing.T) {
	for _, rails := range []int{1, MaxRails} {
		n := ListCapacity(MinMessage, rails)
		h := Header{Taken: counts(make([]uint32, rails)...)}
		m := Cancel{list{h, make(IDs, 8*n)}}
		if m.Length() > MinMessage || m.Length()+8 <= MinMessage {
			t.Errorf("%d ids take %d bytes", n, m.Length())
		}
	}
}

// TestParseAllocatesNothing: a parsed message refers to the bytes of the message.
func TestParseAllocatesNothing(t *testing.T) {
	for _, e := range examples {
		b := e.m.Append(nil)
		kind, _ := KindOf(b)
		m := newMessage(kind)
		out := make([]byte, 0, 4096)
		if n := testing.AllocsPerRun(100, func() {
			if m.Parse(b) != nil {
				t.Fatal("refused")
			}
			out = m.Append(out[:0])
		}); n != 0 {
			t.Errorf("%s allocates %v times", e.name, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, e := range examples {
		f.Add(e.m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, err := KindOf(b)
		if err != nil {
			return
		}
		m := newMessage(kind)
		if m.Parse(b) != nil {
			return
		}
		again := m.Append(nil)
		if !bytes.Equal(again, b) {
			t.Errorf("%v:\n%s\nbecame\n%s", kind, hex.Dump(b), hex.Dump(again))
		}
		if m.Length() != len(b) {
			t.Errorf("%v of %d bytes has Length %d", kind, len(b), m.Length())
		}
		if e, ok := m.(*Error); ok {
			for rest := e.Payloads; len(rest) > 0; {
				_, _, rest, _ = rest.Next()
			}
		}
	})
}
