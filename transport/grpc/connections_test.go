package grpctransport

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// TestResponsesOutliveConnections: the responses of a requester are kept while it has a
// connection, and dropped a minute after its last connection has ended.
func TestResponsesOutliveConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager := rendezvous.NewManager(rendezvous.ManagerOptions{Session: rendezvous.NewSession(task(0), 1, 1)})
		defer manager.Close()
		kept := delivery.NewResponseCache(manager, delivery.CacheOptions{})
		defer kept.Close()
		key, err := rendezvous.NewKey(cluster.DeviceOf(task(0)), 1, cluster.DeviceOf(task(1)), "x", rendezvous.FrameIter{})
		if err != nil {
			t.Fatal(err)
		}
		x, err := tensor.FromSlice(tensor.Vector(2), []float32{1, 2})
		if err != nil {
			t.Fatal(err)
		}
		if err := manager.Find(1).Send(key, rendezvous.Args{}, x, false); err != nil {
			t.Fatal(err)
		}
		x.Release()

		requester := transport.Process{Name: task(1).String(), Incarnation: 5}
		bind := func(ctx context.Context) {
			if err := connectionOf(ctx).bind(kept, requester, 0); err != nil {
				t.Error(err)
			}
		}
		var conns []net.Conn
		for range 2 {
			client, server := net.Pipe()
			defer client.Close()
			go func() { _, _ = client.Write([]byte(http2.ClientPreface)) }() // ends with the pipe
			conn, _, err := trackedCredentials{insecure.NewCredentials(), newQuotas(ServerTuning{}), nil, nil}.Clone().ServerHandshake(server)
			if err != nil {
				t.Fatal(err)
			}
			ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: conn.RemoteAddr()})
			bind(ctx)
			bind(ctx) // a second request
			conns = append(conns, conn)
		}
		kept.Request(replyTo(func(r transport.Response) {
			if r.Err != nil {
				t.Error(r.Err)
				return
			}
			r.Value.Tensor.Release()
		}), transport.Request{Requester: requester, ID: 7, Attempt: 1, Step: 1, Key: key})
		after := func(what string, want int) {
			<-time.After(2 * time.Minute) // of the test's own time
			synctest.Wait()
			if got := kept.Stats().Kept; got != want {
				t.Errorf("%s: %d answers are kept, want %d", what, got, want)
			}
		}
		after("both live", 1)
		conns[0].Close()
		after("one lives", 1)
		conns[1].Close()
		after("none lives", 0)
		ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: conns[1].RemoteAddr()})
		bind(ctx) // a request that was under way: too late to count
		bind(context.Background())
	})
}
