package tryst_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A server listens from Serve to Close.
func ExampleServe() {
	ctx := context.Background()
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"}, tryst.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Task(), s.Addr().Network())
	fmt.Println(s.Close(ctx))
	// Output:
	// /job:worker/replica:0/task:0 tcp
	// <nil>
}

// Tasks come and go while a server runs. Task 0 began alone, and learns where task 1 is; then that one leaves.
func ExampleServer_SetCluster() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)
	first, second := tasks.a.Addr().String(), tasks.b.Addr().String()
	if err := tasks.a.SetCluster(ctx, map[string][]string{"worker": {first, second}}); err != nil {
		log.Fatal(err)
	}
	step := tasks.a.Step(1)
	defer step.Close()
	fmt.Println(step.SendDead("/job:worker/task:1", "x"), len(tasks.a.Cluster()["worker"]))

	if err := tasks.a.SetCluster(ctx, map[string][]string{"worker": {first}}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(step.Err(), errors.Is(step.Err(), tryst.ErrTaskLeft)) // task 1 had not received x
	fmt.Println(errors.Is(tasks.a.Step(2).SendDead("/job:worker/task:1", "x"), tryst.ErrTaskLeft))
	// Output:
	// <nil> 2
	// Aborted: /job:worker/replica:0/task:1 has left the cluster true
	// true
}

// One literal has the settings of a task, and one field swaps the transport. Fields of verbs may
// stay: with gRPC they are not used.
func ExampleConfig() {
	ctx := context.Background()
	for _, transport := range []string{tryst.TransportGRPC, tryst.TransportVerbs} {
		s, err := tryst.Serve(ctx, tryst.Config{
			Listen:    "127.0.0.1:0",
			Cluster:   map[string][]string{"worker": {"a:2222", "b:2222"}, "ps": {"7@c:2222"}},
			Task:      "/job:ps/task:7",
			Transport: transport,
			Provider:  tryst.ProviderRoCE, // in user space, on any machine
			RDMA:      tryst.RDMA{QueuePairs: 1, Retry: new(3)},
		}, tryst.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(transport, s.Task(), s.Close(ctx))
	}
	// Output:
	// grpc /job:ps/replica:0/task:7 <nil>
	// verbs /job:ps/replica:0/task:7 <nil>
}

// A client takes the same Config, without what is for servers.
func ExampleConfig_client() {
	ctx := context.Background()
	_, err := tryst.Dial(ctx, "10.0.0.1", tryst.Config{Listen: ":2222"})
	fmt.Println(err)
	// Output: InvalidArgument: Config.Listen is set, and has no effect in a client: it is a setting of servers; leave it out
}

// Done says that a server has ended, and Err why.
func ExampleServer_Done() {
	ctx := context.Background()
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	go s.Close(ctx)
	<-s.Done() // or the listener failed
	fmt.Println(s.Err(), s.Close(ctx))
	// Output: Cancelled: the server was closed <nil>
}

// Dial needs nothing but an address, and the server need not be up yet.
func ExampleDial() {
	ctx := context.Background()
	c, err := tryst.Dial(ctx, "127.0.0.1:1", tryst.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	_, err = c.List(ctx)
	fmt.Println(status.CodeOf(err))
	// Output: Unavailable
}

// Pull gives the tensors one after the other; leaving the loop ends the pull.
func ExampleClient_Pull() {
	ctx := context.Background()
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close(ctx)
	for _, name := range []string{"bias", "weights"} {
		t, err := tensor.FromSlice(tensor.Vector(1), []float32{1})
		if err != nil {
			log.Fatal(err)
		}
		if _, err := s.PublishTensors(ctx, name, t.Named(name)); err != nil {
			log.Fatal(err)
		}
		t.Release()
	}
	c, err := tryst.Dial(ctx, s.Addr().String(), tryst.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	for t, err := range c.Pull(ctx, "weights", tryst.PullTensors("w*"), tryst.PullInflight(2)) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Name(), t)
		t.Release()
	}
	// Output: weights float[1]
}

// Values under one name arrive in the order in which they were sent, and Send
// never waits for the receiver.
func ExampleStep_Send() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)
	for i := range 3 {
		t, err := tensor.FromSlice(tensor.Shape{}, []int32{int32(i)})
		if err != nil {
			log.Fatal(err)
		}
		if err := tasks.a.Step(2).Send("/job:worker/task:1", "loss", t); err != nil {
			log.Fatal(err)
		}
		t.Release()
	}
	for range 3 {
		v, err := tasks.b.Step(2).Recv(ctx, "/job:worker/task:0", "loss")
		if err != nil {
			log.Fatal(err)
		}
		n, err := tensor.Values[int32](v.Tensor)
		fmt.Println(n, err)
		v.Tensor.Release()
	}
	// Output:
	// [0] <nil>
	// [1] <nil>
	// [2] <nil>
}

// RecvAsync does not wait; its callback gets the value, or why there is none.
func ExampleStep_RecvAsync() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)
	done := make(chan bool)
	tasks.b.Step(3).RecvAsync(ctx, "/job:worker/task:0", "branch", func(v tryst.Value, err error) {
		if err == nil {
			v.Tensor.Release()
		}
		done <- v.Dead
	})
	if err := tasks.a.Step(3).SendDead("/job:worker/task:1", "branch"); err != nil {
		log.Fatal(err)
	}
	fmt.Println("dead:", <-done)
	// Output: dead: true
}

// Close ends a step: what was sent and not taken is released, and its id is not
// used again.
func ExampleStep_Close() {
	ctx := context.Background()
	tasks := startPair(ctx)
	defer tasks.close(ctx)
	step := tasks.a.Step(4)
	step.Close()
	_, err := tasks.b.Step(4).Recv(ctx, "/job:worker/task:0", "x")
	fmt.Println(err)
	fmt.Println("the step has ended:", errors.Is(err, tryst.ErrStepEnded), "the peer has restarted:", errors.Is(err, tryst.ErrPeerRestarted))
	// Output:
	// Aborted: receive of edge "x" from /job:worker/replica:0/task:0 to /job:worker/replica:0/task:1 in step 4: /job:worker/replica:0/task:0 has ended the step: Cleanup 4
	// the step has ended: true the peer has restarted: false
}
