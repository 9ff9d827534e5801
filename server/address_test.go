package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

func TestAddressFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "address")
	s, err := Start(t.Context(), settings(func(c *Config) { c.AddressFile = path }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != s.Addr().String()+"\n" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file outlives the server: %v", err)
	}
	_, err = Start(t.Context(), settings(func(c *Config) { c.AddressFile = filepath.Join(path, "x") }), Options{})
	wantError(t, err, status.InvalidArgument, "address-file", path)
	_, err = Start(t.Context(), settings(func(c *Config) { c.AddressFile = filepath.Dir(path) }), Options{})
	wantError(t, err, status.InvalidArgument, "address-file", filepath.Dir(path), "is a directory")
}

// TestAddressFileOfAnotherServer: a server leaves the file of its successor alone, and who
// waits for a file does not read what one that was killed has left.
func TestAddressFileOfAnotherServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "address")
	if err := os.WriteFile(path, []byte("stale:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := settings(func(c *Config) { c.AddressFile = path })
	first, err := Start(t.Context(), c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := Start(t.Context(), c, Options{Prepare: func(context.Context, *Server) error {
		if b, err := os.ReadFile(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("before the server serves the file holds %q: %v", b, err)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != second.Addr().String()+"\n" {
		t.Errorf("when the first server has ended the file of the second holds %q, %v", b, err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
