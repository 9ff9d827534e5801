package command

import (
	"cmp"
	"fmt"
	"net"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/status"
)

// graphs are the flags of serve about what graphs may reach.
type graphs struct {
	files  []string // directories below which they may use files
	anyone bool
}

func (g *graphs) register(set *pflag.FlagSet, filesUsage string) {
	set.StringArrayVar(&g.files, "tensorflow-files", nil, cmp.Or(filesUsage, "let graphs save and restore checkpoints below `directory`, and use no other files; may be repeated"))
	set.BoolVar(&g.anyone, "allow-anyone-to-run-graphs", false, "listen beyond loopback without mutual TLS although graphs reach more than memory: every host that reaches the port can run graphs")
}

// listening returns what checks the address that graphs are accepted at; nil when there are none, or they run with
// the kernels in Go, which reach nothing but memory and the checkpoints of --tensorflow-files.
func (s streams) listening(cfg *sources.Loaded, g graphs) func(net.Addr) error {
	inGo := s.options.Kernels == nil || cfg.Kernels == config.KernelsGo
	if cfg.Kernels == config.KernelsNone || inGo && len(g.files) == 0 {
		return nil
	}
	what := "as the user of this process"
	if inGo {
		what = fmt.Sprintf("which write files below %q", g.files)
	}
	return func(a net.Addr) error { return g.listening(a, cfg.TLS.RequireClientCert, what) }
}

// listening refuses to run the graphs of every host that reaches the port, unless that was asked for. Stock
// TensorFlow has no TLS, so with it this is the only way beyond loopback.
func (g graphs) listening(address net.Addr, mutualTLS bool, what string) error {
	tcp, ok := address.(*net.TCPAddr)
	if g.anyone || mutualTLS || ok && tcp.IP.IsLoopback() {
		return nil
	}
	return status.Errorf(status.FailedPrecondition,
		"every host that reaches %s could run graphs here, %s: set tls.cert, tls.key, tls.ca and tls.require-client-cert (TensorFlow has no TLS), or listen on loopback; or, when only trusted hosts reach the port, set --allow-anyone-to-run-graphs", address, what)
}
