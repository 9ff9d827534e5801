package command

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/internal/telemetry"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

func (s streams) serveCommand() *cobra.Command {
	var publish []string
	var graphs graphs
	var file clusterFile
	cmd := &cobra.Command{
		Use:   "serve [--publish [NAME=]PATH]... [[NAME=]PATH]...",
		Short: "Publish checkpoints and run a task of the cluster",
		Long: `Serve listens, publishes the given files, and runs until SIGINT or SIGTERM.
Pulls in progress may then complete within --shutdown-timeout.

A PATH is a .safetensors file, the index of a sharded checkpoint
(*.safetensors.index.json), a directory that contains one of these, or an .npy
file. NAME is the name of the publication; the default is the file's name. Paths
with the same NAME form one publication. Once everything is published, the
address is in the log and in --address-file, and systemd is notified. An argument
that exists as it is written is a PATH, even with a = in it. Files ._NAME of macOS
are passed over.

When another file is renamed onto the name of a published one, and stays the same
for 2 s, serve publishes it as a new version; pulls in progress get the old one.
Of several tensor files it takes none before all are replaced, or their index is
replaced last. A symbolic link to another directory replaces all of them as one.
A file that is written in place is an error to pullers until SIGHUP, with which
serve reads its publications again. A file that is still being written is not
taken. If stdin is a terminal, SIGHUP ends serve instead, so that closing the
terminal does.

The cluster may be in the file of --cluster-file, as for --cluster or as YAML
(worker: [h1:2222, h2:2222]). Serve follows its changes within some seconds: tasks
come, go and move while it runs. The file ends with a line feed. One that is empty,
half written or without this task is not taken, which is in the log; the cluster
stays as it was.`,
		Example: `  tryst serve --publish gpt2.safetensors
  tryst serve --listen :2222 llama=models/llama/ vocab=vocab.npy`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := file.load(cmd); err != nil {
				return wrongUsage(err)
			}
			cfg, err := s.load(cmd, config.ForServer)
			problems := []error{err}
			paths := slices.Concat(publish, args)
			for _, arg := range paths { // empty where a script uses an unset variable
				if _, path := checkpoint.SplitName(arg); path == "" {
					problems = append(problems, usagef("publication %q has no path: want [NAME=]PATH", arg))
				}
			}
			if err := wrongUsage(problems...); err != nil {
				return err
			}
			offers := publications(withoutCompanions(paths))
			if err := distinct(offers); err != nil {
				return err
			}
			if err := present(offers); err != nil {
				return err
			}
			return s.serve(cmd.Context(), cfg, offers, graphs, file)
		},
	}
	cmd.Flags().StringArrayVar(&publish, "publish", nil, "publish the tensors of [NAME=]`PATH`; may be repeated")
	file.register(cmd)
	graphs.register(cmd.Flags(), s.options.FilesUsage)
	sources.RegisterFlags(cmd.Flags(), config.ForServer)
	if s.options.ServeFlags != nil {
		s.options.ServeFlags(cmd.Flags())
	}
	return cmd
}

// withoutCompanions removes the files that macOS puts beside others, which come with a glob. If
// there are no others they remain, and are refused.
func withoutCompanions(args []string) []string {
	others := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
		_, path := checkpoint.SplitName(arg)
		return checkpoint.IsCompanion(path)
	})
	if len(others) == 0 {
		return args
	}
	return others
}

// offer is a publication to make.
type offer struct {
	name  string
	paths []string
}

// distinct checks that no two arguments have one name without saying so: a file's name is the name of its
// publication.
func distinct(offers []offer) error {
	first := make(map[string]offer)
	for _, o := range offers {
		if other, ok := first[o.name]; ok {
			return fmt.Errorf("%s and %s would both be publication %s: give one of them another name with NAME=PATH, or both the same for one publication of both",
				other.paths[0], o.paths[0], strconv.Quote(o.name))
		}
		first[o.name] = o
	}
	return nil
}

// present checks that all files are there, before a device or a port is opened for them.
func present(offers []offer) error {
	for _, o := range offers {
		for _, path := range o.paths {
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("publishing %s: %w", strconv.Quote(o.name), err)
			}
		}
	}
	return nil
}

