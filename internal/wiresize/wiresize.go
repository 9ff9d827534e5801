// Package wiresize estimates what a protobuf message takes in memory before it is parsed.
//
// An empty message in a repeated field is two bytes on the wire and some hundred bytes as a Go struct,
// so a message of a stranger must be counted before proto.Unmarshal allocates it:
//
//	bytes of the message ──► Scanner.Size ──► beyond the bound: refused
//	                             │            else: charged, then proto.Unmarshal
//	                             └── tables of the message types, by reflection, each made once
//
// The scan allocates nothing and reads each byte at most once. The estimate counts structs with the
// sizes of Go's allocator, slices and maps with the space that they grow into, and strings with their
// bytes. Protobuf's Any is opaque: a caller that parses its value scans that value, too.
package wiresize

import (
	"math"
	"reflect"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tryst-rdma/tryst/status"
)

// Scanner has the tables of the message types that it has seen. The zero value has none. It is safe
// for concurrent use.
type Scanner struct {
	mu     sync.Mutex // serialises the making of tables
	tables sync.Map   // protoreflect.MessageDescriptor to *table; complete ones only
}

// table is what a message type takes.
type table struct {
	size  int64         // of the struct, as it is allocated
	low   [lowest]field // by number
	other map[protowire.Number]field
}

// lowest is the number of fields that a table has in an array.
const lowest = 32

// field is what a field takes, each time that it occurs.
type field struct {
	kind    fieldKind
	wire    protowire.Type // of an element
	each    int64          // an element beside its content
	first   int64          // the first entry of a map in a message
	number  uint           // of the map in its message
	message *table         // of an element, or of the entries of a map
}

type fieldKind uint8

const (
	unknown  fieldKind = iota
	scalar             // a number
	numbers            // a list of numbers, packed or not
	text               // a string or bytes
	message            // one message; the parser merges several
	messages           // a list of messages
	entries            // a map
)

// Size returns about how many bytes proto.Unmarshal allocates for b, as a message of the type of m. It
// returns ResourceExhausted as soon as they are more than bound, and InvalidArgument when messages are
// nested too deep or b is no message. It does not keep b.
func (s *Scanner) Size(b []byte, m proto.Message, bound int64) (int64, error) {
	r := m.ProtoReflect()
	d := r.Descriptor()
	made, ok := s.tables.Load(d)
	if !ok {
		made = s.make(r)
	}
	t := made.(*table) //nolint:errcheck // nothing else is stored
	c := count{bound: bound}
	ok = c.add(t.size) && c.scan(b, t, new(packed), 1)
	switch {
	case ok:
		return c.size, nil
	case c.deep:
		return c.size, status.Errorf(status.InvalidArgument, "a %s has messages nested more than %d deep", d.FullName(), maxDepth)
	case c.wrong:
		return c.size, status.Errorf(status.InvalidArgument, "%d bytes are no message %s", len(b), d.FullName())
	}
	return c.size, status.Errorf(status.ResourceExhausted, "a %s of %d bytes takes more than %d bytes when it is parsed, the limit", d.FullName(), len(b), bound)
}

// Bound returns how many bytes a message of n bytes may take when it is parsed: 12 times as many, and
// 64 MiB.
func Bound(n int) int64 { return maxGrowth*int64(n) + minGrowth }

// count is the state of a scan.
type count struct {
	size, bound int64
	deep, wrong bool
}

func (c *count) add(n int64) bool {
	c.size += n
	return c.size <= c.bound
}

// packed is what the packed lists of a message take, with those of its singular messages, in bytes.
// The parser copies a list for each further part of it, which takes time and memory with the square
// of the parts; writers of protobuf make one part.
type packed int64

// scan counts a message, without its struct. It returns false when the scan must end.
func (c *count) scan(b []byte, t *table, lists *packed, depth int) bool {
	if depth > maxDepth {
		c.deep = true
		return false
	}
	var maps uint64 // that have an entry
	for len(b) > 0 {
		number, wire, n := protowire.ConsumeTag(b)
		if n < 0 {
			c.wrong = true
			return false
		}
		b = b[n:]
		f := &noField
		if number < lowest {
			f = &t.low[number]
		} else if o, ok := t.other[number]; ok {
			f = &o
		}
		if n = c.value(b, number, wire, f, &maps, lists, depth); n < 0 {
			return false
		}
		b = b[n:]
	}
	return true
}

var noField field

// value counts the value of a field and returns its length on the wire, or −1 when the scan must end.
func (c *count) value(b []byte, number protowire.Number, wire protowire.Type, f *field, maps *uint64, lists *packed, depth int) int {
	if wire != protowire.BytesType {
		n := protowire.ConsumeFieldValue(number, wire, b)
		if n < 0 {
			c.wrong = true
			return -1
		}
		size := f.each
		if f.kind != scalar && f.kind != numbers || wire != f.wire {
			size = unknownFactor * int64(n+protowire.SizeTag(number))
		}
		if !c.add(size) {
			return -1
		}
		return n
	}
	content, n := protowire.ConsumeBytes(b)
	if n < 0 {
		c.wrong = true
		return -1
	}
	var ok bool
	switch f.kind {
	case text:
		ok = c.add(f.each + allocated(int64(len(content))))
	case numbers:
		size := f.each * elements(content, f.wire)
		ok = c.add(size + int64(*lists))
		*lists += packed(size)
	case message:
		ok = c.add(f.each) && c.scan(content, f.message, lists, depth+1)
	case messages:
		ok = c.add(f.each) && c.scan(content, f.message, new(packed), depth+1)
	case entries:
		size := f.each
		if *maps&(1<<(f.number%64)) == 0 {
			*maps |= 1 << (f.number % 64)
			size += f.first
		}
		ok = c.add(size) && c.scan(content, f.message, new(packed), depth+1)
	default:
		ok = c.add(unknownFactor * int64(n+protowire.SizeTag(number)))
	}
	if !ok {
		return -1
	}
	return n
}

