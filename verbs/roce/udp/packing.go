package udp

import "golang.org/x/net/ipv4"

// packing is a Sender's room for the messages of one call of the kernel.
type packing struct {
	msgs     [maxSegments]ipv4.Message
	controls [maxSegments]control
	pieces   [][]byte // of what is cut; grows to the longest message
	n        int      // of what is cut
}

// reset forgets the messages, whose memory is not ours.
func (p *packing) reset() {
	for i := range p.msgs {
		p.msgs[i].Buffers = nil
	}
	clear(p.pieces)
	p.pieces, p.n = p.pieces[:0], 0
}

// whole packs a message as the i-th.
func (p *packing) whole(m *Message, i int) {
	segment := m.Segment
	if segment > 0 && length(m.Pieces) <= segment {
		segment = 0
	}
	p.msgs[i] = ipv4.Message{Buffers: m.Pieces, Addr: m.To.udp, OOB: p.controls[i].of(m.To, segment, m.TOS)}
}

// cut packs a message as one datagram a segment.
func (p *packing) cut(m *Message) {
	// A segment may begin and end within a piece: at most one piece more for each.
	if need := len(m.Pieces) + maxSegments; cap(p.pieces) < need {
		p.pieces = make([][]byte, 0, need)
	}
	first, room := 0, m.Segment
	end := func() {
		i := p.n
		p.msgs[i] = ipv4.Message{Buffers: p.pieces[first:len(p.pieces):len(p.pieces)], Addr: m.To.udp, OOB: p.controls[i].of(m.To, 0, m.TOS)}
		p.n, first, room = i+1, len(p.pieces), m.Segment
	}
	for _, piece := range m.Pieces {
		for len(piece) > 0 {
			n := min(len(piece), room)
			p.pieces = append(p.pieces, piece[:n])
			piece, room = piece[n:], room-n
			if room == 0 {
				end()
			}
		}
	}
	if first < len(p.pieces) {
		end()
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
