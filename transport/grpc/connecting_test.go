package grpctransport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
)

// unwritable is a connection that cannot be written to.
type unwritable struct{ net.Conn }

func (unwritable) Write([]byte) (int, error) { return 0, errors.New("no write") }

// unreadable is a connection that ends before anything is read.
type unreadable struct{ net.Conn }

func (unreadable) Read([]byte) (int, error) { return 0, io.EOF }

// TestNotConnected provokes each error of grpc-go for a call that was not sent. The texts may change
// with the version of grpc-go in go.mod.
func TestNotConnected(t *testing.T) {
	server := new(testCluster).start(t, 0, nodeOptions{})
	dialer := func(f func(net.Conn) (net.Conn, error)) []grpc.DialOption {
		return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			return f(conn)
		})}
	}
	refused := func(conn net.Conn) (net.Conn, error) { return nil, errors.Join(errors.New("refused"), conn.Close()) }
	for i, o := range []DialOptions{
		{Extra: dialer(refused)},
		{Credentials: credentials.NewTLS(&tls.Config{})},
		{Extra: dialer(func(conn net.Conn) (net.Conn, error) { return unwritable{conn}, nil })},
		{Extra: dialer(func(conn net.Conn) (net.Conn, error) { return unreadable{conn}, nil })},
	} {
		ch, err := dial(server.address, o, newFramePool(0), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = ch.Invoke(t.Context(), trystgrpc.Peers_Hello_FullMethodName, new(trystpb.HelloRequest), new(trystpb.HelloResponse))
		if text := grpcstatus.Convert(err).Message(); !strings.HasPrefix(text, connecting[i]) || !notConnected(err) {
			t.Errorf("%v: not sent: %v, want %q", err, notConnected(err), connecting[i])
		}
		if err := ch.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLostIsNotNotConnected: an error that contains a text of grpc-go in another place, as of a proxy
// or of a call that was sent, does not mean that the request was not sent.
func TestLostIsNotNotConnected(t *testing.T) {
	for _, text := range connecting {
		for _, err := range []error{
			grpcstatus.Error(codes.Unavailable, "upstream: "+text+`x"`),
			grpcstatus.Error(codes.Unavailable, strings.TrimPrefix(text, `connection error: desc = "`)),
			grpcstatus.Error(codes.Internal, text+`x"`),
			errors.New(text),
		} {
			if notConnected(err) {
				t.Errorf("counts as not sent: %v", err)
			}
		}
	}
	if err := grpcstatus.Error(codes.Unavailable, "error reading from server: EOF"); notConnected(err) {
		t.Errorf("counts as not sent: %v", err)
	}
}
