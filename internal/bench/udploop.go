package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// The UDP baseline is what a device in software cannot do without, and nothing
// else. Each process has one socket that receives and one that sends, neither of
// them connected, with the options of verbs/roce/internal/udp and no privilege. Packets have
// the sizes of RoCE at a path MTU of 4096, go and come in super-packets, and are
// copied to where they belong:
//
//	kind 1 │ 0 3 │ id 4 │ number 4 │ 0 to 4096 bytes │ CRC-32 of all that 4
//
// Numbers are little-endian. A question asks for a size in 8 bytes and says in 2
// where the asker receives; its number is 0. The content comes in the order of the
// questions, each packet with the number that packets to this peer have. An ack
// has the number of packets that have come, and the id 0: one for each super-packet
// that brought content, and one for the questions that came together, behind the
// first that is answered. What is sent and not acked never exceeds loopWindow, so
// nothing is lost; what is lost all the same ends the connection.
const (
	loopQuestion = 1 + iota
	loopContent
	loopAck
)

const (
	loopHeader   = 12
	loopTrailer  = 4
	loopMTU      = 4096
	loopPacket   = loopHeader + loopMTU + loopTrailer
	loopAsk      = 8 + 2
	loopSegments = 15 // of one super-packet: 64 KiB
)

const (
	// loopWindow is the most that is sent and not acked, in bytes: three
	// super-packets. The receive buffer that Linux gives by default without
	// privilege (net.core.rmem_max of 208 KiB) lost nothing up to 256 KiB.
	loopWindow = 208 << 10
	// loopPatience is how long nothing may come after a question. Nothing is sent
	// twice.
	loopPatience = 10 * time.Second
)

// loopPart is a packet that has come, in memory that the next one takes.
type loopPart struct {
	kind    byte
	id      uint32
	number  uint32
	content []byte
	from    netip.AddrPort
}

// loopEnd is one process's sockets.
type loopEnd struct {
	in, out *net.UDPConn
	port    uint16           // of in
	batch   *ipv4.PacketConn // of out

	data, control []byte // of what has come; the one who receives has them

	// The one who sends has what follows. The last place is for an ack.
	headers  [loopSegments + 1][loopHeader]byte
	trailers [loopSegments + 1][loopTrailer]byte
	pieces   [3 * (loopSegments + 1)][]byte
	messages [2]ipv4.Message
	n        int // of messages
}

func newLoopEnd() (_ *loopEnd, err error) {
	e := &loopEnd{data: make([]byte, 1<<16), control: make([]byte, loopControl)}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	free := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(loopback))
	if e.in, err = net.ListenUDP("udp4", free); err != nil {
		return nil, err
	}
	if e.out, err = net.ListenUDP("udp4", free); err != nil {
		return nil, err
	}
	e.batch, e.port = ipv4.NewPacketConn(e.out), e.address().Port()
	return e, e.configure()
}

// address is where it receives.
func (e *loopEnd) address() netip.AddrPort {
	a, _ := e.in.LocalAddr().(*net.UDPAddr)
	return a.AddrPort()
}

func (e *loopEnd) close() {
	for _, c := range []*net.UDPConn{e.in, e.out} {
		if c != nil {
			_ = c.Close() // nothing is lost with it
		}
	}
}

// fill makes the header and the trailer of a packet.
func (e *loopEnd) fill(i int, kind byte, id, number uint32, content []byte) {
	h, t := e.headers[i][:], e.trailers[i][:]
	h[0] = kind
	binary.LittleEndian.PutUint32(h[4:], id)
	binary.LittleEndian.PutUint32(h[8:], number)
	binary.LittleEndian.PutUint32(t, crc32.Update(crc32.ChecksumIEEE(h), crc32.IEEETable, content))
	e.pieces[3*i], e.pieces[3*i+1], e.pieces[3*i+2] = h, content, t
}

// add makes a message of packets that were filled in, from first to before end: a
// super-packet when it has that control message.
func (e *loopEnd) add(to *net.UDPAddr, first, end int, control []byte) {
	e.messages[e.n] = ipv4.Message{Buffers: e.pieces[3*first : 3*end], Addr: to, OOB: control}
	e.n++
}

// ack adds an ack.
func (e *loopEnd) ack(to *net.UDPAddr, number uint32) {
	e.fill(loopSegments, loopAck, 0, number, nil)
	e.add(to, loopSegments, loopSegments+1, nil)
}

