package grpctransport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// TestMemoryOfOneGibibyte: one process receives a tensor of 1 GiB from another, and neither
// uses more memory than the tensor and 64 MiB. With -short the tensor is smaller. Under the
// race detector it is smaller still, and the detector's memory is allowed for.
func TestMemoryOfOneGibibyte(t *testing.T) {
	const margin = 64 << 20
	size := memoryTestSize
	if testing.Short() {
		size = min(size, 256<<20)
	}
	sender := exec.CommandContext(t.Context(), os.Args[0], "-child=send", strconv.Itoa(size))
	in, err := sender.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := sender.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	sender.Stderr = os.Stderr
	if err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the sender did not start")
	}
	receiver := exec.CommandContext(t.Context(), os.Args[0], "-child=receive", strconv.Itoa(size), lines.Text())
	receiver.Stderr = os.Stderr
	received, err := receiver.Output()
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	if !lines.Scan() {
		t.Fatal("the sender failed")
	}
	if err := sender.Wait(); err != nil {
		t.Fatal(err)
	}
	for side, text := range map[string]string{"sender": lines.Text(), "receiver": string(received)} {
		peak, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			t.Fatalf("the %s printed %q, want its peak memory", side, text)
		}
		t.Logf("%s: %d MiB in addition to the tensor", side, (peak-int64(size))>>20)
		if peak > int64(size)+margin+raceMemory {
			t.Errorf("the %s used %d MiB for a tensor of %d MiB, want at most %d MiB more", side, peak>>20, size>>20, (margin+raceMemory)>>20)
		}
	}
}

// runChild runs one side of the test in this process and returns its exit status.
func runChild(side string, args []string) int {
	run := sendChild
	if side == "receive" {
		run = receiveChild
	}
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, side, err)
		return 1
	}
	return 0
}

// sendChild serves one tensor until its input ends.
func sendChild(args []string) error {
	size, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	self := transport.Process{Name: task(0).String(), Incarnation: cluster.NewIncarnation()}
	manager := rendezvous.NewManager(rendezvous.ManagerOptions{Session: rendezvous.NewSession(task(0), self.Incarnation, 1)})
	defer manager.Close()
	kept := delivery.NewResponseCache(manager, delivery.CacheOptions{})
	defer kept.Close()
	x, err := tensor.Allocate(tensor.NewPool(tensor.PoolOptions{}), tensor.Uint8, tensor.Vector(size))
	if err != nil {
		return err
	}
	i := 0
	for page := range slices.Chunk(x.Bytes(), pageSize) {
		testPage(page, i)
		i++
	}
	key, err := childKey(self.Incarnation)
	if err != nil {
		return err
	}
	if err := manager.Find(1).Send(key, rendezvous.Args{}, x, false); err != nil {
		return err
	}
	x.Release()
	server := grpc.NewServer(ServerOptions(ServerTuning{})...)
	defer server.Stop()
	Register(server, ServiceOptions{Self: self, Cache: kept, Worker: worker.New(worker.Options{
		Task: task(0), Incarnation: self.Incarnation, Manager: manager, Cache: kept,
	})})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _ = server.Serve(l) }() // ends with Stop
	fmt.Println(key, l.Addr())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return printPeak()
}

const pageSize = 4 << 10

// testPage writes page i of the tensor.
func testPage(page []byte, i int) {
	for j := range page {
		page[j] = byte(i)
	}
	binary.LittleEndian.PutUint64(page, uint64(i))
}

func childKey(incarnation uint64) (rendezvous.Key, error) {
	return rendezvous.NewKey(cluster.DeviceOf(task(0)), incarnation, cluster.DeviceOf(task(1)), "x", rendezvous.FrameIter{})
}

// receiveChild receives the tensor of sendChild and checks its content.
func receiveChild(args []string) error {
	text, address, _ := strings.Cut(args[1], " ")
	key, err := rendezvous.ParseKey(text)
	if err != nil {
		return err
	}
	conns := NewConns(ConnsOptions{
		Self: task(1), Allocator: tensor.NewPool(tensor.PoolOptions{}),
		Resolve: func(cluster.Task) (string, bool) { return address, true },
	})
	tr := New(Options{Self: transport.Process{Name: task(1).String(), Incarnation: 1}, Conns: conns})
	done := make(chan outcome, 1)
	tr.RecvFromRemoteAsync(1, key, rendezvous.Args{},
		func(v rendezvous.Value, _ rendezvous.Args, err error) { done <- outcome{v, err} })
	o := <-done
	if o.err != nil {
		return o.err
	}
	i, want := 0, make([]byte, pageSize)
	for page := range slices.Chunk(o.v.Tensor.Bytes(), pageSize) {
		if testPage(want, i); !bytes.Equal(page, want) {
			return fmt.Errorf("page %d is wrong", i)
		}
		i++
	}
	if n := strconv.Itoa(i * pageSize); n != args[0] {
		return fmt.Errorf("got %s bytes, want %s", n, args[0])
	}
	o.v.Tensor.Release()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := tr.Close(ctx); err != nil {
		return err
	}
	if err := conns.Close(); err != nil {
		return err
	}
	return printPeak()
}

// printPeak prints the peak memory of this process in bytes (VmHWM), or 0 on systems that do
// not report it.
func printPeak() error {
	if runtime.GOOS != "linux" {
		fmt.Println(0)
		return nil
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := bytes.Cut(b, []byte("VmHWM:"))
	kib, _, _ := bytes.Cut(rest, []byte(" kB"))
	n, err := strconv.ParseInt(string(bytes.TrimSpace(kib)), 10, 64)
	fmt.Println(n << 10)
	return err
}
