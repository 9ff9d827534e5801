package grpctransport

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
)

// rawServer serves HTTP/2 on connections of a listener: answer gets each stream when its headers have come.
// It respects no setting of the client.
func rawServer(t *testing.T, answer func(f *http2.Framer, stream uint32)) (address string) {
	t.Helper()
	l := listen(t)
	ended := make(chan struct{})
	serve := func(conn net.Conn) {
		defer conn.Close()
		if _, err := conn.Read(make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		if f.WriteSettings() != nil {
			return
		}
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					_ = f.WriteSettingsAck()
				}
			case *http2.PingFrame:
				if !frame.IsAck() {
					_ = f.WritePing(true, frame.Data)
				}
			case *http2.HeadersFrame:
				answer(f, frame.StreamID)
			}
		}
	}
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
		}
	}()
	t.Cleanup(func() { <-ended })
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// trailersOf returns the block of the headers of a response without content, with fields beside gRPC's own.
func trailersOf(fields ...string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	all := append([]string{":status", "200", "content-type", "application/grpc", "grpc-status", "5", "grpc-message", "x"}, fields...)
	for i := 0; i < len(all); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	return b.Bytes()
}

// TestLargeTrailersAreRefused by a client before they are parsed: details of an error of 11 MiB took 2.4 GB.
// One of a size that errors of gRPC have is read.
func TestLargeTrailersAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		fields []string
		code   status.Code
	}{
		{"one of 14 KB", []string{"other", strings.Repeat("x", 14_000)}, status.NotFound},
		{"many", slices.Repeat([]string{"other", strings.Repeat("x", 300)}, 100), status.Internal},
		{"one of 11 MiB", []string{detailsKey, strings.Repeat("GgAa", 11<<20/4)}, status.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			block := trailersOf(c.fields...)
			address := rawServer(t, func(f *http2.Framer, stream uint32) {
				first := block[:min(len(block), 16<<10)]
				_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndStream: true, EndHeaders: len(first) == len(block)})
				for rest := block[len(first):]; len(rest) > 0; {
					part := rest[:min(len(rest), 16<<10)]
					rest = rest[len(part):]
					if f.WriteContinuation(stream, len(rest) == 0, part) != nil {
						return
					}
				}
			})
			b := new(testCluster).start(t, 1, nodeOptions{addresses: map[int]string{0: address}})
			defer b.close()
			conn, err := b.conns.Conn(task(0))
			if err != nil {
				t.Fatal(err)
			}
			used := allocated(func() {
				_, err = trystgrpc.NewPublicationsClient(conn).List(t.Context(), &trystpb.ListRequest{})
			})
			if got := status.CodeOf(fromGRPC(err, nil)); got != c.code {
				t.Errorf("%.300v, want %v", err, c.code)
			}
			if used > 20<<20 {
				t.Errorf("%d bytes were allocated", used)
			}
		})
	}
}
