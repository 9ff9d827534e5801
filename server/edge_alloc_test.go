package server

import (
	"testing"
)

// TestServerSendAllocates is the cost of Server.Send and Recv, which make two keys.
func TestServerSendAllocates(t *testing.T) {
	s := start(t, settings(), Options{})
	x := float(t, 1)
	defer x.Release()
	self := s.Task().String()
	n := testing.AllocsPerRun(200, func() {
		if err := s.Send(1, self, "x", x, false); err != nil {
			t.Fatal(err)
		}
		v, err := s.Recv(t.Context(), 1, self, "x")
		if err != nil {
			t.Fatal(err)
		}
		v.Tensor.Release()
	})
	t.Log(n)
}
