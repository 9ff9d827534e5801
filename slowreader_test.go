package tryst_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// A process of this test with readSlowlyFrom in its environment is a puller of w that breaks the rules. It reads
// readSlowlyBytes at least, and then no more.
const (
	readSlowlyFrom  = "TRYST_TEST_READ_SLOWLY_FROM"
	readSlowlyBytes = "TRYST_TEST_READ_SLOWLY_BYTES"
	readSlowlyEnd   = "TRYST_TEST_READ_SLOWLY_END" // its pull at once, if it is set
)

// slowConn is a connection whose client reads a little at a time.
type slowConn struct {
	net.Conn
	read *atomic.Int64
	most int64
	some chan<- struct{} // gets a value when it has read some bytes
}

func (c slowConn) Read(b []byte) (int, error) {
	if c.read.Load() > c.most {
		select {}
	}
	<-time.After(20 * time.Millisecond) // this is how slow it is
	n, err := c.Conn.Read(b[:min(len(b), 16<<10)])
	if c.read.Add(int64(n)) > 256<<10 {
		select {
		case c.some <- struct{}{}:
		default:
		}
	}
	return n, err
}

// readSlowly begins a pull on one connection and reads its first tensor on another one. It writes a line when it has read
// some of it, and the code with which the receive ended.
func readSlowly(address string) (err error) {
	most, err := strconv.ParseInt(os.Getenv(readSlowlyBytes), 10, 64)
	if err != nil {
		return err
	}
	some := make(chan struct{}, 1)
	first, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	second, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10), grpc.WithStaticConnWindowSize(64<<10),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return slowConn{c, new(atomic.Int64), most, some}, err
		}))
	if err != nil {
		return err
	}
	key, err := openRaw(first, os.Getenv(readSlowlyEnd) != "")
	if err != nil {
		return err
	}
	go func() {
		<-some
		_, _ = fmt.Println("reads")
	}()
	_, err = tensorflowgrpc.NewWorkerServiceClient(second).RecvTensor(context.Background(),
		&tfpb.RecvTensorRequest{StepId: 7, RendezvousKey: key}, grpc.MaxCallRecvMsgSize(1<<30))
	_, _ = fmt.Println(grpcstatus.Code(err))
	select {}
}

// openRaw begins a pull of w as a program other than ours, which answers what it is asked, or ends the pull at once. It
// returns the first key.
func openRaw(conn *grpc.ClientConn, leave bool) (key string, err error) {
	ctx, end := context.WithCancel(context.Background())
	c := trystgrpc.NewPublicationsClient(conn)
	open, err := c.Open(ctx, &trystpb.OpenRequest{Publication: "w", Puller: "/job:client/replica:0/task:1", Notices: true})
	if err != nil {
		end()
		return "", err
	}
	keys, err := open.Recv()
	if leave || err != nil {
		end()
	} else {
		go func() {
			defer end()
			for notice, err := open.Recv(); err == nil; notice, err = open.Recv() {
				if notice.GetAlive() {
					_, _ = c.Alive(ctx, &trystpb.AliveRequest{StepId: notice.GetStepId()})
				}
			}
		}()
	}
	return keys.GetKeys()[0].GetKey(), err
}

// A puller begins its pull on one connection and reads the tensors on another one, slowly, or no more after some time. It
// answers all that it is asked, and does not end its pull, or ends it at once. The memory of a version that has ended comes
// back all the same, and updates do not wait for it.
func TestPullerThatReadsOnASecondConnectionIsCut(t *testing.T) {
	for _, test := range []struct {
		name, bytes, end string
		bound            time.Duration
	}{
		{"slowly", "1000000000000", "", 15 * time.Second},
		{"not any more, after the end of its pull", "256000", "yes", 5 * time.Second},
	} {
		if testing.Short() && test.bound > 5*time.Second {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			s, err := tryst.Serve(t.Context(), tryst.Config{Transport: tryst.TransportGRPC, Listen: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(context.Background())
			publishLarge(t, s)
			lines := startSlowReader(t, s, test.bytes, test.end)
			if line, ok := <-lines; !ok || line != "reads" {
				t.Fatalf("the puller: %q", line)
			}
			begin := time.Now()
			lent, err := s.Withdraw(t.Context(), "w")
			if err != nil {
				t.Fatal(err)
			}
			const exact = 6 * time.Second // a look, and a collection of garbage, on a busy machine
			ctx, cancel := context.WithTimeout(t.Context(), test.bound+exact)
			defer cancel()
			err = lent.Wait(ctx)
			t.Logf("the memory came back after %v", time.Since(begin))
			if err != nil {
				t.Fatal(err)
			}
			if test.end == "" {
				if line := <-lines; line != codes.Unavailable.String() {
					t.Errorf("the puller received: %s", line)
				}
			}
		})
	}
}

// startSlowReader starts a process that reads slowly, and returns its lines.
func startSlowReader(t *testing.T, s *tryst.Server, bytes, end string) <-chan string {
	t.Helper()
	puller := exec.Command(os.Args[0])
	puller.Env = append(os.Environ(), readSlowlyFrom+"="+s.Addr().String(), readSlowlyBytes+"="+bytes, readSlowlyEnd+"="+end)
	puller.Stderr = os.Stderr
	out, err := puller.StdoutPipe()
	if err == nil {
		err = puller.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 10)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	t.Cleanup(func() { _ = puller.Process.Kill(); <-read; _ = puller.Wait() })
	return lines
}

// A puller of ours with two connections leaves a version that has ended, with all that was under way on both. Neither
// connection is cut, although gRPC has dropped responses that only the garbage collector finds.
func TestPullerWithTwoConnectionsIsNotCut(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	cfg := tryst.Config{Transport: tryst.TransportGRPC, GRPC: tryst.GRPC{ConnectionsPerPeer: 2}}
	serving := cfg
	serving.Listen = "127.0.0.1:0"
	s, err := tryst.Serve(t.Context(), serving)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	c, err := tryst.Dial(t.Context(), s.Addr().String(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for range 5 {
		publishLarge(t, s)
		var lent *tryst.Lent
		var ended error
		for x, err := range c.Pull(t.Context(), "w", tryst.PullInflight(2)) {
			if ended = err; err != nil {
				break
			}
			x.Release()
			if lent == nil {
				if lent, err = s.Withdraw(t.Context(), "w"); err != nil {
					t.Fatal(err)
				}
			}
		}
		if status.CodeOf(ended) != status.NotFound {
			t.Errorf("the pull ended with %v", ended)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := lent.Wait(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range c.Links() {
		if l.Breaks > 0 {
			t.Errorf("connections to %s broke %d times", l.Task, l.Breaks)
		}
	}
}