// flush sends what was added.
func (e *loopEnd) flush() error {
	for sent := 0; sent < e.n; {
		n, err := e.batch.WriteBatch(e.messages[sent:e.n], 0)
		if err != nil {
			return err
		}
		sent += n
	}
	e.n = 0
	return nil
}

// receive waits for something, and gives it to take packet by packet.
func (e *loopEnd) receive(take func(loopPart) error) error {
	n, control, _, from, err := e.in.ReadMsgUDPAddrPort(e.data, e.control)
	if err != nil {
		return err
	}
	segment := segmentOf(e.control[:control], n)
	for data := e.data[:n]; len(data) > 0; {
		packet := data[:min(segment, len(data))]
		data = data[len(packet):]
		body := len(packet) - loopTrailer
		if body < loopHeader || crc32.ChecksumIEEE(packet[:body]) != binary.LittleEndian.Uint32(packet[body:]) {
			return errors.New("a packet is damaged")
		}
		if err := take(loopPart{
			kind: packet[0], id: binary.LittleEndian.Uint32(packet[4:]), number: binary.LittleEndian.Uint32(packet[8:]),
			content: packet[loopHeader:body], from: from,
		}); err != nil {
			return err
		}
	}
	return nil
}

// loopServer answers one client, with the tensors' memory. It owns a goroutine;
// close waits for it.
type loopServer struct {
	*loopEnd
	tensors map[int64]*tensor.Tensor
	done    chan struct{}

	client      *net.UDPAddr // where it receives; of the goroutine, as all that follows
	questions   []loopAnswer
	sent, acked uint32 // packets of content
	owed        bool   // an ack of questions
}

// loopAnswer is a question, and what is left of its answer.
type loopAnswer struct {
	id   uint32
	rest []byte
	none bool // that was asked for no bytes, and takes a packet all the same
}

func serveLoop(tensors map[int64]*tensor.Tensor) (*loopServer, error) {
	end, err := newLoopEnd()
	if err != nil {
		return nil, err
	}
	s := &loopServer{loopEnd: end, tensors: tensors, done: make(chan struct{})}
	go s.serve()
	return s, nil
}

func (s *loopServer) serve() {
	defer close(s.done)
	for s.receive(s.take) == nil && s.answer() == nil { // else it is closed, or the client sees what is missing
	}
}

// take takes a question or an ack.
func (s *loopServer) take(p loopPart) error {
	switch {
	case p.kind == loopAck:
		s.acked = p.number
		return nil
	case p.kind != loopQuestion || len(p.content) != loopAsk:
		return errors.New("this is no question")
	}
	t := s.tensors[int64(binary.LittleEndian.Uint64(p.content))] //nolint:gosec // what is no size is in no map
	if t == nil {
		return errors.New("there is no such tensor")
	}
	client := netip.AddrPortFrom(p.from.Addr(), binary.LittleEndian.Uint16(p.content[8:]))
	if s.client == nil || s.client.AddrPort() != client { // another one: it begins anew
		s.client, s.questions, s.sent, s.acked = net.UDPAddrFromAddrPort(client), s.questions[:0], 0, 0
	}
	s.questions = append(s.questions, loopAnswer{id: p.id, rest: t.Bytes(), none: t.Size() == 0})
	s.owed = true
	return nil
}

// answer sends what the window has room for.
func (s *loopServer) answer() error {
	answered := 0
	for answered < len(s.questions) && (s.sent-s.acked+loopSegments)*loopPacket <= loopWindow {
		q := &s.questions[answered]
		n := 0
		for ; n < loopSegments && (len(q.rest) > 0 || q.none); n++ {
			k := min(len(q.rest), loopMTU)
			s.fill(n, loopContent, q.id, s.sent, q.rest[:k])
			s.sent++
			q.rest, q.none = q.rest[k:], false
		}
		s.add(s.client, 0, n, loopSuper)
		if s.owed { // behind what is waited for
			s.owed = false
			s.ack(s.client, 0)
		}
		if err := s.flush(); err != nil {
			return err
		}
		if len(q.rest) == 0 {
			answered++
		}
	}
	s.questions = append(s.questions[:0], s.questions[answered:]...)
	return nil
}

func (s *loopServer) close() {
	s.loopEnd.close()
	<-s.done
}

