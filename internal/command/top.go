package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/console"
	"github.com/tryst-rdma/tryst/internal/top"
)

func (s streams) topCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top [--once] [ADDRESS]...",
		Short: "Show what running processes do: waits, peers, throughput, pulls, limits, warnings",
		Long: `Top shows what processes do, twice a second. ADDRESS is the metrics address of a
process (--metrics-address of serve): HOST:PORT, a PORT of this host, or a URL.
Without one it is 127.0.0.1:9090. Give the addresses of all processes of a job
that hangs: top joins what both sides of a wait know.

The first line of the view "Waits" is the longest wait: its key, who waits, on
whom, since when, and what is missing. Keys: ? shows them.

With --once, or if stdout is no terminal, it prints the state once. The exit
status is 1 if a process did not answer.`,
		Example: `  tryst serve --metrics-address :9090 --publish gpt2.safetensors
  tryst top
  tryst top worker-0:9090 worker-1:9090 ps-0:9090
  tryst top --once :9090 | grep receive`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, addresses []string) error {
			if len(addresses) == 0 {
				addresses = []string{defaultMetrics}
			}
			slices.Sort(addresses)
			return s.top(cmd.Context(), slices.Compact(addresses), once)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print the state once, as text")
	return cmd
}

// defaultMetrics is the address that the documents use for metrics.
const defaultMetrics = "127.0.0.1:9090"

func (s streams) top(ctx context.Context, addresses []string, once bool) error {
	client := &http.Client{}
	defer client.CloseIdleConnections()
	out, terminal := s.terminal()
	if !once && terminal {
		return top.Run(ctx, top.Client{HTTP: client}, addresses, s.in, out, s.env)
	}
	m := top.Once(ctx, top.Client{HTTP: client}, addresses)
	width := 200
	if terminal {
		width = console.Width(s.out)
	}
	failed := m.Failed()
	if len(failed) < len(addresses) {
		if _, err := fmt.Fprintln(s.out, strings.Join(m.Once(width), "\n")); err != nil {
			return err
		}
	}
	var errs []error
	for _, a := range addresses {
		if err, ok := failed[a]; ok {
			errs = append(errs, fmt.Errorf("%s: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// terminal returns the file that results go to, and whether both it and the input are a terminal.
func (s streams) terminal() (out *os.File, is bool) {
	to := s.out
	for {
		w, ok := to.(interface{ Unwrap() io.Writer })
		if !ok {
			break
		}
		to = w.Unwrap()
	}
	f, ok := to.(*os.File)
	return f, ok && isTerminal(f) && s.in != nil && isTerminal(s.in)
}