// publications groups the paths that are given with the same name.
func publications(args []string) []offer {
	var offers []offer
	named := make(map[string]int)
	for _, arg := range args {
		name, path := checkpoint.SplitName(arg)
		if path != arg { // the name was given
			if i, ok := named[name]; ok {
				offers[i].paths = append(offers[i].paths, path)
				continue
			}
			named[name] = len(offers)
		}
		offers = append(offers, offer{name, []string{path}})
	}
	return offers
}

// endsWithTerminal reports whether SIGHUP means that the terminal of this process is closed, as it
// does unless the user has had it ignored (nohup).
func (s streams) endsWithTerminal() bool {
	return s.signals != nil && s.in != nil && isTerminal(s.in) && !signal.Ignored(syscall.SIGHUP)
}

func (s streams) serve(ctx context.Context, cfg *sources.Loaded, offers []offer, graphs graphs, file clusterFile) error {
	log := newLogger(cfg.Log, s.err)
	systemd := &notifier{socket: sources.NotifySocket(s.env), log: log}
	reload := make(chan os.Signal, 1) // with space for a signal during the start, which is handled after it
	defer signal.Stop(reload)
	if s.endsWithTerminal() {
		signal.Notify(s.signals, syscall.SIGHUP)
	} else {
		signal.Notify(reload, syscall.SIGHUP)
	}
	kernels, end, err := s.kernels(log, cfg.Kernels, graphs.files)
	if err != nil {
		return err
	}
	defer end()
	traces, err := telemetry.New(ctx, cfg.OTel, cfg.Task)
	if err != nil {
		return err
	}
	defer closeTraces(ctx, traces, min(tracesTimeout, cfg.ShutdownTimeout))
	logVariables(log, cfg)
	given, limits := cfg.Given(config.ForServer)
	srv, err := server.Start(ctx, given, server.Options{
		GraphLimits: limits,
		Logger:      log, LimitHeap: true, Version: version, ServerStats: traces.Server(), ClientStats: traces.Client(), Kernels: kernels,
		Listening: s.listening(cfg, graphs),
		Prepare: func(ctx context.Context, srv *server.Server) error {
			for _, o := range offers {
				systemd.busy("publishing " + strconv.Quote(o.name))
				if _, err := srv.Catalog().Publish(ctx, o.name, o.paths...); err != nil {
					return err
				}
			}
			return nil
		},
	})
	if err != nil {
		return err
	}
	systemd.ready("serving at " + srv.Addr().String())
	unfollow := file.follow(ctx, srv.SetCluster, log)
	defer untilDone(ctx, srv.Done(), reload, func(ctx context.Context) {
		_ = srv.Catalog().Reload(ctx) // the errors are in the log
	})()
	unfollow()
	systemd.stopping("stopping: calls in progress may complete")
	return srv.Close(context.WithoutCancel(ctx))
}

// kernels returns the kernel set that a setting names, nil for none, and what to do at the server's end. files are the
// directories below which graphs may use files.
func (s streams) kernels(log *slog.Logger, name string, files []string) (set graph.KernelSet, end func(), err error) {
	open := s.options.Kernels
	switch {
	case name == config.KernelsNone && len(files) > 0:
		return nil, nil, fmt.Errorf("--tensorflow-files %s: kernels is %q, so this server runs no graphs; leave one of the two out", files[0], name)
	case name == config.KernelsNone:
		return nil, func() {}, nil
	case name == config.KernelsTensorFlow && open == nil:
		return nil, nil, fmt.Errorf("kernels %q: this binary has the kernels in Go only; run tryst-tensorflow, which opens TensorFlow's library", name)
	case name == config.KernelsGo, open == nil:
		kernels := ops.New()
		if err := kernels.AddCollectives(); err != nil {
			return nil, nil, err
		}
		if err := kernels.AllowFiles(files...); err != nil {
			return nil, nil, err
		}
		if len(files) > 0 {
			log.Info("graphs may save and restore checkpoints", "below", files)
		}
		return kernels, func() {}, nil
	}
	return open(log, files)
}

// untilDone returns when ctx ends, or done is closed since the listener failed. Until then it calls
// reload for each signal, one call at a time. It does not wait for the last call; wait does.
func untilDone(ctx context.Context, done <-chan struct{}, signals <-chan os.Signal, reload func(context.Context)) (wait func()) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var reloads sync.WaitGroup
	reloads.Go(func() {
		for {
			select {
			case <-signals:
				reload(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	select {
	case <-ctx.Done():
	case <-done:
	}
	return reloads.Wait
}
