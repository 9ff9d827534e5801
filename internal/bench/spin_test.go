package bench

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestSpinningConnections carry every byte, in order, and end with the other side.
func TestSpinningConnections(t *testing.T) {
	for network, address := range map[string]string{"tcp": loopback, "unix": filepath.Join(t.TempDir(), "socket")} {
		var lc net.ListenConfig
		l, err := lc.Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		x, err := randomTensor(tensor.Heap{}, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Release()
		s := serveTCP(l, map[int64]*tensor.Tensor{x.Size(): x}, true)
		c, err := dialSpinning(t.Context(), network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got := make([]byte, x.Size())
			if _, err := c.Write(newQuestion(x.Size(), "")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, x.Bytes()) {
				t.Errorf("over %s the content is wrong: %v", network, err)
			}
		}
		s.close() // ends the goroutine that spins there
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("over %s %d bytes came from a side that is closed: %v", network, n, err)
		}
		ended := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil {
			t.Errorf("over %s a closed connection reads", network)
		}
	}
	if _, err := newSpinning(nil); status.CodeOf(err) != status.InvalidArgument {
		t.Errorf("without a socket: %v", err)
	}
}

// TestSpinningEndsWithItsRun: no connection of a baseline that spins is left while Tryst runs.
func TestSpinningEndsWithItsRun(t *testing.T) {
	s, err := startBareServer(t.Context(), []int64{8})
	if err != nil {
		t.Fatal(err)
	}
	r, err := startBareReceiver(&s.where)
	if err != nil {
		t.Fatal(errors.Join(err, s.close()))
	}
	defer func() {
		if err := errors.Join(r.close(), s.close()); err != nil {
			t.Error(err)
		}
	}()
	for baseline, left := range map[string]int{SpinTCP: 0, SpinUnix: 0, RawTCP: 1} {
		if _, err := r.run(context.Background(), bareRun{Baseline: baseline, Conns: 1, Inflight: 1, Size: 8, Time: time.Millisecond}); err != nil || len(r.conns) != left {
			t.Errorf("%s leaves %d connections, want %d: %v", baseline, len(r.conns), left, err)
		}
	}
}
