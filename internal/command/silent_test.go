package command

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestStoppedServerSaysSo: the kernel accepts connections for a process that is stopped, and nothing comes.
func TestStoppedServerSaysSo(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"keys":     {"keys"},
		"pull":     {"pull", "--retry", "0", "--out", filepath.Join(t.TempDir(), "x.safetensors")},
		"with TLS": {"keys", "--tls-server-name", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lis, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
			if err != nil {
				t.Fatal(err)
			}
			defer lis.Close()
			failed(t, tryst(t, append(args, "--from", lis.Addr().String())...), exitFailed, "accepted the connection and said nothing for 20s", "the server is stopped")
		})
	}
}

// TestPullThroughARelayThatLosesTheServer: a port-forward loses its upstream in the middle of a pull, keeps
// the connection and says nothing. The pull finds it, connects again and goes on.
func TestPullThroughARelayThatLosesTheServer(t *testing.T) {
	t.Parallel()
	model := large(t)
	backend := serve(t, "--transport", "grpc", model)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer lis.Close()
	var accepted atomic.Int64
	work.Go(func() {
		for {
			client, err := lis.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", backend)
			if err != nil {
				client.Close()
				continue
			}
			first := accepted.Add(1) == 1
			work.Go(func() {
				defer server.Close()
				if first {
					_, _ = io.CopyN(client, server, parts*partBytes/2) // then the upstream is gone
					return
				}
				_, _ = io.Copy(client, server)
			})
			work.Go(func() {
				defer client.Close()
				_, _ = io.Copy(server, client)
				if first { // the client is told nothing
					_, _ = io.Copy(io.Discard, client)
				}
				server.Close()
			})
		}
	})
	out := filepath.Join(t.TempDir(), "out.safetensors")
	r := tryst(t, "pull", "--from", lis.Addr().String(), "--out", out, "--keepalive-time", "10s", "--keepalive-timeout", "1s")
	did(t, r)
	if !strings.Contains(r.err, "has gone silent") || !strings.Contains(r.err, "answers again") || accepted.Load() != 2 {
		t.Errorf("%d connections: %s", accepted.Load(), r.err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(model)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs (%v)", err)
	}
	// The same command again finds it good.
	did(t, tryst(t, "pull", "--from", backend, "--out", out))
}
