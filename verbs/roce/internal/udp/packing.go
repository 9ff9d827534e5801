package udp

import "golang.org/x/net/ipv4"

// packing is the memory of a Sender for the messages of one call of the kernel.
type packing struct {
	msgs     [maxSegments]ipv4.Message
	to       [maxSegments]*Destination
	n        int // number of msgs in use
	controls [maxSegments]controlCache
	buffers  [][]byte // of segments; grows to the message with the most buffers
}

// reset removes the messages, and the references to their memory.
func (p *packing) reset() {
	for i := range p.msgs[:p.n] {
		p.msgs[i].Buffers = nil
	}
	clear(p.buffers)
	p.buffers, p.n = p.buffers[:0], 0
}

// add packs one datagram, or a super-packet if segment is not 0.
func (p *packing) add(m *Message, segment int, buffers [][]byte) {
	p.to[p.n] = m.To
	p.msgs[p.n] = ipv4.Message{Buffers: buffers, Addr: m.To.udp, OOB: p.controls[p.n].bytesFor(m.To, segment, m.TOS)}
	p.n++
}

// addSegments packs a message as one datagram for each segment.
func (p *packing) addSegments(m *Message) {
	// A segment may begin and end within a buffer, so each segment adds at most one
	// buffer.
	if need := len(m.Buffers) + maxSegments; cap(p.buffers) < need {
		p.buffers = make([][]byte, 0, need)
	}
	first, space := 0, m.Segment
	for _, buffer := range m.Buffers {
		for len(buffer) > 0 {
			n := min(len(buffer), space)
			p.buffers = append(p.buffers, buffer[:n])
			buffer, space = buffer[n:], space-n
			if space == 0 {
				p.add(m, 0, p.buffers[first:])
				first, space = len(p.buffers), m.Segment
			}
		}
	}
	if first < len(p.buffers) {
		p.add(m, 0, p.buffers[first:])
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
