package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// oneTensor makes a checkpoint of one tensor of 160 MiB.
func oneTensor(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "one.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, err := safetensors.NewWriter(f, []safetensors.Spec{{Name: "x", DType: tensor.Uint8, Shape: tensor.Vector(160 << 20)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(w.Size()); err != nil { // all zeros
		t.Fatal(err)
	}
	return path
}

// TestKilledPullGoesOn: a pull that is killed in the middle of a tensor leaves what it wrote, and
// the next one transfers the rest, and no more than 64 MiB again.
func TestKilledPullGoesOn(t *testing.T) {
	model := oneTensor(t)
	middle := transporttest.NewProxy(t)
	middle.SetTarget(serve(t, "--transport", "grpc", model))
	reached := middle.HoldAfter(100 << 20)
	dir := t.TempDir()
	out := filepath.Join(dir, "x.safetensors")
	p := start(t, nil, "pull", "--transport", "grpc", "--from", middle.Addr(), "--out", out)
	<-reached
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(t)
	partLeft(t, dir)
	middle.Release()
	before := middle.Carried()
	r := tryst(t, "pull", "--transport", "grpc", "--from", middle.Addr(), "--out", out, "--json")
	var rec pullRecord
	if err := json.Unmarshal([]byte(did(t, r)), &rec); err != nil {
		t.Fatal(err)
	}
	if n := middle.Carried() - before; n > (160-100+64+1)<<20 || rec.Resumed < (100-64-1)<<20 || rec.Resumed+n < 160<<20 {
		t.Errorf("%d bytes were sent, %d were there", n, rec.Resumed)
	}
	if want := out + ".part has "; !strings.Contains(r.err, want) || !strings.Contains(r.err, "from an earlier pull") {
		t.Errorf("no %q in:\n%s", want, r.err)
	}
	if c := rec.Carried; len(c) != 1 || c[0].Transport != "grpc" || c[0].Tensors != 1 || c[0].Bytes != rec.Bytes-rec.Resumed {
		t.Errorf("carried %+v; want the rest of the only tensor, %d of %d bytes", c, rec.Bytes-rec.Resumed, rec.Bytes)
	}
	var table bytes.Buffer
	if err := (streams{out: &table}).writeSummary(&checkpoint.Summary{Bytes: rec.Bytes, Resumed: rec.Resumed}, rec.routes); err != nil {
		t.Fatal(err)
	}
	if row := regexp.MustCompile(fmt.Sprintf(`BYTES +RESUMED +TIME .*\n +0 +%d +%d `, rec.Bytes, rec.Resumed)); !row.MatchString(table.String()) {
		t.Errorf("the row does not say that %d bytes were resumed:\n%s", rec.Resumed, table.String())
	}
	same(t, model, out)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestPullOutlivesItsServer: a server that is killed in the middle of a pull, and started again,
// gives the rest. The puller says what broke and that it goes on.
func TestPullOutlivesItsServer(t *testing.T) {
	model := oneTensor(t)
	middle := transporttest.NewProxy(t)
	serve := func() *process {
		srv := start(t, nil, "serve", "--listen", "127.0.0.1:0", "--transport", "grpc", model)
		middle.SetTarget(srv.err.until(t, serving))
		return srv
	}
	srv := serve()
	reached := middle.HoldAfter(50 << 20)
	out := filepath.Join(t.TempDir(), "x.safetensors")
	p := start(t, nil, "pull", "--transport", "grpc", "--from", middle.Addr(), "--out", out)
	<-reached
	middle.SetTarget("")
	if err := srv.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	srv.end(t)
	middle.Release()
	lost := "connection to " + middle.Addr() + " lost"
	p.err.until(t, regexp.MustCompile(`(tryst pull: .*`+regexp.QuoteMeta(lost)+`: .*; trying again for 1m0s)`))
	serve()
	r := p.end(t)
	did(t, r)
	same(t, model, out)
	if n := strings.Count(r.err, lost); n != 1 || !regexp.MustCompile(`(?m)^tryst pull: `+regexp.QuoteMeta(middle.Addr())+` answers again after [\d.]+m?s; the pull goes on$`).MatchString(r.err) {
		t.Errorf("it said %d times that the connection was lost:\n%s", n, r.err)
	}
}

// TestPullOutlivesAServerThatIsFull: a server that takes no more calls, as others take all that they may, refuses
// the calls of a pull. The pull says so, tries again, and goes through when the others have ended.
func TestPullOutlivesAServerThatIsFull(t *testing.T) {
	address := serve(t, "--memory", "128MiB", generate(t))
	dial := func() *grpc.ClientConn {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	others, asks := dial(), dial()
	for calls, refused := 0, 0; refused < 20; calls++ { // in a row: then no call is about to end
		// A request that does not come takes what a call takes.
		if _, err := others.NewStream(t.Context(), &grpc.StreamDesc{}, tensorflowgrpc.WorkerService_RecvTensor_FullMethodName); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := trystgrpc.NewPublicationsClient(asks).List(ctx, &trystpb.ListRequest{})
		cancel()
		switch refused++; {
		case err == nil:
			refused = 0
		case grpcstatus.Code(err) != codes.ResourceExhausted:
			t.Fatal(err)
		}
		if calls > 5000 {
			t.Fatal("no call is refused")
		}
	}
	out := filepath.Join(t.TempDir(), "m.safetensors")
	if r := tryst(t, "pull", "--from", address, "--out", out, "--retry", "0"); r.code == exitDone || !strings.Contains(r.err, "takes no more calls") {
		t.Errorf("without retry: exit status %d\n%s", r.code, r.err)
	}
	p := start(t, nil, "pull", "--from", address, "--out", out)
	p.err.until(t, regexp.MustCompile(`(tryst pull: .*the server takes no more calls.*; trying again for 1m0s)`))
	_ = others.Close()
	r := p.end(t)
	did(t, r)
	if !strings.Contains(r.err, "the pull goes on") {
		t.Errorf("it does not say that it goes on:\n%s", r.err)
	}
}

// TestPullInPiecesOverVerbs: a tensor that comes in pieces counts once.
func TestPullInPiecesOverVerbs(t *testing.T) {
	model := oneTensor(t)
	address := serve(t, "--transport", "verbs", "--provider", "roce", model)
	out := filepath.Join(t.TempDir(), "x.safetensors")
	var rec pullRecord
	r := tryst(t, "pull", "--from", address, "--out", out, "--json", "--transport", "verbs", "--provider", "roce")
	if err := json.Unmarshal([]byte(did(t, r)), &rec); err != nil {
		t.Fatal(err)
	}
	if len(rec.By) != 1 || rec.By["verbs"] != 1 || rec.Tensors != 1 {
		t.Errorf("%+v", rec)
	}
	same(t, model, out)
}

// fixedAddress returns an address for a server that restarts. Its port is not one of those that the
// system gives to outgoing connections.
func fixedAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		if lis, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			defer lis.Close()
			return lis.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// TestPullOverVerbsOutlivesItsServer: the server is killed while tensors come over verbs, and is
// back at its address. The pull goes on, over the channel to the new process or over gRPC.
func TestPullOverVerbsOutlivesItsServer(t *testing.T) {
	model := oneTensor(t)
	listen := fixedAddress(t)
	serve := func() *process {
		srv := start(t, nil, "serve", "--listen", listen, "--transport", "verbs", "--provider", "roce", model)
		srv.err.until(t, serving)
		return srv
	}
	srv := serve()
	cfg := server.Config{}
	cfg.Transport, cfg.Provider = "verbs", "roce"
	c, err := server.Dial(t.Context(), cfg, listen, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	out := filepath.Join(t.TempDir(), "x.safetensors")
	var restart sync.Once
	var told []checkpoint.Interruption
	_, err = c.Puller().Save(t.Context(), checkpoint.PullRequest{
		Interrupted: func(i checkpoint.Interruption) { told = append(told, i) },
		Progress: func(p checkpoint.Progress) {
			if p.Bytes > 30<<20 {
				restart.Do(func() {
					if err := srv.Process.Kill(); err != nil {
						t.Error(err)
					}
					srv.end(t)
					serve()
				})
			}
		},
	}, checkpoint.SaveOptions{Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || !strings.Contains(told[0].Err.Error(), listen) {
		t.Errorf("told %v", told)
	}
	same(t, model, out)
}

// With --no-resume everything is transferred, and with --retry 0 the first failure is the last.
func TestPullWithoutResumeAndRetry(t *testing.T) {
	model := oneTensor(t)
	middle := transporttest.NewProxy(t)
	middle.SetTarget(serve(t, "--transport", "grpc", model))
	dir := t.TempDir()
	out := filepath.Join(dir, "x.safetensors")
	cut := middle.CutAfter(100 << 20)
	failed(t, tryst(t, "pull", "--transport", "grpc", "--from", middle.Addr(), "--out", out, "--retry", "0"), exitFailed, middle.Addr(), "what has come is in "+out+".part")
	<-cut
	partLeft(t, dir)
	before := middle.Carried()
	did(t, tryst(t, "pull", "--transport", "grpc", "--from", middle.Addr(), "--out", out, "--no-resume"))
	if n := middle.Carried() - before; n < 160<<20 {
		t.Errorf("%d bytes were sent", n)
	}
	same(t, model, out)
}
