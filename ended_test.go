package tryst_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// ended is what a Server, a Client and a Step have in common.
type ended interface {
	Done() <-chan struct{}
	Err() error
}

// wantEnd checks that e has not ended, calls end, waits for the end, and checks the reason.
func wantEnd(t *testing.T, e ended, want status.Code, end func()) {
	t.Helper()
	done := e.Done()
	select {
	case <-done:
		t.Fatalf("%T has ended: %v", e, e.Err())
	default:
	}
	if e.Err() != nil {
		t.Fatalf("%T: reason %v before the end", e, e.Err())
	}
	end()
	<-done
	if status.CodeOf(e.Err()) != want {
		t.Errorf("%T: reason %v, want %v", e, e.Err(), want)
	}
}

func serve(t *testing.T) *tryst.Server {
	t.Helper()
	s, err := tryst.Serve(t.Context(), tryst.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func TestServerAndClientSayWhenTheyAreClosed(t *testing.T) {
	s := serve(t)
	c, err := tryst.Dial(t.Context(), s.Addr().String(), tryst.Config{})
	if err != nil {
		t.Fatal(err)
	}
	wantEnd(t, c, status.Cancelled, func() { _ = c.Close(t.Context()) })
	wantEnd(t, s, status.Cancelled, func() { _ = s.Close(t.Context()) })
}

func TestStepSaysWhenAndWhyItEnds(t *testing.T) {
	s := serve(t)
	step := s.Step(1)
	wantEnd(t, step, status.Aborted, step.Close)
	step = s.Step(2)
	wantEnd(t, step, status.DataLoss, func() { s.Step(2).Abort(status.New(status.DataLoss, "a shard is lost")) })
	step = s.Step(3)
	wantEnd(t, step, status.Unknown, func() { step.Abort(errors.New("x")) })

	// A peer ends a step as a TensorFlow master does.
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	step = s.Step(4)
	wantEnd(t, step, status.Aborted, func() {
		if _, err := tensorflowgrpc.NewWorkerServiceClient(conn).CleanupGraph(t.Context(), &tfpb.CleanupGraphRequest{StepId: 4}); err != nil {
			t.Fatal(err)
		}
	})
	step = s.Step(5)
	wantEnd(t, step, status.Aborted, func() { _ = s.Close(t.Context()) })

	// A step that has ended is closed at once, and Err needs no Done.
	step = s.Step(1)
	if status.CodeOf(step.Err()) != status.Aborted {
		t.Errorf("of a step that has ended: %v", step.Err())
	}
	<-step.Done()
}
