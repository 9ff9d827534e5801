package grpctransport

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// resets is a proxy that reads HTTP/2 and resets streams, as proxies do that are overloaded
// or restart. The server's trailers do not reach the client then.
type resets struct {
	listener net.Listener
	backend  string
	conns    sync.WaitGroup

	mu    sync.Mutex // guards what follows
	rules map[string]*resetRule
	open  []net.Conn
}

// resetRule describes which calls of a method are reset.
type resetRule struct {
	code  http2.ErrCode
	times int // how many calls more
	after int // bytes of the answer that come before
	done  int // how many have been
}

func newResets(t testing.TB, backend string) *resets {
	p := &resets{listener: listen(t), backend: backend, rules: make(map[string]*resetRule)}
	p.conns.Go(func() {
		for {
			client, err := p.listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", backend)
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			p.open = append(p.open, client, server)
			p.mu.Unlock()
			c := &resetConn{p: p, client: client, server: server, streams: make(map[uint32]*resetStream)}
			p.conns.Go(c.up)
			p.conns.Go(c.down)
		}
	})
	t.Cleanup(func() {
		p.listener.Close()
		p.mu.Lock()
		for _, c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.conns.Wait()
	})
	return p
}

// reset has the next calls of a method reset. The method is the end of its path.
func (p *resets) reset(method string, r resetRule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[method] = &r
}

// resetsOf is how many calls of a method have been reset.
func (p *resets) resetsOf(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rules[method]; r != nil {
		return r.done
	}
	return 0
}

// resetConn is one connection through the proxy.
type resetConn struct {
	p              *resets
	client, server net.Conn

	mu      sync.Mutex // guards what follows, and writes to the server
	streams map[uint32]*resetStream
}

type resetStream struct {
	method string
	bytes  int // of the answer
	dead   bool
}

// resetFrame is a frame as it is on the wire.
type resetFrame struct {
	header  http2.FrameHeader
	payload []byte
}

func readFrame(r io.Reader) (f resetFrame, err error) {
	if f.header, err = http2.ReadFrameHeader(r); err != nil {
		return f, err
	}
	f.payload = make([]byte, f.header.Length)
	_, err = io.ReadFull(r, f.payload)
	return f, err
}

func (f *resetFrame) bytes() []byte {
	n := f.header.Length
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), byte(f.header.Type), byte(f.header.Flags), 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[5:], f.header.StreamID)
	return append(b, f.payload...)
}

// number is a frame that holds a number.
func number(kind http2.FrameType, stream, n uint32) []byte {
	f := resetFrame{http2.FrameHeader{Type: kind, Length: 4, StreamID: stream}, binary.BigEndian.AppendUint32(nil, n)}
	return f.bytes()
}

// answer sends the server a frame in place of the client.
func (c *resetConn) answer(kind http2.FrameType, stream, n uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.server.Write(number(kind, stream, n))
	return err
}

// up forwards the client's frames to the server, and records the method of each stream. grpc-go sends
// HEADERS without padding, and small ones in one frame.
func (c *resetConn) up() {
	defer c.server.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.client, preface); err != nil {
		return
	}
	if _, err := c.server.Write(preface); err != nil {
		return
	}
	headers := hpack.NewDecoder(4096, nil)
	for {
		f, err := readFrame(c.client)
		if err != nil {
			return
		}
		c.mu.Lock()
		if f.header.Type == http2.FrameHeaders {
			fields, err := headers.DecodeFull(f.payload)
			if err != nil {
				c.mu.Unlock()
				return
			}
			s := new(resetStream)
			for _, field := range fields {
				if field.Name == ":path" {
					s.method = field.Value[strings.LastIndexByte(field.Value, '/')+1:]
				}
			}
			c.streams[f.header.StreamID] = s
		}
		_, err = c.server.Write(f.bytes())
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// down forwards the server's frames to the client. It forwards HEADERS also of a reset stream, since
// the compression of later HEADERS depends on them.
func (c *resetConn) down() {
	defer c.client.Close()
	for {
		f, err := readFrame(c.server)
		if err != nil {
			return
		}
		c.mu.Lock()
		s := c.streams[f.header.StreamID]
		c.mu.Unlock()
		dead := s != nil && s.dead
		if dead && f.header.Type == http2.FrameData {
			if len(f.payload) > 0 && c.answer(http2.FrameWindowUpdate, 0, uint32(len(f.payload))) != nil { //nolint:gosec // a frame
				return
			}
			continue
		}
		if s != nil && !dead && f.header.Type == http2.FrameData {
			s.bytes += len(f.payload)
		}
		if _, err := c.client.Write(f.bytes()); err != nil {
			return
		}
		if s == nil || dead {
			continue
		}
		code, ok := c.p.kills(s)
		if !ok {
			continue
		}
		s.dead = true
		if _, err := c.client.Write(number(http2.FrameRSTStream, f.header.StreamID, uint32(code))); err != nil {
			return
		}
		if c.answer(http2.FrameRSTStream, f.header.StreamID, uint32(http2.ErrCodeCancel)) != nil {
			return
		}
	}
}

// kills reports whether a stream is to be reset now, and with what.
func (p *resets) kills(s *resetStream) (http2.ErrCode, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.rules[s.method]
	if r == nil || r.times == 0 || s.bytes < r.after {
		return 0, false
	}
	r.times--
	r.done++
	return r.code, true
}
