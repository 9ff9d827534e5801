package rendezvous

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// FrameIter identifies the run of a loop body that a value belongs to: the
// loop's frame and its iteration. Both are zero outside loops. The widths are
// those of TensorFlow's FrameAndIter.
type FrameIter struct {
	Frame uint64
	Iter  int64
}

// PublicationPrefix begins the edge name of a published tensor's key. A publication
// answers such a key, never a Send (PROTOCOL.md section 2).
const PublicationPrefix = "publication:"

// BufferPrefix begins the edge name of a buffer of a collective operation. The operation answers
// such a key, never a Send (PROTOCOL.md section 2).
const BufferPrefix = "buffer:"

// Key names one value of a step:
//
//	src_device;incarnation;dst_device;name;frame:iter
//
// incarnation is that of the source device, as 16 lower-case hexadecimal digits.
// name is the name of the graph's edge. A Key is immutable. Keys are equal (==)
// when their texts are, and a key has one text. The zero Key names nothing.
type Key struct {
	text        string
	edge        string // part of text
	src, dst    cluster.Device
	incarnation uint64
	frameIter   FrameIter
}

// incarnationDigits is the number of digits of the incarnation in the text of a key.
const incarnationDigits = 16

// CreateKey returns the text of a key. src and dst are full device names; they
// and name must not contain a semicolon. CreateKey does not check them; ParseKey
// does.
func CreateKey(src string, incarnation uint64, dst, name string, fi FrameIter) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, len(src)+len(dst)+len(name)+64)
	b = append(append(b, src...), ';')
	for shift := 4 * (incarnationDigits - 1); shift >= 0; shift -= 4 {
		b = append(b, digits[incarnation>>shift&15])
	}
	b = append(append(append(b, ';'), dst...), ';')
	b = append(append(b, name...), ';')
	b = strconv.AppendUint(b, fi.Frame, 10)
	return string(strconv.AppendInt(append(b, ':'), fi.Iter, 10))
}

// NewKey creates and parses a key in one step. A name that is empty or has a semicolon
// is InvalidArgument.
func NewKey(src cluster.Device, incarnation uint64, dst cluster.Device, name string, fi FrameIter) (Key, error) {
	switch {
	case name == "":
		return Key{}, status.New(status.InvalidArgument, "the edge name is empty: give the value a name")
	case strings.Contains(name, ";"):
		k := Key{edge: name, src: src, dst: dst, frameIter: fi}
		return Key{}, status.Errorf(status.InvalidArgument, "%s: the name has a semicolon, which separates the parts of a key", k.Describe())
	}
	return ParseKey(CreateKey(src.String(), incarnation, dst.String(), name, fi))
}

// ParseKey parses the text of a key; the Key keeps s. Both devices must be full
// device names, in their present or legacy form. The source may be empty: it is
// then the host that gets the request (SrcEmpty). The incarnation may have upper-case
// digits or fewer than 16, as in TensorFlow; the text of the Key has it as CreateKey
// writes it. ParseKey returns InvalidArgument for a frame or iteration that CreateKey
// would write in another way.
func ParseKey(s string) (Key, error) {
	k := Key{text: s}
	var parts [5]string
	rest, found := s, true
	for i := range parts {
		if !found {
			return Key{}, invalidKey(s, "it has "+strconv.Itoa(i)+" parts, want 5: src;incarnation;dst;name;frame:iter")
		}
		parts[i], rest, found = strings.Cut(rest, ";")
	}
	if found {
		return Key{}, invalidKey(s, "it has more than 5 parts")
	}
	var err error
	if parts[0] != "" {
		if k.src, err = cluster.ParseDevice(parts[0]); err != nil {
			return Key{}, invalidKey(s, "source: "+status.From(err).Message())
		}
	}
	var canonicalText bool
	if k.incarnation, canonicalText, err = parseIncarnation(parts[1]); err != nil {
		return Key{}, invalidKey(s, "the incarnation is not a number of 1 to 16 hexadecimal digits")
	}
	if k.dst, err = cluster.ParseDevice(parts[2]); err != nil {
		return Key{}, invalidKey(s, "destination: "+status.From(err).Message())
	}
	if k.edge = parts[3]; k.edge == "" {
		return Key{}, invalidKey(s, "the name is empty")
	}
	var ok bool
	if k.frameIter, ok = parseFrameIter(parts[4]); !ok {
		return Key{}, invalidKey(s, "the last part is not frame:iter, two decimal numbers")
	}
	if !canonicalText { // values are found by the text, which must be the sender's
		k.text = CreateKey(parts[0], k.incarnation, parts[2], parts[3], k.frameIter)
	}
	return k, nil
}

