package server

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
	"github.com/tryst-rdma/tryst/server/internal/listen"
)

func halfRequest(t *testing.T, to net.Addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestUnfinishedHTTPRequestsHoldNothing: a request whose body does not come is answered and closed at once, and
// those whose headers do not come have a limit of their number. The server's own port
// and the same listener go on.
func TestUnfinishedHTTPRequestsHoldNothing(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.MetricsAddress, c.PprofAddress = "127.0.0.1:0", "127.0.0.1:0" }), Options{})
	for _, setting := range []string{httpserver.MetricsKey, httpserver.PprofKey} {
		for _, path := range []string{"/metrics", "/trace", "/debug/pprof/heap", "/debug/pprof/symbol"} {
			for _, body := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
				conn := halfRequest(t, s.http.Addr(setting), "POST "+path+" HTTP/1.1\r\nHost: x\r\n"+body+"\r\n\r\n1")
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
					t.Fatalf("POST %s with %s: %+v, %v", path, body, resp, err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes it
					t.Error(err)
				}
				_ = conn.Close()
			}
		}
	}
	to := s.http.Addr(httpserver.MetricsKey)
	refused := s.listeners.Refused.WithLabelValues("metrics-address", listen.RefusedByAddress)
	for counted(t, refused) == 0 {
		halfRequest(t, to, "GET /metrics HTTP/1.1\r\nHost:")
	}
	client := trystgrpc.NewPeersClient(dialPlainly(t, s.Addr().String()))
	if _, err := client.Hello(t.Context(), &trystpb.HelloRequest{Requester: "/job:worker/replica:0/task:1"}, grpc.WaitForReady(true)); err != nil && !strings.Contains(err.Error(), "incarnation") {
		t.Errorf("the port of gRPC does not answer: %v", err)
	}
}

// counted returns the value of a counter.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	text := strings.TrimSpace(metricsText(r))
	value, err := strconv.ParseFloat(text[strings.LastIndexByte(text, ' ')+1:], 64)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return value
}
