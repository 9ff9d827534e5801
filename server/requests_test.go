package server

import (
	"testing"

	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// TestRequestsShareTheMemory of the process with all else: they may take a quarter.
func TestRequestsShareTheMemory(t *testing.T) {
	m := memory()
	if m == 0 {
		t.Fatal("the memory of this machine is not known")
	}
	if got := requestTotal(1 << 50); got != m/4 {
		t.Errorf("%d bytes of %d with the largest graphs", got, m)
	}
	if got, want := requestTotal(0), min(m/4, grpctransport.DefaultRequestBytes(0)); got != want {
		t.Errorf("%d bytes without graphs, want %d", got, want)
	}
}
