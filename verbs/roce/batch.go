package roce

import (
	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// batch collects the packets of one call of the kernel. It joins packets of one length
// into super-packets. It copies headers, ICRCs and short payloads into its own buffer
// and refers to longer payloads in place.
type batch struct {
	buf         []byte   // fixed capacity: buffers point into it
	bufferStart int      // what follows in buf belongs to no buffer yet
	buffers     [][]byte // buffers of all messages
	starts      []int    // index of the first buffer of each message
	msgs        []udp.Message

	packets    int
	segmentLen int  // length of the segments of the last message
	segments   int  // segments of the last message
	length     int  // bytes of the last message
	sealed     bool // no packet may be added to the last message
	borrowed   bool // a buffer refers to memory of the last packet's queue pair
}

const (
	// maxBatch is the maximum number of packets of a batch.
	maxBatch = 64
	// maxCopied is the length up to which a payload is copied. A longer one is a buffer
	// of its own for the kernel, which costs about as much as copying 256 bytes.
	maxCopied = 256
	// quantum is what a queue pair may send in its turn: a super-packet of the largest
	// MTU, and the packets before and after it.
	quantum = 72 << 10
	// maxSuperPacket is the maximum length of a super-packet: the largest UDP payload
	// of IPv4.
	maxSuperPacket = 65507
)

func (b *batch) reset() {
	if b.buf == nil {
		b.buf = make([]byte, 0, maxBatch*(rocewire.MaxHeaderLen+rocewire.MaxOverhead+maxCopied))
	}
	clear(b.buffers) // drop references to memory of regions
	b.buf, b.bufferStart, b.buffers, b.starts, b.msgs = b.buf[:0], 0, b.buffers[:0], b.starts[:0], b.msgs[:0]
	b.packets, b.sealed, b.borrowed = 0, true, false
}

// hasSpace reports whether another packet fits.
func (b *batch) hasSpace() bool { return b.packets < maxBatch }

// segmentOf returns the segment length of the message that p would be added to.
func (b *batch) segmentOf(p *packet) int {
	if b.sealed {
		return p.size()
	}
	return max(b.segmentLen, p.size())
}

// add adds a packet. It joins the last message if lengths and traffic class allow it
// and the message has fewer than limit segments, and reports whether it did. A CNP is
// sent without ECN: nobody reacts to a mark on it.
func (b *batch) add(path *rocewire.Path, p *packet, tos uint8, limit int) (joined bool) {
	if p.Op == rocewire.CNP {
		tos &^= ecnMask
	}
	size := p.size()
	joined = !b.sealed && tos == b.msgs[len(b.msgs)-1].TOS && b.segments < limit && size <= b.segmentLen && b.length+size <= maxSuperPacket
	if !joined {
		b.flush()
		b.starts = append(b.starts, len(b.buffers))
		b.msgs = append(b.msgs, udp.Message{Segment: size, TOS: tos})
		b.segmentLen, b.segments, b.length = size, 0, 0
	}
	crc := path.BeginID(size, uint16(b.segments)) //nolint:gosec // less than maxBatch
	at := len(b.buf)
	b.buf = p.Append(b.buf)
	crc = rocewire.UpdateHeader(crc, b.buf[at:])
	at = len(b.buf)
	if p.Len > maxCopied {
		b.flush()
		b.borrowed = true
		for _, buffer := range p.Payload {
			b.buffers = append(b.buffers, buffer)
			crc = rocewire.Update(crc, buffer)
		}
	} else {
		for _, buffer := range p.Payload {
			b.buf = append(b.buf, buffer...)
		}
	}
	b.buf = append(b.buf, zeros[:p.Pad]...)
	crc = rocewire.Update(crc, b.buf[at:])
	b.buf = rocewire.AppendICRC(b.buf, crc)
	b.packets++
	b.segments++
	b.length += size
	// The first packet of a long message is longer than the next ones, so it goes
	// alone. A shorter packet ends its super-packet.
	b.sealed = size < b.segmentLen || p.Op.StartsMessage() && !p.Op.EndsMessage()
	return joined
}

var zeros [4]byte

// flush makes a buffer of the bytes in buf that belong to none.
func (b *batch) flush() {
	if len(b.buf) > b.bufferStart {
		b.buffers = append(b.buffers, b.buf[b.bufferStart:len(b.buf):len(b.buf)])
		b.bufferStart = len(b.buf)
	}
}

// messages returns the messages of the batch. They are valid until reset.
func (b *batch) messages(to *udp.Destination) []udp.Message {
	b.flush()
	b.starts = append(b.starts, len(b.buffers))
	for i := range b.msgs {
		b.msgs[i].To, b.msgs[i].Buffers = to, b.buffers[b.starts[i]:b.starts[i+1]]
	}
	return b.msgs
}
