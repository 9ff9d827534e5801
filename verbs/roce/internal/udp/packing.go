package udp

import "golang.org/x/net/ipv4"

// packing is a Sender's room for the messages of one call of the kernel.
type packing struct {
	msgs     [maxSegments]ipv4.Message
	to       [maxSegments]*Destination
	n        int // of msgs in use
	controls [maxSegments]control
	pieces   [][]byte // of what is cut; grows to the message of the most pieces
}

// reset forgets the messages, whose memory is not ours.
func (p *packing) reset() {
	for i := range p.msgs[:p.n] {
		p.msgs[i].Buffers = nil
	}
	clear(p.pieces)
	p.pieces, p.n = p.pieces[:0], 0
}

// add packs one datagram, or with a segment size a super-packet.
func (p *packing) add(m *Message, segment int, pieces [][]byte) {
	p.to[p.n] = m.To
	p.msgs[p.n] = ipv4.Message{Buffers: pieces, Addr: m.To.udp, OOB: p.controls[p.n].of(m.To, segment, m.TOS)}
	p.n++
}

// cut packs a message as one datagram a segment.
func (p *packing) cut(m *Message) {
	// A segment may begin and end within a piece: each has at most one piece more.
	if need := len(m.Pieces) + maxSegments; cap(p.pieces) < need {
		p.pieces = make([][]byte, 0, need)
	}
	first, room := 0, m.Segment
	for _, piece := range m.Pieces {
		for len(piece) > 0 {
			n := min(len(piece), room)
			p.pieces = append(p.pieces, piece[:n])
			piece, room = piece[n:], room-n
			if room == 0 {
				p.add(m, 0, p.pieces[first:])
				first, room = len(p.pieces), m.Segment
			}
		}
	}
	if first < len(p.pieces) {
		p.add(m, 0, p.pieces[first:])
	}
}

// control is a control message that is made again only when something in it
// changed.
type control struct {
	bytes   [controlRoom]byte
	n       int
	made    bool
	segment int
	tos     uint8
	six     bool
}

func (c *control) of(d *Destination, segment int, tos uint8) []byte {
	if six := d.addr.Addr().Is6(); !c.made || c.segment != segment || c.tos != tos || c.six != six {
		*c = control{made: true, segment: segment, tos: tos, six: six}
		c.n = len(appendControl(c.bytes[:0], six, segment, tos))
	}
	return c.bytes[:c.n]
}
