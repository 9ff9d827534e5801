package roce

import (
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// burst is what is sent at once: packets, put together to super-packets where they are
// of one length. Headers, trailers and short payloads are in its memory, longer payloads
// where they are.
type batch struct {
	buf        []byte   // never grows: pieces point into it
	pieceStart int      // the part of text from here on belongs to no piece yet
	pieces     [][]byte // of all messages
	starts     []int    // where each message begins among them
	msgs       []udp.Message

	packets    int
	segmentLen int  // length of the packets of the last message
	segments   int  // packets in it
	length     int  // of it
	sealed     bool // nothing goes behind its last packet
	borrowed   bool // a payload is where it is: it is that of the last queue pair
}

const (
	// maxBurst is how many packets a burst has at most.
	maxBatch = 64
	// copied is up to which length a payload is copied rather than given to the
	// kernel as a piece of its own: a piece costs about as much as 256 bytes.
	maxCopied = 256
	// quantum is what a queue pair may send in its turn: a super-packet of the
	// largest MTU, and what goes before and after it.
	quantum = 72 << 10
	// maxSuper is how many bytes a super-packet has at most: the largest UDP
	// payload of IPv4.
	maxSuperPacket = 65507
)

func (b *batch) reset() {
	if b.buf == nil {
		b.buf = make([]byte, 0, maxBatch*(wire.MaxHeaderLen+wire.MaxOverhead+maxCopied))
	}
	clear(b.pieces) // memory of regions that may be closed
	b.buf, b.pieceStart, b.pieces, b.starts, b.msgs = b.buf[:0], 0, b.pieces[:0], b.starts[:0], b.msgs[:0]
	b.packets, b.sealed, b.borrowed = 0, true, false
}

// room says whether one more packet has room.
func (b *batch) hasSpace() bool { return b.packets < maxBatch }

// segmentOf is the length of the segments of the message that a packet may be added to.
func (b *batch) segmentOf(p *packet) int {
	if b.sealed {
		return p.size()
	}
	return max(b.segmentLen, p.size())
}

// add adds a packet, to the last message where that is possible and has fewer than
// limit segments. It reports whether it did that. A notification of congestion is not
// capable of ECN: a mark on it would tell nobody anything.
func (b *batch) add(path *wire.Path, p *packet, tos uint8, limit int) (joined bool) {
	if p.Op == wire.CNP {
		tos &^= ecnMask
	}
	size := p.size()
	joined = !b.sealed && tos == b.msgs[len(b.msgs)-1].TOS && b.segments < limit && size <= b.segmentLen && b.length+size <= maxSuperPacket
	if !joined {
		b.flush()
		b.starts = append(b.starts, len(b.pieces))
		b.msgs = append(b.msgs, udp.Message{Segment: size, TOS: tos})
		b.segmentLen, b.segments, b.length = size, 0, 0
	}
	crc := path.BeginID(size, uint16(b.segments)) //nolint:gosec // at most maxBurst
	at := len(b.buf)
	b.buf = p.Append(b.buf)
	crc = wire.UpdateHeader(crc, b.buf[at:])
	at = len(b.buf)
	if p.Len > maxCopied {
		b.flush()
		b.borrowed = true
		for _, piece := range p.Payload {
			b.pieces = append(b.pieces, piece)
			crc = wire.Update(crc, piece)
		}
	} else {
		for _, piece := range p.Payload {
			b.buf = append(b.buf, piece...)
		}
	}
	b.buf = append(b.buf, zeros[:p.Pad]...)
	crc = wire.Update(crc, b.buf[at:])
	b.buf = wire.AppendICRC(b.buf, crc)
	b.packets++
	b.segments++
	b.length += size
	// The first packet of a long message is longer than those behind it: it goes
	// alone. A shorter one is the last of its super-packet.
	b.sealed = size < b.segmentLen || p.Op.StartsMessage() && !p.Op.EndsMessage()
	return joined
}

var zeros [4]byte

// flush makes a piece of the text that is in none.
func (b *batch) flush() {
	if len(b.buf) > b.pieceStart {
		b.pieces = append(b.pieces, b.buf[b.pieceStart:len(b.buf):len(b.buf)])
		b.pieceStart = len(b.buf)
	}
}

// end returns the messages.
func (b *batch) messages(to *udp.Destination) []udp.Message {
	b.flush()
	b.starts = append(b.starts, len(b.pieces))
	for i := range b.msgs {
		b.msgs[i].To, b.msgs[i].Pieces = to, b.pieces[b.starts[i]:b.starts[i+1]]
	}
	return b.msgs
}
