package grpctransport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// pipes is a listener of connections in memory, which obey virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// onPipe runs f on virtual time with a client of a server over a pipe. What the server sends comes by
// the returned channel, which is closed at its end. The server counts calls that it serves.
func onPipe(t *testing.T, f func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, served *atomic.Int64, log *strings.Builder)) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		var stats RequestStats
		var served atomic.Int64
		s := grpc.NewServer(ServerOptions(ServerTuning{MaxGraph: 64 << 20, Requests: &stats, Logger: slog.New(slog.NewTextHandler(&log, nil))})...)
		Guard(s).RegisterService(&grpc.ServiceDesc{ServiceName: tensorflowWorker, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
			method(tensorflowWorker, "RegisterGraph", func(context.Context, *tfpb.RegisterGraphRequest) (any, error) {
				served.Add(1)
				return &tfpb.RegisterGraphResponse{}, nil
			}),
		}}, &served)
		answer := func(name string, bytes int) grpc.MethodDesc {
			return method("test", name, func(context.Context, *tfpb.RegisterGraphRequest) (any, error) {
				served.Add(1)
				return &tfpb.RegisterGraphResponse{GraphHandle: strings.Repeat("x", bytes)}, nil
			})
		}
		LimitCalls(s).RegisterService(&grpc.ServiceDesc{ServiceName: "test", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{
			answer("Large", largeResponse), answer("Middle", middleResponse),
			method("test", "Wait", func(ctx context.Context, _ *tfpb.RegisterGraphRequest) (any, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}),
		}}, &served)
		l := make(pipes)
		go func() { _ = s.Serve(l) }()
		client, server := net.Pipe()
		l <- server
		c := &rawClient{t, client, http2.NewFramer(client, client)}
		frames := make(chan http2.FrameHeader, 10_000)
		go func() {
			defer close(frames)
			for {
				frame, err := c.ReadFrame()
				if err != nil {
					return
				}
				frames <- frame.Header()
			}
		}()
		_, err := client.Write([]byte(http2.ClientPreface))
		c.must(err)
		c.must(c.WriteSettings())
		synctest.Wait()
		f(t, c, frames, &stats, &served, &log)
		_ = client.Close()
		close(l)
		s.Stop()
		synctest.Wait()
		if stats.Bytes() != 0 {
			t.Errorf("%d bytes are left", stats.Bytes())
		}
	})
}

// The sizes of the responses to Large and Middle, about.
const (
	largeResponse  = 4 * responseProgress
	middleResponse = responseProgress / 3
)

// endOf returns whether a stream has ended, by the frames that have come.
func endOf(stream uint32, frames <-chan http2.FrameHeader) bool {
	synctest.Wait()
	for {
		select {
		case f, ok := <-frames:
			if !ok {
				return false
			}
			if f.StreamID == stream && (f.Type == http2.FrameRSTStream || f.Type == http2.FrameHeaders && f.Flags.Has(http2.FlagHeadersEndStream)) {
				return true
			}
		default:
			return false
		}
	}
}

// TestRequestsThatDoNotComeEnd, with an answer to their client and one line in the log. Others on the
// connection go on.
func TestRequestsThatDoNotComeEnd(t *testing.T) {
	for name, begin := range map[string]func(c *rawClient){
		"headers alone": func(c *rawClient) { c.headers(1) },
		"half a length": func(c *rawClient) { c.headers(1); c.must(c.WriteData(1, false, []byte{0, 0})) },
		"a part":        func(c *rawClient) { c.begin(1, 1<<20) },
	} {
		onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, served *atomic.Int64, log *strings.Builder) {
			begin(c)
			time.Sleep(requestTime - time.Second)
			if endOf(1, frames) {
				t.Errorf("%s: ended early", name)
			}
			time.Sleep(requestTime + 2*time.Second)
			if !endOf(1, frames) {
				t.Errorf("%s: no end after two minutes", name)
			}
			if stats.Refused()["late"] != 1 || strings.Count(log.String(), "refusing a request") != 1 {
				t.Errorf("%s: %v, log %s", name, stats.Refused(), log)
			}
			if stats.Bytes() != 0 {
				t.Errorf("%s: %d bytes are charged", name, stats.Bytes())
			}
			c.headers(3)
			c.must(c.WriteData(3, true, prefixOf(0, 0)))
			if !endOf(3, frames) || served.Load() != 1 {
				t.Errorf("%s: the next call was not served", name)
			}
			time.Sleep(time.Hour)
			if stats.Refused()["late"] != 1 {
				t.Errorf("%s: %v after an hour", name, stats.Refused())
			}
		})
	}
}

