// Command tensorflow-ps is a parameter server for TensorFlow, in Go: task 0 of the job ps. It holds
// the variables of a training script and runs the optimizer's ops on them. See the README.md beside
// it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

func main() {
	ps := flag.String("ps", "127.0.0.1:2222", "address of this process")
	chief := flag.String("chief", "127.0.0.1:2223", "address of the training script")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *ps, *chief); err != nil {
		fmt.Fprintln(os.Stderr, "tensorflow-ps:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, ps, chief string) error {
	// ops.New has TensorFlow's ops in Go. A program adds its own by Register.
	s, err := tryst.Serve(ctx, tryst.Config{
		Cluster: map[string][]string{"ps": {ps}, "chief": {chief}},
		Task:    "/job:ps/task:0",
	}, tryst.WithKernels(ops.New()))
	if err != nil {
		return err
	}
	fmt.Println("the parameter server listens on", s.Addr())
	<-ctx.Done()
	return s.Close(context.WithoutCancel(ctx))
}
