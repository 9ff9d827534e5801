// Package command is the command line of tryst, and of the commands that are tryst with other
// kernels.
package command

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// Options are what the commands differ in.
type Options struct {
	// Name is the name of the command; empty means tryst.
	Name string
	// ServeFlags, if not nil, adds flags to serve.
	ServeFlags func(*pflag.FlagSet)
	// Kernels returns the kernel set that serve runs graphs with, and what to do at the end. It is
	// called once, with the flags parsed. files are the directories of --tensorflow-files. Nil means the kernels in Go.
	Kernels func(log *slog.Logger, files []string) (set graph.KernelSet, end func(), err error)
	// FilesUsage is the help of --tensorflow-files; empty for that of the kernels in Go.
	FilesUsage string
}

// name is the name of the command.
func (o Options) name() string {
	if o.Name == "" {
		return "tryst"
	}
	return o.Name
}

// Tree returns the tree of commands, for documents that are made of it. It takes nothing from the environment.
func Tree(o Options) *cobra.Command { return newRoot(streams{env: []string{}, options: o}) }

// Main runs the command line of the process and returns its exit status.
func Main(o Options) int {
	// Otherwise the Go runtime ends the process when it logs to a pipe whose reader has gone. Writes
	// to such a pipe fail instead: logs are lost, and results end the command (exitPipe).
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return interruptible(os.Stderr, o.name(), signals, func(ctx context.Context) int {
		return run(ctx, streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, signals: signals, options: o}, os.Args[1:])
	})
}