// parseIncarnation parses hexadecimal digits. canonical reports whether s is what
// CreateKey writes.
func parseIncarnation(s string) (n uint64, canonical bool, err error) {
	if len(s) > incarnationDigits || strings.ContainsAny(s, "+-_") {
		return 0, false, strconv.ErrSyntax
	}
	n, err = strconv.ParseUint(s, 16, 64)
	return n, len(s) == incarnationDigits && !strings.ContainsAny(s, "ABCDEF"), err
}

func parseFrameIter(s string) (FrameIter, bool) {
	frame, iter, ok := strings.Cut(s, ":")
	if !ok {
		return FrameIter{}, false
	}
	f, err := strconv.ParseUint(frame, 10, 64)
	if err != nil || !canonical(frame) {
		return FrameIter{}, false
	}
	i, err := strconv.ParseInt(iter, 10, 64)
	if err != nil || !canonical(strings.TrimPrefix(iter, "-")) || iter == "-0" {
		return FrameIter{}, false
	}
	return FrameIter{Frame: f, Iter: i}, true
}

// canonical reports whether a number has neither leading zeros nor a sign.
func canonical(s string) bool {
	return s == "0" || s[0] >= '1' && s[0] <= '9'
}

// invalidKey returns the error for a text that is not a key. The error begins
// with TensorFlow's text, including its two blanks, and ends with the reason.
func invalidKey(s, why string) error {
	if len(s) > maxQuoted {
		s = s[:maxQuoted] + "..."
	}
	return status.Errorf(status.InvalidArgument, "Invalid  rendezvous key: %s: %s", s, why)
}

// String returns the full text.
func (k Key) String() string { return k.text }

// Describe returns what a person needs of the key, for errors and logs:
//
//	edge "x" from /job:a/replica:0/task:0 to /job:b/replica:0/task:1
//
// A device is named unless it is the CPU:0 of its task. The frame and iteration
// follow within loops. The incarnation is left out.
func (k Key) Describe() string {
	b := append(make([]byte, 0, 160), "edge "...)
	if len(k.edge) > maxQuoted {
		b = append(strconv.AppendQuote(b, k.edge[:maxQuoted]), "..."...)
	} else {
		b = strconv.AppendQuote(b, k.edge)
	}
	if !k.SrcEmpty() {
		b = append(append(b, " from "...), place(k.src)...)
	}
	b = append(append(b, " to "...), place(k.dst)...)
	if k.frameIter != (FrameIter{}) {
		b = strconv.AppendUint(append(b, " in frame "...), k.frameIter.Frame, 10)
		b = strconv.AppendInt(append(b, ", iteration "...), k.frameIter.Iter, 10)
	}
	return string(b)
}

// place names a device in the description of a key.
func place(d cluster.Device) string {
	if d.Type == "CPU" && d.Index == 0 {
		return d.Task.String()
	}
	return d.String()
}

// describe is Describe for the text of a key.
func describe(text string) string {
	k, err := ParseKey(text)
	if err != nil { // it was a Key before
		return strconv.Quote(text)
	}
	return k.Describe()
}

// Src returns the device that sends; the zero Device when SrcEmpty.
func (k Key) Src() cluster.Device { return k.src }

// SrcEmpty reports whether the key has no source device. Its source is then the
// host that gets the request.
func (k Key) SrcEmpty() bool { return k.src == cluster.Device{} }

// SrcIncarnation returns the incarnation of the sending device.
func (k Key) SrcIncarnation() uint64 { return k.incarnation }

// Dst returns the device that receives.
func (k Key) Dst() cluster.Device { return k.dst }

// Edge returns the name of the value.
func (k Key) Edge() string { return k.edge }

// FrameIter returns the run of a loop body that the value belongs to.
func (k Key) FrameIter() FrameIter { return k.frameIter }
