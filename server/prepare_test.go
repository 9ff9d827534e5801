package server_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/server"
)

// A server that prepares answers, and says nowhere that it is ready.
func TestPrepareComesBeforeReady(t *testing.T) {
	cfg := server.Config{}
	cfg.Listen = "127.0.0.1:0"
	cfg.AddressFile = filepath.Join(t.TempDir(), "address")
	health := func(s *server.Server) healthpb.HealthCheckResponse_ServingStatus {
		conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		resp, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetStatus()
	}
	s, err := server.Start(t.Context(), cfg, server.Options{Prepare: func(_ context.Context, s *server.Server) error {
		if _, err := os.Stat(cfg.AddressFile); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("address file while preparing: %v", err)
		}
		if got := health(s); got != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("health while preparing: %v", got)
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	if b, err := os.ReadFile(cfg.AddressFile); err != nil || strings.TrimSpace(string(b)) != s.Addr().String() {
		t.Errorf("address file %q, %v", b, err)
	}
	if got := health(s); got != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v", got)
	}
}

func TestPrepareFails(t *testing.T) {
	cfg := server.Config{}
	cfg.Listen = "127.0.0.1:0"
	cfg.AddressFile = filepath.Join(t.TempDir(), "address")
	want := errors.New("nothing to publish")
	s, err := server.Start(t.Context(), cfg, server.Options{Prepare: func(context.Context, *server.Server) error { return want }})
	if s != nil || !errors.Is(err, want) {
		t.Fatalf("%v, %v", s, err)
	}
	if _, err := os.Stat(cfg.AddressFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("address file: %v", err)
	}
}