// loopClient asks. Any number of questions may be under way. Whoever waits for an
// answer receives for all, one at a time, so that nobody is told by another what
// came for himself.
type loopClient struct {
	*loopEnd
	server  *net.UDPAddr
	unwatch func() bool // stops watching the context
	pool    tensor.Allocator

	mu      sync.Mutex // guards what follows, and what the one who sends has
	last    uint32     // id that was given out
	waiting map[uint32]*loopWait
	err     error // why it has ended

	baton chan struct{} // who has taken it receives, and has what follows

	expected uint32 // number of the next packet
	id       uint32 // of current
	current  *loopWait
	content  bool // has come, and is not acked
}

// loopWait is who waits for an answer.
type loopWait struct {
	rest []byte // of the destination; of the one who receives
	done chan error
}

// dialLoop makes the client. The end of ctx ends what it does.
func dialLoop(ctx context.Context, address string, pool tensor.Allocator) (*loopClient, error) {
	server, err := net.ResolveUDPAddr("udp4", address)
	var end *loopEnd
	if err == nil {
		end, err = newLoopEnd()
	}
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: %w", UDPLoop, err)
	}
	c := &loopClient{loopEnd: end, server: server, pool: pool, waiting: make(map[uint32]*loopWait), baton: make(chan struct{}, 1)}
	c.unwatch = context.AfterFunc(ctx, end.close)
	return c, nil
}

// receive gets one answer into memory from the pool.
func (c *loopClient) receive(size int64) error {
	b, err := c.pool.Allocate(int(size))
	if err != nil {
		return err
	}
	defer b.Release()
	return c.fetch(size, b.Bytes())
}

// fetch gets an answer of a size into memory, to which nobody writes any more when
// it returns.
func (c *loopClient) fetch(size int64, into []byte) error {
	w := &loopWait{rest: into, done: make(chan error, 1)}
	if err := c.ask(size, w); err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case c.baton <- struct{}{}: // kept until the own answer has come: each hand-over is a wake-up
		for len(w.done) == 0 {
			c.some()
		}
		<-c.baton
		return <-w.done
	}
}

// ask sends a question.
func (c *loopClient) ask(size int64, w *loopWait) error {
	var question [loopAsk]byte
	binary.LittleEndian.PutUint64(question[:], uint64(size)) //nolint:gosec // sizes are not negative
	binary.LittleEndian.PutUint16(question[8:], c.port)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.last++
	c.waiting[c.last] = w
	c.fill(0, loopQuestion, c.last, 0, question[:])
	c.add(c.server, 0, 1, nil)
	err := c.flush()
	if err == nil {
		err = c.in.SetReadDeadline(time.Now().Add(loopPatience))
	}
	if err != nil {
		delete(c.waiting, c.last)
		return status.Errorf(status.Unavailable, "%s: %w", UDPLoop, err)
	}
	return nil
}

// some receives once, and acks.
func (c *loopClient) some() {
	err := c.loopEnd.receive(c.take)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.content {
		c.content = false
		c.ack(c.server, c.expected)
		err = c.flush()
	}
	if err == nil || c.err != nil {
		return
	}
	c.err = status.Errorf(status.Unavailable, "%s: %w", UDPLoop, err)
	for _, w := range c.waiting {
		w.done <- c.err
	}
	clear(c.waiting)
}

// take copies a packet to where it belongs.
func (c *loopClient) take(p loopPart) error {
	if p.kind != loopContent {
		return nil
	}
	if p.number != c.expected {
		return fmt.Errorf("packet %d came in place of packet %d: something was lost", p.number, c.expected)
	}
	c.expected++
	c.content = true
	if c.current == nil || p.id != c.id {
		c.mu.Lock()
		c.id, c.current = p.id, c.waiting[p.id]
		c.mu.Unlock()
	}
	if c.current == nil || len(p.content) > len(c.current.rest) {
		return fmt.Errorf("%d bytes came that nobody asked for", len(p.content))
	}
	c.current.rest = c.current.rest[copy(c.current.rest, p.content):]
	if len(c.current.rest) == 0 {
		c.mu.Lock()
		delete(c.waiting, p.id)
		c.mu.Unlock()
		c.current.done <- nil
		c.current = nil
	}
	return nil
}

func (c *loopClient) close() {
	c.unwatch()
	c.loopEnd.close()
}
