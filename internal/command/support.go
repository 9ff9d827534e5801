package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/internal/support"
)

const supportLong = `Support writes one archive for the report of a problem: the settings of this
command line and of the running processes, what doctor says of this host, and of
each process its status, links, metrics, last warnings and goroutines. ADDRESS is
the metrics address of a process (--metrics-address of serve): HOST:PORT, a PORT
of this host, or a URL; without one it is 127.0.0.1:9090. Goroutines come from
its pprof-address.

The archive has no content of tensors, no certificates and keys, no variables of
the environment. Passwords in URLs, what is named a token or a password, and the
values of such variables are removed wherever they appear. It has names of
hosts, tasks and publications, and addresses: look at it before you publish it.
What cannot be had is named on stderr and in the archive.`

// supportOptions are the flags of support.
type supportOptions struct {
	out, pprof string
	noDoctor   bool
	addresses  []string
}

func (s streams) supportCommand() *cobra.Command {
	var o supportOptions
	cmd := &cobra.Command{
		Use:   "support [--out FILE] [ADDRESS]...",
		Short: "Write one archive for the report of a problem, without secrets",
		Long:  supportLong,
		Example: `  tryst support
  tryst support --out report.tar.gz worker-0:9090 worker-1:9090`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, addresses []string) error {
			if len(addresses) > support.MaxProcesses {
				return usagef("%d processes: at most %d fit one archive", len(addresses), support.MaxProcesses)
			}
			cfg, err := s.load(cmd, config.ForClient) // as doctor does
			if err != nil {
				return err
			}
			if o.addresses = addresses; len(addresses) == 0 {
				o.addresses = []string{defaultMetrics}
			}
			return s.support(cmd, cfg, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.out, "out", "", "`FILE` to write, which must not exist; default tryst-support-TIME.tar.gz")
	flags.StringVar(&o.pprof, "pprof", "", "`HOST:PORT` of the goroutines of the only ADDRESS; default its pprof-address")
	flags.BoolVar(&o.noDoctor, "no-doctor", false, "leave out what doctor says, which reaches the tasks of --cluster")
	sources.RegisterFlags(flags, config.ForDoctor)
	return cmd
}

func (s streams) support(cmd *cobra.Command, cfg *sources.Loaded, o supportOptions) error {
	now := time.Now().UTC()
	folder := "tryst-support-" + now.Format("20060102T150405Z")
	if o.out == "" {
		o.out = folder + ".tar.gz"
	}
	file, err := os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	scrubber := support.NewScrubber(sources.Environ(s.env))
	missing, err := s.writeSupport(cmd.Context(), support.NewArchive(file, folder, now, scrubber), cfg, o)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(o.out))
	}
	for _, m := range missing {
		_, _ = fmt.Fprintf(s.err, "%s: %s\n", cmd.CommandPath(), printable(scrubber.Scrub(m.Error()))) // the archive says it, too
	}
	_, err = fmt.Fprintf(s.out, "wrote %s\n", o.out)
	return err
}

// writeSupport fills the archive. missing is what could not be had.
func (s streams) writeSupport(ctx context.Context, a *support.Archive, cfg *sources.Loaded, o supportOptions) (missing []error, err error) {
	settings := settingsText(cfg)
	if err := errors.Join(a.Add("README.txt", supportLong+"\n"), a.Add("version.txt", buildVersion().String()+"\n"), a.Add("settings.txt", settings)); err != nil {
		return nil, err
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for i, address := range o.addresses {
		pprof := o.pprof
		if len(o.addresses) > 1 {
			pprof = ""
		}
		m, err := a.Process(ctx, client, fmt.Sprintf("process-%d", i), address, pprof)
		if missing = append(missing, m...); err != nil {
			return missing, err
		}
	}
	if !o.noDoctor {
		if err := a.Add("doctor.txt", doctorText(ctx, cfg)); err != nil {
			return missing, err
		}
	}
	return missing, errors.Join(ctx.Err(), a.Close())
}

// settingsText lists the settings that are not the defaults, with where they come from.
func settingsText(cfg *sources.Loaded) string {
	var b strings.Builder
	for _, e := range cfg.Describe() {
		if e.Source.Kind != config.FromDefault {
			fmt.Fprintf(&b, "%s: %s (%s)\n", e.Key, e.Value, e.Source)
		}
	}
	if b.Len() == 0 {
		return "all settings of this command line are the defaults\n"
	}
	return b.String()
}

func doctorText(ctx context.Context, cfg *sources.Loaded) string {
	_, report, err := examine(ctx, cfg, "", false)
	if err != nil {
		return "not there: " + err.Error() + "\n"
	}
	var b strings.Builder
	_ = report.WriteText(&b) // a Builder takes everything
	return b.String()
}
