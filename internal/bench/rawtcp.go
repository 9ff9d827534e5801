package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// The raw TCP baseline: a request is a size in 8 bytes, big-endian, its answer
// that many bytes, in the order of the requests.

// tcpServer answers on each connection with the tensors' memory. It owns a
// goroutine that accepts and one for each connection; close waits for them.
type tcpServer struct {
	listener net.Listener
	tensors  map[int64]*tensor.Tensor
	spin     bool // its connections are spinning

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]struct{}
	closed bool
	work   sync.WaitGroup
}

func serveTCP(l net.Listener, tensors map[int64]*tensor.Tensor, spin bool) *tcpServer {
	s := &tcpServer{listener: l, tensors: tensors, spin: spin, conns: make(map[net.Conn]struct{})}
	s.work.Go(s.accept)
	return s
}

func (s *tcpServer) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			conn.Close()
			return
		}
		s.conns[conn] = struct{}{}
		s.work.Go(func() { s.serve(conn) })
		s.mu.Unlock()
	}
}

func (s *tcpServer) serve(accepted net.Conn) {
	defer func() {
		accepted.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, accepted)
	}()
	conn := accepted
	if s.spin {
		spins, err := newSpinning(accepted)
		if err != nil {
			return
		}
		conn = spins
	}
	requests := bufio.NewReader(conn)
	var request [8]byte
	for {
		if _, err := io.ReadFull(requests, request[:]); err != nil {
			return
		}
		t := s.tensors[int64(binary.BigEndian.Uint64(request[:]))]
		if t == nil {
			return
		}
		if _, err := conn.Write(t.Bytes()); err != nil {
			return
		}
	}
}

func (s *tcpServer) close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// tcpClient asks over one connection, on which any number of requests may be
// under way.
type tcpClient struct {
	name    string // of the baseline
	conn    net.Conn
	unwatch func() bool // stops watching the context
	pool    tensor.Allocator

	mu   sync.Mutex    // held while a request is written, so that turns follow requests
	turn chan struct{} // closed when the answer of the last request has been read
}

// dialTCP connects. The end of ctx ends the connection.
func dialTCP(ctx context.Context, address string, pool tensor.Allocator) (*tcpClient, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: %w", RawTCP, err)
	}
	return newTCPClient(ctx, RawTCP, conn, pool), nil
}

// newTCPClient takes over a connection of any kind: TLS and unix sockets carry the same.
func newTCPClient(ctx context.Context, name string, conn net.Conn, pool tensor.Allocator) *tcpClient {
	first := make(chan struct{})
	close(first)
	return &tcpClient{name: name, conn: conn, unwatch: context.AfterFunc(ctx, func() { conn.Close() }), pool: pool, turn: first}
}

// receive gets one answer, straight into memory from the pool.
func (c *tcpClient) receive(size int64) error {
	b, err := c.pool.Allocate(int(size))
	if err != nil {
		return err
	}
	defer b.Release()
	var request [8]byte
	binary.BigEndian.PutUint64(request[:], uint64(size))
	mine := make(chan struct{})
	defer close(mine)

	c.mu.Lock()
	before := c.turn
	c.turn = mine
	_, err = c.conn.Write(request[:])
	c.mu.Unlock()
	if err == nil {
		<-before
		_, err = io.ReadFull(c.conn, b.Bytes())
	}
	if err != nil {
		return status.Errorf(status.Unavailable, "%s: %w", c.name, err)
	}
	return nil
}

func (c *tcpClient) close() {
	c.unwatch()
	c.conn.Close()
}
