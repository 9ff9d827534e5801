package server

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
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

// A program that waits for Done and then exits must not cut off the end of Close.
func TestServerIsDoneWhenCloseIsComplete(t *testing.T) {
	file := filepath.Join(t.TempDir(), "address")
	s := start(t, settings(func(c *Config) { c.AddressFile = file }), Options{})
	release, called := make(chan struct{}), make(chan struct{})
	s.RecvAsync(t.Context(), 1, s.Device().String(), "x", func(rendezvous.Value, error) {
		close(called)
		<-release
	})
	go func() { _ = s.Close(t.Context()) }()
	<-called // Close has ended the receive
	<-s.serving
	if err := s.Err(); err != nil {
		t.Errorf("ended while Close waits for a callback: %v", err)
	}
	close(release)
	<-s.Done()
	wantError(t, s.Err(), status.Cancelled)
	if _, err := os.Stat(file); err == nil {
		t.Error("the address file is still there after Done")
	}
}
