package checkpoint_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// describing is a publisher whose calls of Describe the caller sees first. as is what its server registers with.
func describing(t *testing.T, as func(grpc.ServiceRegistrar) grpc.ServiceRegistrar, see func(*trystpb.DescribeRequest) error) *host {
	h := publisher(t)
	h.grpc.Stop()
	see1 := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if d, ok := req.(*trystpb.DescribeRequest); ok {
			if err := see(d); err != nil {
				return nil, err
			}
		}
		return handler(ctx, req)
	}
	h.listen(grpc.NewServer(grpc.UnaryInterceptor(see1)), as)
	return h
}

func unchanged(r grpc.ServiceRegistrar) grpc.ServiceRegistrar { return r }

// TestApplyTakesAVersionAgain whose pull has failed by what passes, although no newer one comes.
func TestApplyTakesAVersionAgain(t *testing.T) {
	var failed atomic.Bool
	h := describing(t, unchanged, func(*trystpb.DescribeRequest) error {
		if !failed.Swap(true) {
			return grpcstatus.Error(codes.Unavailable, "away for a moment")
		}
		return nil
	})
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	into := memoryFor(t, 10)
	req := checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "w", Retry: -1}, Into: []map[string]*tensor.Tensor{into}}
	n := 0
	for v, err := range h.dial().Watch(t.Context(), req) {
		must(t, err)
		if n++; n == 2 {
			if v.Number != 2 {
				t.Errorf("version %d comes after version 1", v.Number)
			}
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if must(t, v.Apply(ctx)); numberOf(t, []*tensor.Tensor{into["a"]}) != 1 || !failed.Load() {
			t.Errorf("the memory has not version 1; a pull failed: %v", failed.Load())
		}
		h.update(weights(t, 2, 10), checkpoint.UpdateOptions{})
	}
}

// TestApplyWaitsForWhatTheFailedOneHasLeft: whoever still writes for an Apply that has failed is waited for.
func TestApplyWaitsForWhatTheFailedOneHasLeft(t *testing.T) {
	h := serve(t)
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	into := memoryFor(t, 10)
	req := checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "w"}, Into: []map[string]*tensor.Tensor{into}}
	for v, err := range h.dial().Watch(t.Context(), req) {
		must(t, err)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		mustBe(t, v.Apply(ended), status.Cancelled, "")
		left := into["a"].Buffer()
		left.Retain()
		time.AfterFunc(50*time.Millisecond, left.Release)
		if must(t, v.Apply(t.Context())); numberOf(t, []*tensor.Tensor{into["a"]}) != 1 {
			t.Error("the memory has not version 1")
		}
		return
	}
}

// TestApplyOfAVersionThatWasDroppedKeepsItsNumber: the server has its content in the version before.
func TestApplyOfAVersionThatWasDroppedKeepsItsNumber(t *testing.T) {
	h := publisher(t)
	into := memoryFor(t, 10)
	req := checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "w", Retry: -1}, Into: []map[string]*tensor.Tensor{into}}
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	other := h.dial().pause(t, checkpoint.PullRequest{}) // keeps version 1
	defer other.goOn()
	n := uint64(0)
	for v, err := range h.dial().Watch(t.Context(), req) {
		must(t, err)
		n++
		if n == 2 {
			h.update(weights(t, 2, 10), checkpoint.UpdateOptions{Drop: true})
		}
		if must(t, v.Apply(t.Context())); v.Number != n {
			t.Fatalf("it is number %d, want %d", v.Number, n)
		}
		switch n {
		case 1:
			h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
		case 3:
			return
		}
	}
}

// TestDescriptionOfAnotherVersionIsRefused: a server that describes another version than the one that it was asked for.
func TestDescriptionOfAnotherVersionIsRefused(t *testing.T) {
	h := describing(t, unchanged, func(d *trystpb.DescribeRequest) error {
		d.Version = ""
		return nil
	})
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	_, err := h.dial().Describe(t.Context(), "w", "00112233445566ff")
	mustBe(t, err, status.InvalidArgument, `was asked for "w" version "00112233445566ff", and described "w" version`)
}

// TestAWatcherPausesWhenWhatComesIsOld: a server announces a number that its publication does not have. Each pull that brings
// nothing new is followed by a pause.
func TestAWatcherPausesWhenWhatComesIsOld(t *testing.T) {
	lies, seen := newLies(), make(chan time.Time, 100)
	h := describing(t, func(r grpc.ServiceRegistrar) grpc.ServiceRegistrar { return announcer{r, lies} }, func(*trystpb.DescribeRequest) error {
		select {
		case seen <- time.Now():
		default:
		}
		return nil
	})
	w := h.dial().watch(t, checkpoint.WatchRequest{})
	p := h.update(weights(t, 1, 10), checkpoint.UpdateOptions{}).Publication
	lies.say(announced(p))
	w.next(t, 1).Release()
	<-seen
	lie := announced(p)
	lie.Number = 10
	lies.say(lie)
	begin, end := <-seen, time.Time{}
	for range 4 {
		end = <-seen
	}
	if took := end.Sub(begin); took < 4*checkpoint.RetryMin/2 {
		t.Errorf("4 more pulls in %v", took)
	}
}

// TestMirrorLeavesDirectoriesOfOthers: a directory whose name is like that of a version, with a date, is somebody else's.
func TestMirrorLeavesDirectoriesOfOthers(t *testing.T) {
	h := publisher(t)
	dir := t.TempDir()
	others := []string{".out.20240601", ".out.cafe", ".out.backup"}
	for _, name := range others {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o777))
	}
	h.update(weights(t, 1, 10), checkpoint.UpdateOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	err := h.dial().Mirror(ctx, checkpoint.PullRequest{Publication: "w"}, checkpoint.SaveOptions{Out: filepath.Join(dir, "out") + "/"},
		func(context.Context, checkpoint.Mirrored) error {
			cancel()
			return nil
		})
	mustBe(t, err, status.Cancelled)
	if all := strings.Join(dirs(t, dir), " "); strings.Count(all, ".out.") != len(others)+1 {
		t.Errorf("directories %s", all)
	}
}
