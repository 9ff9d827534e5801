package roce

import (
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// burst is what is sent at once: packets, put together to super-packets where they are
// of one length. Headers, trailers and short payloads are in its memory, longer payloads
// where they are.
type burst struct {
	text   []byte   // never grows: pieces point into it
	from   int      // the part of text from here on belongs to no piece yet
	pieces [][]byte // of all messages
	cuts   []int    // where each message begins among them
	msgs   []udp.Message

	packets int
	segment int  // length of the packets of the last message
	inLast  int  // packets in it
	bytes   int  // of it
	closed  bool // nothing goes behind its last packet
	lent    bool // a payload is where it is: it is that of the last queue pair
}

const (
	// maxBurst is how many packets a burst has at most.
	maxBurst = 64
	// copied is up to which length a payload is copied rather than given to the
	// kernel as a piece of its own: a piece costs about as much as 256 bytes.
	copied = 256
	// quantum is what a queue pair may send in its turn: a super-packet of the
	// largest MTU, and what goes before and after it.
	quantum = 72 << 10
	// maxSuper is how many bytes a super-packet has at most: the largest UDP
	// payload of IPv4.
	maxSuper = 65507
)

func (b *burst) begin() {
	if b.text == nil {
		b.text = make([]byte, 0, maxBurst*(wire.MaxHeaderLen+wire.MaxOverhead+copied))
	}
	clear(b.pieces) // memory of regions that may be closed
	b.text, b.from, b.pieces, b.cuts, b.msgs = b.text[:0], 0, b.pieces[:0], b.cuts[:0], b.msgs[:0]
	b.packets, b.closed, b.lent = 0, true, false
}

// room says whether one more packet has room.
func (b *burst) room() bool { return b.packets < maxBurst }

// segmentOf is the length of the segments of the message that a packet may be added to.
func (b *burst) segmentOf(p *packet) int {
	if b.closed {
		return p.size()
	}
	return max(b.segment, p.size())
}

// add adds a packet, to the last message where that is possible and has fewer than
// limit segments. It reports whether it did that. A notification of congestion is not
// capable of ECN: a mark on it would tell nobody anything.
func (b *burst) add(path *wire.Path, p *packet, tos uint8, limit int) (joined bool) {
	if p.Op == wire.CNP {
		tos &^= ecnMask
	}
	size := p.size()
	joined = !b.closed && tos == b.msgs[len(b.msgs)-1].TOS && b.inLast < limit && size <= b.segment && b.bytes+size <= maxSuper
	if !joined {
		b.flush()
		b.cuts = append(b.cuts, len(b.pieces))
		b.msgs = append(b.msgs, udp.Message{Segment: size, TOS: tos})
		b.segment, b.inLast, b.bytes = size, 0, 0
	}
	crc := path.BeginID(size, uint16(b.inLast)) //nolint:gosec // at most maxBurst
	at := len(b.text)
	b.text = p.Append(b.text)
	crc = wire.UpdateHeader(crc, b.text[at:])
	at = len(b.text)
	if p.Len > copied {
		b.flush()
		b.lent = true
		for _, piece := range p.Payload {
			b.pieces = append(b.pieces, piece)
			crc = wire.Update(crc, piece)
		}
	} else {
		for _, piece := range p.Payload {
			b.text = append(b.text, piece...)
		}
	}
	b.text = append(b.text, zeros[:p.Pad]...)
	crc = wire.Update(crc, b.text[at:])
	b.text = wire.AppendICRC(b.text, crc)
	b.packets++
	b.inLast++
	b.bytes += size
	// The first packet of a long message is longer than those behind it: it goes
	// alone. A shorter one is the last of its super-packet.
	b.closed = size < b.segment || p.Op.StartsMessage() && !p.Op.EndsMessage()
	return joined
}

var zeros [4]byte

// flush makes a piece of the text that is in none.
func (b *burst) flush() {
	if len(b.text) > b.from {
		b.pieces = append(b.pieces, b.text[b.from:len(b.text):len(b.text)])
		b.from = len(b.text)
	}
}

// end returns the messages.
func (b *burst) end(to *udp.Destination) []udp.Message {
	b.flush()
	b.cuts = append(b.cuts, len(b.pieces))
	for i := range b.msgs {
		b.msgs[i].To, b.msgs[i].Pieces = to, b.pieces[b.cuts[i]:b.cuts[i+1]]
	}
	return b.msgs
}
