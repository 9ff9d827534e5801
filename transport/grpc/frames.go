package grpctransport

import "encoding/binary"

// The frames of HTTP/2 that this package looks at (RFC 9113, section 6).
const (
	frameHeader  = 9 // bytes before the payload
	prefaceBytes = 24

	frameData    = 0x0
	frameHeaders = 0x1
	frameReset   = 0x3

	flagEndStream = 0x1
	flagPadded    = 0x8

	enhanceYourCalm = 0xb // an error code (section 7), which gRPC reads as ResourceExhausted
)

// frames finds the frames in the bytes of one direction of a connection, in whatever parts they come.
// It checks nothing: gRPC reads the same bytes, and ends a connection with wrong ones.
type frames struct {
	skip   int // bytes that are no frames, or the rest of a payload that nobody wants
	header [frameHeader]byte
	have   int // bytes in header

	frame frame
	left  int // bytes of its payload that have not come
}

// between reports whether the next byte begins a frame.
func (f *frames) between() bool { return f.skip == 0 && f.left == 0 && f.have == 0 }

// rest returns how many bytes come at least until the next frame begins.
func (f *frames) rest() int {
	if n := max(f.skip, f.left); n > 0 {
		return n
	}
	return frameHeader - f.have
}

// appendFrame appends the header of a frame.
func appendFrame(b []byte, f frame) []byte {
	b = append(b, byte(f.length>>16), byte(f.length>>8), byte(f.length), f.kind, f.flags) //nolint:gosec // 24 bits
	return binary.BigEndian.AppendUint32(b, f.stream)
}

// frame is the header of a frame.
type frame struct {
	kind, flags byte
	stream      uint32
	length      int
}

// scan calls begin for each header in b, and payload for each part of the payloads that begin wants.
func (f *frames) scan(b []byte, begin func(frame) (wanted bool), payload func(frame, []byte) error) error {
	for len(b) > 0 {
		switch {
		case f.skip > 0:
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
		case f.left > 0:
			n := min(f.left, len(b))
			f.left -= n
			if err := payload(f.frame, b[:n]); err != nil {
				return err
			}
			b = b[n:]
		default:
			n := copy(f.header[f.have:], b)
			f.have += n
			b = b[n:]
			if f.have < frameHeader {
				return nil
			}
			f.have = 0
			h := f.header
			f.frame = frame{kind: h[3], flags: h[4], stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31), length: int(h[0])<<16 | int(h[1])<<8 | int(h[2])}
			if begin(f.frame) {
				f.left = f.frame.length
			} else {
				f.skip = f.frame.length
			}
		}
	}
	return nil
}
