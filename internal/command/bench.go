package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/internal/console"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	from         serverFlags
	routes, json bool
	bytes        string
	each         time.Duration
}

// benchTime and benchBytes are the defaults of --time and --bytes: enough for some pulls over a
// fast route, and one pull over a slow one takes seconds.
const (
	benchTime  = 3 * time.Second
	benchBytes = "64MiB"

	routeGRPC = "grpc" // the transport, and the route over it
)

func (s streams) benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench --from HOST[:PORT]|TASK [NAME]",
		Short: "Compare all routes to a server",
		Long: `Bench pulls tensors of a publication again and again, by gRPC and by each
provider that this process has, in turns. It prints a row for each route: the
device, the time of a receive of the smallest tensor, the bandwidth with
quartiles, the ratio to gRPC, or why the route cannot be used. NAME may be
omitted if the server has only one publication.

The tensors stay in memory, and their digests are not checked. --provider limits
the providers; a server with --transport grpc has none of them. Nothing else
should run on the two hosts.`,
		Example: `  tryst bench --from 10.0.0.1:2222
  tryst bench --from 10.0.0.1:2222 --provider shm,tcp --time 10s --json gpt2`,
		DisableFlagsInUseLine: true,
		Args:                  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			bytes, problems := o.check()
			cfg, err := o.from.check(cmd, s, problems...)
			if err != nil {
				return err
			}
			return s.bench(cmd, &o, cfg, firstOf(args), bytes)
		},
	}
	o.from.register(cmd, 0)
	flags := cmd.Flags()
	flags.BoolVar(&o.routes, "routes", true, "compare the routes to the server, which is all that bench measures")
	flags.StringVar(&o.bytes, "bytes", benchBytes, "pull tensors of about this `SIZE` each time, or one if all are larger")
	flags.DurationVar(&o.each, "time", benchTime, "pull over each route for about this time")
	flags.BoolVar(&o.json, "json", false, "write one line of JSON for each route")
	return cmd
}

// check returns the bytes of a pull, and all that is wrong with the flags.
func (o *benchOptions) check() (bytes int64, problems []error) {
	if !o.routes {
		problems = append(problems, usagef("--routes=false: nothing is left to measure"))
	}
	bytes, err := config.ParseSize(o.bytes)
	if err == nil && bytes < 1 {
		err = fmt.Errorf("it must be at least 1")
	}
	if err != nil {
		problems = append(problems, usagef("--bytes %q: %w", o.bytes, err))
	}
	if o.each <= 0 {
		problems = append(problems, usagef("--time %v: it must be above 0", o.each))
	}
	return bytes, problems
}

func (s streams) bench(cmd *cobra.Command, o *benchOptions, cfg *sources.Loaded, name string, bytes int64) error {
	ctx := cmd.Context()
	if o.from.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.from.timeout)
		defer cancel()
	}
	given, _ := cfg.Given(config.ForClient)
	routes := benchRoutesOf(given)
	defer func() {
		for _, r := range routes {
			r.close(ctx)
		}
	}()
	if isTerminal(s.err) {
		fmt.Fprintf(s.err, "%s: measuring %d routes to %s, about %v for each\n", cmd.CommandPath(), len(routes), printable(o.from.from), o.each)
	}
	if err := measureRoutes(ctx, routes, o.from.from, name, bytes, o.each); err != nil {
		return err
	}
	if o.json {
		return writeRoutesJSON(s, routes)
	}
	return s.writeRoutes(routes)
}

// benchRoutesOf returns the routes that a client may have: gRPC first, then a device of each provider
// that the settings allow.
func benchRoutesOf(c server.Config) []*benchRoute {
	grpc := c
	grpc.Transport = routeGRPC
	routes := []*benchRoute{{name: routeGRPC, settings: grpc}}
	allowed := strings.Split(cmp.Or(c.Provider, server.ProviderAuto), ",")
	for _, name := range config.Providers() {
		if name == server.ProviderAuto || !slices.Contains(allowed, name) && !slices.Contains(allowed, server.ProviderAuto) {
			continue
		}
		one := c
		// Without a fallback: another route would be measured in its place.
		one.Transport, one.Fallback, one.Provider = server.TransportVerbs, server.FallbackNone, name
		if config.NewProviderSet(name, c.SHM).FabricOnly() == "" {
			one.RDMA.Device = "" // it is another provider's
		}
		routes = append(routes, &benchRoute{name: name, settings: one})
	}
	return routes
}

// options are those of each client. Why a route cannot be used is in its row, not in the log.
func (r *benchRoute) options() server.Options {
	return server.Options{Logger: slog.New(slog.DiscardHandler)}
}

func (s streams) writeRoutes(routes []*benchRoute) error {
	rows := [][]string{{"ROUTE", "DEVICE", "RECEIVE OF " + config.FormatSize(routes[0].small.Bytes) + " µs", "GB/s", "QUARTILES GB/s", "× GRPC", "NOT USED, BECAUSE"}}
	for _, r := range routes {
		row := r.result(routes[0])
		if row.Error != "" {
			rows = append(rows, []string{row.Route, row.Device, "", "", "", "", printable(row.Error)})
			continue
		}
		rows = append(rows, []string{
			row.Route, row.Device, fmt.Sprintf("%.3g", row.Receive*1e6), fmt.Sprintf("%.2f", row.Rate),
			fmt.Sprintf("%.2f to %.2f", row.RateQ1, row.RateQ3), fmt.Sprintf("%.2f", row.OfGRPC), "",
		})
	}
	return console.Table{Width: console.Width(s.out)}.Write(s.out, rows...)
}

func writeRoutesJSON(s streams, routes []*benchRoute) error {
	encoder := json.NewEncoder(s.out)
	for _, r := range routes {
		if err := encoder.Encode(r.result(routes[0])); err != nil {
			return status.Errorf(status.Unavailable, "cannot write the result: %w", err)
		}
	}
	return nil
}
