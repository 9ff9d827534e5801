package grpctransport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/mem"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// DialOptions configures the connections to peers. The zero value means one connection to
// each peer, without TLS.
type DialOptions struct {
	// Credentials are the TLS credentials; nil for no TLS.
	Credentials credentials.TransportCredentials
	// Connections is the number of connections to each peer; calls use them in turn. 1 when
	// 0.
	Connections int
	// KeepaliveTime is how long a connection may be idle before TCP probes the peer's host, and,
	// while a call waits, before a call probes the peer itself (silence.go). Without a reply within
	// KeepaliveTimeout the connection is closed. When 0, TCP has the defaults of the operating
	// system, and the peer is not probed.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// Connected is called with each connection that is made, for instance to read its TCP
	// statistics. It must not use the connection for anything else. Nil does nothing.
	Connected func(net.Conn)
	// Extra options are applied last, for instance a stats handler.
	Extra []grpc.DialOption
}

// channel has the connections to one peer. Calls use the ready ones in turn.
type channel struct {
	address string
	conns   []*grpc.ClientConn
	silence []*silence // of conns
	next    atomic.Uint32
	answers []*answers // of conns; each nil without a limit
	live    live       // the conns that are up
	pace    pace       // of attempts to connect
}

// dial returns the channel to an address. gRPC reads frames into buffers from frames. The
// first call connects. Responses are reserved from responses, unless it is nil. over is called after a
// connection has ended; it may be nil.
func dial(address string, o DialOptions, frames mem.BufferPool, responses tensor.Reserver, over func()) (*channel, error) {
	ch := &channel{address: address, conns: make([]*grpc.ClientConn, max(o.Connections, 1)), live: live{over: over}}
	creds := o.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	opts := append([]grpc.DialOption{
		grpc.WithNoProxy(), // tensors go to the peer itself
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // the Requester must know of each request
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: reconnectMin, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax},
			MinConnectTimeout: connectMax,
		}),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(newCodec()),
			grpc.MaxCallRecvMsgSize(maxAnswer),
			grpc.MaxCallSendMsgSize(maxMessage),
			grpc.StaticMethod(),
		),
		grpc.WithMaxHeaderListSize(answerHeaders),
		experimental.WithBufferPool(frames),
		grpc.WithWriteBufferSize(writeBuffer),
		grpc.WithReadBufferSize(readBuffer),
		grpc.WithInitialWindowSize(streamWindow),
		grpc.WithInitialConnWindowSize(connWindow),
	}, o.Extra...)
	if responses != nil {
		opts = append(opts,
			grpc.WithDecompressor(laterGzip{}), //nolint:staticcheck // the only decompressor of a client that is not registered globally
			grpc.WithDefaultCallOptions(experimental.AcceptCompressors("gzip")))
	}
	for i := range ch.conns {
		// The target is a URL, where % begins an escape; an address of a link has one before its zone.
		watch, answers := newSilence(o), newAnswers(responses)
		conn, err := grpc.NewClient("passthrough:///"+strings.ReplaceAll(address, "%", "%25"),
			slices.Concat([]grpc.DialOption{ch.dialer(o)}, opts, []grpc.DialOption{grpc.WithTransportCredentials(explainedCredentials{creds, &ch.live, watch, answers})})...)
		if err != nil {
			watch.stop()
			_ = ch.close()
			return nil, status.Errorf(status.InvalidArgument, "cannot dial %s: %w", address, err)
		}
		watch.conn, watch.answers = conn, answers
		ch.conns[i], ch.silence, ch.answers = conn, append(ch.silence, watch), append(ch.answers, answers)
	}
	return ch, nil
}

// dialer is the option by which one of the connections connects, in its turn.
func (c *channel) dialer(o DialOptions) grpc.DialOption {
	t := new(turn)
	return grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
		if err := c.pace.await(ctx, t); err != nil {
			return nil, err
		}
		conn, err := o.Connect(ctx, at)
		if err != nil {
			if c.live.served.Load() && ctx.Err() == nil {
				err = fmt.Errorf("%s has gone or is restarting: %w", at, err)
			}
			c.live.failed(err)
			return nil, err
		}
		return conn, nil
	})
}

// Connect connects to an address over TCP, without TLS: it resolves the host and tries its addresses
// one after the other, with TCP keepalive as in o. The caller owns the connection.
func (o DialOptions) Connect(ctx context.Context, address string) (net.Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: o.KeepaliveTime, Interval: o.KeepaliveTimeout / keepaliveProbes, Count: keepaliveProbes,
		},
		Control: userTimeout(o.KeepaliveTimeout),
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addresses := []string{host}
	if host != "" { // an empty host is this machine
		// Not by the Dialer, since its Timeout would include the look-up.
		if addresses, err = net.DefaultResolver.LookupHost(ctx, host); err != nil {
			return nil, err
		}
	}
	var conn net.Conn
	for i, a := range addresses {
		if d.Timeout = tcpFirst; i == len(addresses)-1 {
			d.Timeout = tcpMax
		}
		if conn, err = d.DialContext(ctx, "tcp", net.JoinHostPort(a, port)); err == nil {
			if o.Connected != nil {
				o.Connected(conn)
			}
			break
		}
	}
	return conn, err
}

// pick returns the index of the connection for the next call: the next ready one, if any. After a break
// the connections come back one by one; a call on one in its reconnect pause would fail
// although the peer is reachable over another one.
func (c *channel) pick() int {
	if len(c.conns) == 1 {
		return 0
	}
	n := int(c.next.Add(1) - 1)
	for i := range c.conns {
		i = (n + i) % len(c.conns)
		if c.conns[i].GetState() == connectivity.Ready {
			return i
		}
		c.conns[i].Connect()
	}
	return n % len(c.conns)
}

// Invoke implements grpc.ClientConnInterface.
func (c *channel) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	woken := c.pace.begin()
	defer c.pace.end()
	i := c.pick()
	c.retried(ctx, i, woken)
	c.silence[i].begin()
	defer c.silence[i].end()
	c.answers[i].begin()
	defer c.answers[i].end()
	r, into := c.answers[i].reply(reply, largestOf(opts))
	return c.answers[i].explain(c.conns[i].Invoke(ctx, method, args, into, opts...), r)
}

// NewStream implements grpc.ClientConnInterface.
func (c *channel) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	woken := c.pace.begin()
	i := c.pick()
	c.retried(ctx, i, woken)
	c.silence[i].begin()
	c.answers[i].begin()
	end := sync.OnceFunc(func() {
		c.answers[i].end()
		c.silence[i].end()
		c.pace.end()
	})
	stream, err := c.conns[i].NewStream(ctx, desc, method, append(opts, grpc.OnFinish(func(error) { end() }))...)
	if err != nil {
		end()
		return nil, err
	}
	return c.answers[i].stream(stream, opts), nil
}

// retried waits until the attempt has succeeded that a call has woken, for wokenWait at most: gRPC would fail the call at
// once, with the error of the attempt before.
func (c *channel) retried(ctx context.Context, i int, woken bool) {
	if woken && c.conns[i].GetState() == connectivity.TransientFailure {
		ctx, cancel := context.WithTimeout(ctx, wokenWait)
		defer cancel()
		c.conns[i].WaitForStateChange(ctx, connectivity.TransientFailure)
	}
}

func (c *channel) close() error {
	var errs []error
	for i, conn := range c.conns {
		if conn != nil {
			errs = append(errs, conn.Close())
			c.silence[i].close()
		}
	}
	return errors.Join(errs...)
}
