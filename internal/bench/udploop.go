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

// The UDP baseline does what every device in software has to do, and nothing else.
// Each process has one socket that receives and one that sends, both unconnected,
// with the options of verbs/roce/internal/udp and no privilege. Packets have the
// sizes of RoCE at a path MTU of 4096, travel in super-packets, and are copied to
// their destination:
//
//	kind 1 │ 0 3 │ id 4 │ number 4 │ 0 to 4096 bytes │ CRC-32 of all before 4
//
// Numbers are little-endian. A request has the size in 8 bytes and the port where
// the requester receives in 2; its number is 0. The content comes in the order of
// the requests; its packets are numbered. An ack has the number of packets that
// have arrived, and the id 0: one for each super-packet with content, and one for
// the requests that arrived together, behind the first response to them. At most
// loopWindow bytes are sent and not acked, so that no buffer overflows. A lost
// packet ends the connection.
const (
	loopRequest = 1 + iota
	loopContent
	loopAck
)

const (
	loopHeader      = 12
	loopTrailer     = 4
	loopMTU         = 4096
	loopPacket      = loopHeader + loopMTU + loopTrailer
	loopRequestSize = 8 + 2
	loopSegments    = 15 // of one super-packet: 64 KiB
)

const (
	// loopWindow is how many bytes may be sent and not acked: three super-packets.
	// They fit into the receive buffer that Linux gives without privilege
	// (net.core.rmem_max of 208 KiB).
	loopWindow = 208 << 10
	// loopDeadline is how long after a request the next packet may take. Nothing is
	// sent twice.
	loopDeadline = 10 * time.Second
)

// loopPart is a packet that has arrived. Its content is valid until the next one.
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

	data, control []byte // of the last super-packet; owned by the receiving goroutine

	// The fields below are owned by the sending goroutine. The last place is for an ack.
	headers  [loopSegments + 1][loopHeader]byte
	trailers [loopSegments + 1][loopTrailer]byte
	buffers  [3 * (loopSegments + 1)][]byte
	messages [2]ipv4.Message
	n        int // number of messages
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

// address returns the address at which it receives.
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

// fill writes the header and the trailer of a packet.
func (e *loopEnd) fill(i int, kind byte, id, number uint32, content []byte) {
	h, t := e.headers[i][:], e.trailers[i][:]
	h[0] = kind
	binary.LittleEndian.PutUint32(h[4:], id)
	binary.LittleEndian.PutUint32(h[8:], number)
	binary.LittleEndian.PutUint32(t, crc32.Update(crc32.ChecksumIEEE(h), crc32.IEEETable, content))
	e.buffers[3*i], e.buffers[3*i+1], e.buffers[3*i+2] = h, content, t
}

// add makes a message of the packets from first to before end, which fill has
// written: a super-packet if control asks for one.
func (e *loopEnd) add(to *net.UDPAddr, first, end int, control []byte) {
	e.messages[e.n] = ipv4.Message{Buffers: e.buffers[3*first : 3*end], Addr: to, OOB: control}
	e.n++
}

// ack adds an ack.
func (e *loopEnd) ack(to *net.UDPAddr, number uint32) {
	e.fill(loopSegments, loopAck, 0, number, nil)
	e.add(to, loopSegments, loopSegments+1, nil)
}

// flush sends the added messages.
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

// receive waits for a super-packet and calls take for each of its packets.
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

// loopServer responds to one client, from the tensors' memory. It owns a goroutine;
// close waits for it.
type loopServer struct {
	*loopEnd
	tensors map[int64]*tensor.Tensor
	done    chan struct{}

	// The fields below are owned by the goroutine.
	client      *net.UDPAddr // where the client receives
	requests    []loopResponse
	sent, acked uint32 // packets of content
	owed        bool   // an ack of requests is to be sent
}

// loopResponse is the part of a response that is not sent yet.
type loopResponse struct {
	id    uint32
	rest  []byte
	empty bool // a request for 0 bytes: the response is one packet without content
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
	for s.receive(s.take) == nil && s.respond() == nil { // after an error the client times out
	}
}

// take processes a request or an ack.
func (s *loopServer) take(p loopPart) error {
	switch {
	case p.kind == loopAck:
		s.acked = p.number
		return nil
	case p.kind != loopRequest || len(p.content) != loopRequestSize:
		return errors.New("the packet is no request")
	}
	t := s.tensors[int64(binary.LittleEndian.Uint64(p.content))] //nolint:gosec // an invalid size is not in the map
	if t == nil {
		return errors.New("there is no such tensor")
	}
	client := netip.AddrPortFrom(p.from.Addr(), binary.LittleEndian.Uint16(p.content[8:]))
	if s.client == nil || s.client.AddrPort() != client { // another client: the numbers start again
		s.client, s.requests, s.sent, s.acked = net.UDPAddrFromAddrPort(client), s.requests[:0], 0, 0
	}
	s.requests = append(s.requests, loopResponse{id: p.id, rest: t.Bytes(), empty: t.Size() == 0})
	s.owed = true
	return nil
}

