package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/trace"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

func (s streams) traceCommand() *cobra.Command {
	var (
		from, out string
		took      time.Duration
	)
	cmd := &cobra.Command{
		Use:   "trace --from HOST:PORT | FILE [flags]",
		Short: "Write a trace of the steps that a server runs, for chrome://tracing",
		Long: `Trace writes a trace in Chrome's format, which chrome://tracing and
https://ui.perfetto.dev show: each kernel and each received tensor, with its step,
by device.

With --from it records what a running server does in --time. HOST:PORT is the
server's --metrics-address. With a FILE it converts what a TensorFlow client got with
FULL_TRACE: a RunMetadata that was written by run_metadata.SerializeToString().`,
		Example: `  tryst trace --from 127.0.0.1:9090 --time 2s --out trace.json
  tryst trace run_metadata.pb > trace.json`,
		DisableFlagsInUseLine: true,
		Args:                  traceArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case from == "" && len(args) == 0:
				return usagef("nothing to trace: want --from HOST:PORT, the metrics-address of a server, or a FILE")
			case from != "" && len(args) > 0:
				return usagef("--from %s and FILE %s: want one of them", from, args[0])
			case took <= 0 || took > maxTraceTime:
				return usagef("--time %v: want more than 0s and at most %v", took, maxTraceTime)
			}
			var text bytes.Buffer
			var err error
			if from != "" {
				err = recordTrace(cmd.Context(), &text, from, took)
			} else {
				err = convertTrace(&text, args[0])
			}
			if err != nil {
				return err
			}
			if out == toStdout {
				_, err = s.out.Write(text.Bytes())
				return err
			}
			return os.WriteFile(out, text.Bytes(), 0o666) //nolint:gosec // the umask decides, as for other results
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "record what the server with this metrics-address does: `HOST:PORT`")
	cmd.Flags().DurationVar(&took, "time", time.Second, "how long to record, at most 1m")
	cmd.Flags().StringVar(&out, "out", toStdout, "write to this `FILE`; - is stdout")
	return cmd
}

func traceArguments(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("unexpected argument %q: the command takes one file", args[1])
	}
	return nil
}

// convertTrace converts a file.
func convertTrace(w io.Writer, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	stats, err := trace.Parse(b)
	if err != nil {
		return status.From(err).WithPrefix(strconv.Quote(path))
	}
	return trace.WriteChrome(w, []*tfpb.LabeledStepStats{{StepStats: stats}})
}

// recordTrace has a server record, and copies its trace.
func recordTrace(ctx context.Context, w io.Writer, from string, took time.Duration) error {
	url := "http://" + from + "/trace?seconds=" + strconv.FormatFloat(took.Seconds(), 'f', -1, 64)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usagef("--from %q: want HOST:PORT, the metrics-address of a server", from)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // tracing goes to the server itself, not to a proxy
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("tracing %s: %w; is it the metrics-address of a server that runs?", from, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, maxTraceError)) // what came of it
		return fmt.Errorf("tracing %s: %s: %s", from, resp.Status, printable(strings.TrimSpace(string(text))))
	}
	_, err = io.Copy(w, resp.Body)
	return err
}
