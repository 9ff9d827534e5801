package server

import (
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// A listener may fail while the process goes on, for example when its interface is taken away.
func TestServerSaysThatItsListenerFailed(t *testing.T) {
	s, err := Start(t.Context(), settings(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("before: %v", err)
	}
	_ = s.socket.Close()
	<-s.Done()
	wantError(t, s.Err(), status.Internal)
	wantError(t, s.Close(t.Context()), status.Internal)
	wantError(t, s.Err(), status.Internal) // the first reason stays
}