// elements returns the number of packed elements.
func elements(b []byte, wire protowire.Type) int64 {
	switch wire {
	case protowire.Fixed32Type:
		return int64(len(b)) / 4
	case protowire.Fixed64Type:
		return int64(len(b)) / 8
	}
	n := int64(0)
	for _, c := range b {
		n += int64(^c >> 7)
	}
	return n
}

// allocated returns what Go's allocator takes for n bytes: it has size classes, at most an eighth apart.
func allocated(n int64) int64 {
	if n == 0 {
		return 0
	}
	return n + n/8 + 8
}

// make returns the table of a message type, with those of the messages in it.
func (s *Scanner) make(m protoreflect.Message) *table {
	s.mu.Lock()
	defer s.mu.Unlock()
	made := make(map[protoreflect.MessageDescriptor]*table)
	t := s.table(m, made)
	for d, t := range made {
		s.tables.LoadOrStore(d, t)
	}
	return t
}

// table returns the table of a message type. made has those that are not in s yet, which may refer to
// one another.
func (s *Scanner) table(m protoreflect.Message, made map[protoreflect.MessageDescriptor]*table) *table {
	d := m.Descriptor()
	if t, ok := s.tables.Load(d); ok {
		return t.(*table) //nolint:errcheck // nothing else is stored
	}
	if t := made[d]; t != nil {
		return t
	}
	t := &table{size: allocated(goSize(m)), other: make(map[protowire.Number]field)}
	made[d] = t
	fields := d.Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		f := s.field(m, fd, made)
		f.number = uint(i) //nolint:gosec // small
		if fd.Number() < lowest {
			t.low[fd.Number()] = f
		} else {
			t.other[fd.Number()] = f
		}
	}
	return t
}

func (s *Scanner) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, made map[protoreflect.MessageDescriptor]*table) field {
	if fd.IsMap() {
		key, value := s.element(fd.MapKey()), s.element(fd.MapValue())
		entry := &table{}
		entry.low[1], entry.low[2] = key, value
		slot := inline(fd.MapKey()) + inline(fd.MapValue())
		if fd.MapValue().Message() != nil {
			of := s.table(m.NewField(fd).Map().NewValue().Message(), made)
			entry.low[2] = field{kind: message, wire: protowire.BytesType, message: of}
			entry.size = of.size
		}
		return field{
			kind: entries, wire: protowire.BytesType, message: entry,
			each: grown*slot + mapEntry + entry.size, first: mapHeader + mapGroup*slot,
		}
	}
	f := s.element(fd)
	switch {
	case fd.Message() != nil && fd.Kind() == protoreflect.GroupKind:
		return field{} // retained like an unknown field, and none of ours has any
	case fd.Message() != nil && fd.IsList():
		f.message = s.table(m.NewField(fd).List().NewElement().Message(), made)
		f.each = f.message.size + grown*inline(fd)
	case fd.Message() != nil:
		f.kind, f.message = message, s.table(m.NewField(fd).Message(), made)
		f.each = f.message.size
	case fd.IsList():
		f.each = grown * inline(fd)
		if f.kind == scalar {
			f.kind = numbers
		}
	case fd.HasPresence():
		f.each = present // by a pointer
	}
	if fd.ContainingOneof() != nil {
		f.each += present
	}
	return f
}

// element returns a field that occurs once and has no message.
func (*Scanner) element(fd protoreflect.FieldDescriptor) field {
	f := field{kind: scalar, wire: protowire.VarintType}
	switch fd.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		f.kind, f.wire = text, protowire.BytesType
	case protoreflect.MessageKind, protoreflect.GroupKind:
		f.kind, f.wire = messages, protowire.BytesType
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind:
		f.wire = protowire.Fixed32Type
	case protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind:
		f.wire = protowire.Fixed64Type
	}
	return f
}

// inline returns the size of a value in a slice or map, in bytes.
func inline(fd protoreflect.FieldDescriptor) int64 {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return 1
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind,
		protoreflect.Sfixed32Kind, protoreflect.FloatKind, protoreflect.EnumKind:
		return 4
	case protoreflect.StringKind:
		return 16
	case protoreflect.BytesKind:
		return 24
	default: // numbers of 64 bits, and pointers to messages
		return 8
	}
}

// goSize returns the size of a message's struct.
func goSize(m protoreflect.Message) int64 {
	if t := reflect.TypeOf(m.Interface()); t.Kind() == reflect.Pointer {
		return int64(min(t.Elem().Size(), math.MaxInt32)) //nolint:gosec // within its range
	}
	return 0
}
