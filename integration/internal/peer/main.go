// Command peer is one of two processes between which a test moves one tensor of one step:
//
//	peer send BYTES           prints its address and the digest of the tensor, and sends it
//	peer recv BYTES ADDRESS   receives the tensor and prints its digest
//
// Both then print "done", and end when their input ends.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"strconv"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Names that both processes use.
const (
	step     = 1
	name     = "x"
	sender   = "/job:worker/replica:0/task:0"
	receiver = "/job:worker/replica:0/task:1"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: peer send BYTES | peer recv BYTES ADDRESS")
	}
	size, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return err
	}
	switch {
	case args[0] == "send" && len(args) == 2:
		return send(ctx, size)
	case args[0] == "recv" && len(args) == 3:
		return recv(ctx, size, args[2])
	}
	return fmt.Errorf("%q: must be send BYTES, or recv BYTES ADDRESS", args)
}

// start starts the server of a task; peers has the addresses of the cluster, or is nil.
func start(ctx context.Context, task string, peers map[int]string, a tensor.Allocator) (*server.Server, error) {
	self, err := cluster.ParseTask(task)
	if err != nil {
		return nil, err
	}
	spec, err := cluster.NewSpec(map[string]map[int]string{self.Job: peers})
	if err != nil {
		return nil, err
	}
	c := server.Config{Listen: "127.0.0.1:0", Task: task}
	if peers != nil {
		c.Cluster = spec.Lists()
	}
	return server.Start(ctx, c, server.Options{Allocator: a})
}

func send(ctx context.Context, size int64) error {
	pool := tensor.NewPool(tensor.PoolOptions{})
	s, err := start(ctx, sender, nil, pool)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	shape, err := tensor.NewShape(size)
	if err != nil {
		return err
	}
	t, err := tensor.Allocate(pool, tensor.Uint8, shape)
	if err != nil {
		return err
	}
	_, _ = rand.NewChaCha8([32]byte{}).Read(t.Bytes()) // never fails
	fmt.Println(s.Addr())
	fmt.Println(crc32.ChecksumIEEE(t.Bytes()))
	err = s.Send(step, receiver, name, t, false)
	t.Release()
	if err != nil {
		return err
	}
	return wait()
}

func recv(ctx context.Context, size int64, address string) error {
	pool := tensor.NewPool(tensor.PoolOptions{})
	s, err := start(ctx, receiver, map[int]string{0: address, 1: "127.0.0.1:1"}, pool)
	if err != nil {
		return err
	}
	defer s.Close(ctx)
	type outcome struct {
		v   rendezvous.Value
		err error
	}
	c := make(chan outcome, 1)
	s.RecvAsync(ctx, step, sender, name, func(v rendezvous.Value, err error) { c <- outcome{v, err} })
	got := <-c
	if got.err != nil {
		return got.err
	}
	defer got.v.Tensor.Release()
	if n := got.v.Tensor.Size(); n != size {
		return fmt.Errorf("received %d bytes, want %d", n, size)
	}
	fmt.Println(crc32.ChecksumIEEE(got.v.Tensor.Bytes()))
	return wait()
}

// wait prints "done" and waits for the end of the input.
func wait() error {
	fmt.Println("done")
	_, err := io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	return err
}
