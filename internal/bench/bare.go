package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A bare baseline moves bytes between two processes of its own: one has the tensors, the
// other receives them, and nothing of Tryst runs in either. The first process starts both
// (suite.startBare) and tells the receiver when to run:
//
//	bench ── setup{bare: {}} ────────────────► serving process: listeners, memfds
//	bench ── setup{bare: {from: addresses}} ─► receiving process
//	bench ── command{run: bareRun} ──────────► receiving process: for 0.3 s, in turn with Tryst

// bareSetup makes a second process one of the two.
type bareSetup struct {
	// From is where the receiving process finds the other one; nil makes it the serving one.
	From *bareAddresses `json:"from,omitempty"`
}

// bareAddresses says where the serving process has the tensors.
type bareAddresses struct {
	TCP  string `json:"tcp"`
	Unix string `json:"unix"` // the path of a socket
	TLS  string `json:"tls"`
	CA   []byte `json:"ca"` // the certificate at TLS, in DER
	// SpinTCP and SpinUnix are where the serving side spins.
	SpinTCP  string `json:"spin_tcp"`
	SpinUnix string `json:"spin_unix"`
	// Memfds has a path to the memory of each tensor, by size: /proc/PID/fd/N. It is empty
	// where the system has no memfds.
	Memfds map[int64]string `json:"memfds"`
	// Opaque and Version are those of a program that others wrote (peers.go).
	Opaque  string `json:"opaque,omitempty"`
	Version string `json:"version,omitempty"`
}

// bareServer is the serving process. It owns its listeners and its memfds.
type bareServer struct {
	where   bareAddresses
	tensors map[int64]*tensor.Tensor
	servers []*tcpServer
	dir     string // of the unix socket
	memfds  []*os.File
}

func startBareServer(ctx context.Context, sizes []int64) (_ *bareServer, err error) {
	s := &bareServer{tensors: make(map[int64]*tensor.Tensor)}
	defer func() {
		if err != nil {
			err = status.From(errors.Join(err, s.close())).WithPrefix("the bare baselines")
		}
	}()
	for _, size := range sizes {
		if s.tensors[size] != nil {
			continue
		}
		if s.tensors[size], err = randomTensor(tensor.Heap{}, size); err != nil {
			return nil, err
		}
	}
	if s.memfds, s.where.Memfds, err = makeMemfds(s.tensors); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "tryst-bench-"); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	for _, l := range []struct {
		network, address string
		where            *string
		spin             bool
	}{
		{"tcp", loopback, &s.where.TCP, false},
		{"tcp", loopback, &s.where.SpinTCP, true},
		{"unix", filepath.Join(s.dir, "socket"), &s.where.Unix, false},
		{"unix", filepath.Join(s.dir, "spinning"), &s.where.SpinUnix, true},
	} {
		listener, err := lc.Listen(ctx, l.network, l.address)
		if err != nil {
			return nil, err
		}
		*l.where = s.serve(listener, l.spin)
	}
	pair, err := newCertificate()
	if err != nil {
		return nil, err
	}
	secret, err := lc.Listen(ctx, "tcp", loopback)
	if err != nil {
		return nil, err
	}
	s.where.CA = pair.der
	s.where.TLS = s.serve(tls.NewListener(secret, &tls.Config{Certificates: []tls.Certificate{pair.certificate()}, MinVersion: tls.VersionTLS13}), false)
	return s, nil
}

// serve answers on a listener, and returns its address.
func (s *bareServer) serve(l net.Listener, spin bool) string {
	s.servers = append(s.servers, serveTCP(l, s.tensors, spin))
	return l.Addr().String()
}

func (s *bareServer) hello() hello { return hello{Bare: &s.where} }

func (s *bareServer) obey(command) state { return state{} }

func (s *bareServer) close() (err error) {
	for _, t := range s.servers {
		t.close()
	}
	for _, f := range s.memfds {
		err = errors.Join(err, f.Close())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	for _, t := range s.tensors {
		if t != nil {
			t.Release()
		}
	}
	return err
}

// bareTLS is how the receiving process connects to TLS: Go's defaults of TLS 1.3, as Tryst.
func (a *bareAddresses) bareTLS() (*tls.Config, error) {
	cert, err := x509.ParseCertificate(a.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, nil
}

// bare is the first process's handle of the two.
type bare struct{ server, receiver *child }

// startBare starts both processes with tensors of the sizes. The context that it returns
// ends when one of them does.
func (s *suite) startBare(ctx context.Context, sizes []int64) (*bare, context.Context, error) {
	return startBareBy(ctx, sizes, s.Command)
}

// startBareBy starts both by a command.
func startBareBy(ctx context.Context, sizes []int64, command func(context.Context) *exec.Cmd) (_ *bare, _ context.Context, err error) {
	b := new(bare)
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.server, ctx, err = startChild(ctx, command, setup{Sizes: sizes, Bare: &bareSetup{}}); err != nil {
		return nil, nil, err
	}
	if b.server.Bare == nil {
		return nil, nil, status.New(status.Internal, "the process of the bare baselines does not say where it serves")
	}
	if b.receiver, ctx, err = startChild(ctx, command, setup{Bare: &bareSetup{From: b.server.Bare}}); err != nil {
		return nil, nil, err
	}
	return b, ctx, nil
}

// side runs one of the baselines.
func (b *bare) side(r bareRun) side {
	return func(ctx context.Context, d time.Duration) (run, error) {
		r.Time = d
		st, err := b.receiver.obey(ctx, command{Run: &r})
		if err != nil {
			return run{}, ended(ctx, err)
		}
		if st.Run == nil {
			return run{}, status.New(status.Internal, "the receiving process of the bare baselines has not measured")
		}
		return st.Run.run(), nil
	}
}

// has reports whether the system has what a baseline needs.
func (b *bare) has(baseline string) bool {
	return baseline != MemfdCopy || len(b.server.Bare.Memfds) > 0
}

func (b *bare) close() {
	for _, c := range []*child{b.receiver, b.server} { // the receiver has connections
		if c != nil {
			c.close()
		}
	}
}
