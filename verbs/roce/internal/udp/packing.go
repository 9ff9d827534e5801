package udp

import "golang.org/x/net/ipv4"

// packing is the memory of a Sender for the messages of one call of the kernel.
type packing struct {
	msgs     [maxSegments]ipv4.Message
	to       [maxSegments]*Destination
	n        int // number of msgs in use
	controls [maxSegments]controlCache
	pieces   [][]byte // of segments; grows to the message with the most pieces
}

// reset removes the messages, and the references to their memory.
func (p *packing) reset() {
	for i := range p.msgs[:p.n] {
		p.msgs[i].Buffers = nil
	}
	clear(p.pieces)
	p.pieces, p.n = p.pieces[:0], 0
}

// add packs one datagram, or a super-packet if segment is not 0.
func (p *packing) add(m *Message, segment int, pieces [][]byte) {
	p.to[p.n] = m.To
	p.msgs[p.n] = ipv4.Message{Buffers: pieces, Addr: m.To.udp, OOB: p.controls[p.n].bytesFor(m.To, segment, m.TOS)}
	p.n++
}

// addSegments packs a message as one datagram for each segment.
func (p *packing) addSegments(m *Message) {
	// A segment may begin and end within a piece, so each segment adds at most one
	// piece.
	if need := len(m.Pieces) + maxSegments; cap(p.pieces) < need {
		p.pieces = make([][]byte, 0, need)
	}
	first, space := 0, m.Segment
	for _, piece := range m.Pieces {
		for len(piece) > 0 {
			n := min(len(piece), space)
			p.pieces = append(p.pieces, piece[:n])
			piece, space = piece[n:], space-n
			if space == 0 {
				p.add(m, 0, p.pieces[first:])
				first, space = len(p.pieces), m.Segment
			}
		}
	}
	if first < len(p.pieces) {
		p.add(m, 0, p.pieces[first:])
	}
}

// controlCache holds a control message, and encodes it again only when its content
// changes.
type controlCache struct {
	buf     [controlSpace]byte
	n       int
	valid   bool
	segment int
	tos     uint8
	six     bool
}

func (c *controlCache) bytesFor(d *Destination, segment int, tos uint8) []byte {
	if six := d.addr.Addr().Is6(); !c.valid || c.segment != segment || c.tos != tos || c.six != six {
		*c = controlCache{valid: true, segment: segment, tos: tos, six: six}
		c.n = len(appendControl(c.buf[:0], six, segment, tos))
	}
	return c.buf[:c.n]
}