// TestSlowRequestsGoOn: a large request over a slow link comes as long as it brings requestProgress in a
// minute.
func TestSlowRequestsGoOn(t *testing.T) {
	onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, served *atomic.Int64, _ *strings.Builder) {
		message := protowire.AppendBytes(protowire.AppendTag(nil, 15, protowire.BytesType), make([]byte, 4<<20)) // an unknown field
		body := append(prefixOf(0, len(message)), message...)
		c.headers(1)
		for len(body) > 0 {
			n := min(8<<10, len(body))
			c.must(c.WriteData(1, n == len(body), body[:n]))
			body = body[n:]
			time.Sleep(requestTime / (requestProgress / (8 << 10)) * 9 / 10)
		}
		if !endOf(1, frames) || served.Load() != 1 || stats.Refused()["late"] != 0 {
			t.Errorf("%d calls are served, refused %v", served.Load(), stats.Refused())
		}
	})
}

// TestHalfAFrameEndsTheConnection, since gRPC can read nothing else of it.
func TestHalfAFrameEndsTheConnection(t *testing.T) {
	for name, half := range map[string][]byte{
		"a header": {0, 0},
		"headers":  append([]byte{0, 1, 0, frameHeaders, 0, 0, 0, 0, 1}, 1, 2, 3),
		"data":     append([]byte{0, 1, 0, frameData, 0, 0, 0, 0, 1}, 1, 2, 3),
	} {
		onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, _ *atomic.Int64, _ *strings.Builder) {
			_, err := c.Write(half)
			c.must(err)
			time.Sleep(2*requestTime + time.Second)
			synctest.Wait()
			for range len(frames) {
				<-frames
			}
			if _, open := <-frames; open || stats.Refused()["late"] != 1 {
				t.Errorf("%s: the connection goes on, %v", name, stats.Refused())
			}
		})
	}
}

// TestABlockOfHeadersThatDoesNotEndEndsTheConnection: nothing may come between its frames.
func TestABlockOfHeadersThatDoesNotEndEndsTheConnection(t *testing.T) {
	onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, _ *RequestStats, _ *atomic.Int64, _ *strings.Builder) {
		c.must(c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}}))
		for range 150 { // one byte a second
			time.Sleep(time.Second)
			if err := c.WriteContinuation(1, false, []byte{0x82}); err != nil {
				if !errors.Is(err, io.ErrClosedPipe) {
					t.Error(err)
				}
				return
			}
		}
		t.Error("the connection goes on")
	})
}

// TestConversationsGoOn: a client may keep a stream open between its messages when the server has begun to
// answer.
func TestConversationsGoOn(t *testing.T) {
	r := watchedRequests(t)
	if err := r.read(begun(1, append(prefixOf(0, 2), 1, 2))); err != nil || r.arriving != 1 {
		t.Fatal(err, r.arriving)
	}
	var out bytes.Buffer
	_ = http2.NewFramer(&out, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true})
	r.wrote(out.Bytes())
	if r.arriving != 0 {
		t.Error("a request has not come")
	}
	var in bytes.Buffer
	_ = http2.NewFramer(&in, nil).WriteData(1, false, append(prefixOf(0, 2), 1))
	if err := r.read(in.Bytes()); err != nil || r.arriving != 1 {
		t.Error("half a message is whole", err)
	}
}

// TestRequestsEndAlthoughTheirClientNeverPauses: each read of the server ends in the midst of a frame of the client, and
// the next bytes are there already.
func TestRequestsEndAlthoughTheirClientNeverPauses(t *testing.T) {
	onPipe(t, func(t *testing.T, c *rawClient, frames <-chan http2.FrameHeader, stats *RequestStats, _ *atomic.Int64, _ *strings.Builder) {
		c.begin(1, 1<<20) // the rest does not come
		synctest.Wait()
		update := appendFrame(nil, frame{kind: byte(http2.FrameWindowUpdate), length: 4})
		update = append(update, 0, 0, 0, 1)
		half := len(update) / 2
		rest := update[:half]
		for range 3 * requestTime / time.Second {
			time.Sleep(time.Second)
			if _, err := c.Write(rest); err != nil {
				t.Fatal(err)
			}
			rest = append(slices.Clone(update[half:]), update[:half]...)
		}
		synctest.Wait()
		if stats.Bytes() != 0 || stats.Refused()["late"] != 1 {
			t.Errorf("the request takes %d bytes still; refused: %v", stats.Bytes(), stats.Refused())
		}
	})
}
