package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
)

func (s streams) serveCommand() *cobra.Command {
	var publish []string
	cmd := &cobra.Command{
		Use:   "serve [--publish [NAME=]PATH]... [[NAME=]PATH]...",
		Short: "Publish checkpoints and be a task of the cluster",
		Long: `Serve listens, publishes the given files, and runs until it is told to stop
(SIGINT or SIGTERM): pulls under way may then end within --shutdown-timeout.

A PATH is a .safetensors file, the index of a sharded checkpoint
(*.safetensors.index.json), a directory that holds one of these, or an .npy
file. NAME is the publication; without it the file's name. Paths with the same
NAME make one publication. The address is in the log and in --address-file when
all is published.`,
		Example: `  tryst serve --publish gpt2.safetensors
  tryst serve --listen :2222 llama=models/llama/ vocab=vocab.npy`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := s.load(cmd, config.ForServer)
			if err != nil {
				return err
			}
			asked := slices.Concat(publish, args)
			for _, arg := range asked { // a variable of a script that is not set
				if _, path := checkpoint.SplitName(arg); path == "" {
					return usagef("publication %q has no path: want [NAME=]PATH", arg)
				}
			}
			return s.serve(cmd.Context(), cfg, publications(asked))
		},
	}
	cmd.Flags().StringArrayVar(&publish, "publish", nil, "offer the tensors of [NAME=]`PATH`; may be given again")
	config.RegisterFlags(cmd.Flags(), config.ForServer)
	return cmd
}

// offer is a publication that is asked for.
type offer struct {
	name  string
	paths []string
}

// publications puts arguments with the same given name together.
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

func (s streams) serve(ctx context.Context, cfg config.Config, offers []offer) error {
	srv, err := server.Start(ctx, cfg, server.Options{
		Logger: server.NewLogger(cfg.Log, s.err),
		Prepare: func(ctx context.Context, srv *server.Server) error {
			for _, o := range offers {
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
	select {
	case <-ctx.Done():
	case <-srv.Done(): // the listener failed, which Close tells
	}
	return srv.Close(context.WithoutCancel(ctx))
}