// respond sends as much content as the window allows.
func (s *loopServer) respond() error {
	sent := 0
	for sent < len(s.requests) && (s.sent-s.acked+loopSegments)*loopPacket <= loopWindow {
		q := &s.requests[sent]
		n := 0
		for ; n < loopSegments && (len(q.rest) > 0 || q.empty); n++ {
			k := min(len(q.rest), loopMTU)
			s.fill(n, loopContent, q.id, s.sent, q.rest[:k])
			s.sent++
			q.rest, q.empty = q.rest[k:], false
		}
		s.add(s.client, 0, n, loopSuper)
		if s.owed { // behind the content, which the client waits for
			s.owed = false
			s.ack(s.client, 0)
		}
		if err := s.flush(); err != nil {
			return err
		}
		if len(q.rest) == 0 {
			sent++
		}
	}
	s.requests = append(s.requests[:0], s.requests[sent:]...)
	return nil
}

func (s *loopServer) close() {
	s.loopEnd.close()
	<-s.done
}

// loopClient sends requests, any number at a time. The goroutine that holds the
// token receives for all goroutines that wait, so that a response does not cost a
// wake-up.
type loopClient struct {
	*loopEnd
	server  *net.UDPAddr
	unwatch func() bool // stops watching the context
	pool    tensor.Allocator

	mu      sync.Mutex // guards the fields below, and those that send
	last    uint32     // last id in use
	waiting map[uint32]*loopWait
	err     error // why the connection has ended

	token chan struct{} // holds a value while a goroutine receives; that one owns the fields below

	expected uint32 // number of the next packet
	id       uint32 // of current
	current  *loopWait
	content  bool // content has arrived that is not acked
}

// loopWait is a request that waits for its response.
type loopWait struct {
	rest []byte // of the destination; owned by the receiving goroutine
	done chan error
}

// dialLoop makes the client. When ctx ends, so does the connection.
func dialLoop(ctx context.Context, address string, pool tensor.Allocator) (*loopClient, error) {
	server, err := net.ResolveUDPAddr("udp4", address)
	var end *loopEnd
	if err == nil {
		end, err = newLoopEnd()
	}
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: %w", UDPLoop, err)
	}
	c := &loopClient{loopEnd: end, server: server, pool: pool, waiting: make(map[uint32]*loopWait), token: make(chan struct{}, 1)}
	c.unwatch = context.AfterFunc(ctx, end.close)
	return c, nil
}

// receive receives one response into memory from the pool.
func (c *loopClient) receive(size int64) error {
	b, err := c.pool.Allocate(int(size))
	if err != nil {
		return err
	}
	defer b.Release()
	return c.fetch(size, b.Bytes())
}

// fetch receives a response of size bytes into memory. Nothing writes into the memory
// after it has returned.
func (c *loopClient) fetch(size int64, into []byte) error {
	w := &loopWait{rest: into, done: make(chan error, 1)}
	if err := c.request(size, w); err != nil {
		return err
	}
	select {
	case err := <-w.done:
		return err
	case c.token <- struct{}{}: // kept until the own response has arrived: each hand-over is a wake-up
		for len(w.done) == 0 {
			c.some()
		}
		<-c.token
		return <-w.done
	}
}

// request sends a request.
func (c *loopClient) request(size int64, w *loopWait) error {
	var request [loopRequestSize]byte
	binary.LittleEndian.PutUint64(request[:], uint64(size)) //nolint:gosec // sizes are not negative
	binary.LittleEndian.PutUint16(request[8:], c.port)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.last++
	c.waiting[c.last] = w
	c.fill(0, loopRequest, c.last, 0, request[:])
	c.add(c.server, 0, 1, nil)
	err := c.flush()
	if err == nil {
		err = c.in.SetReadDeadline(time.Now().Add(loopDeadline))
	}
	if err != nil {
		delete(c.waiting, c.last)
		return status.Errorf(status.Unavailable, "%s: %w", UDPLoop, err)
	}
	return nil
}

// some receives one super-packet and acks it.
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

// take copies the content of a packet to its destination.
func (c *loopClient) take(p loopPart) error {
	if p.kind != loopContent {
		return nil
	}
	if p.number != c.expected {
		return fmt.Errorf("packet %d arrived in place of packet %d: a packet was lost", p.number, c.expected)
	}
	c.expected++
	c.content = true
	if c.current == nil || p.id != c.id {
		c.mu.Lock()
		c.id, c.current = p.id, c.waiting[p.id]
		c.mu.Unlock()
	}
	if c.current == nil || len(p.content) > len(c.current.rest) {
		return fmt.Errorf("%d bytes arrived that were not requested", len(p.content))
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
