package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tryst-rdma/tryst/soft-roce/vm"
	"github.com/tryst-rdma/tryst/soft-roce/vm/guest"
)

func main() {
	if guest.Main(os.Args) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soft-roce:", err)
	}
	os.Exit(status)
}

// failed is the exit status when the command could not be run, as env(1) and timeout(1) have it.
const failed = 125

func run(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 || args[0] != "vm" {
		return failed, errors.New("usage: soft-roce vm ...")
	}
	flags := flag.NewFlagSet("vm", flag.ContinueOnError)
	cache := flags.String("cache", "build/rxe-vm", "`directory` for the kernel and what was found out")
	share := flags.String("share", "build", "`directory` that the guest may write to")
	accel := flags.String("accel", "auto", "kvm, tcg or auto")
	timeout := flags.Duration("timeout", 20*time.Minute, "kill the guest after this")
	verbose := flags.Bool("v", false, "show the console")
	if err := flags.Parse(args[1:]); err != nil {
		return failed, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("killed: it took over %s", *timeout))
	defer cancel()
	a, err := vm.ParseAccelerator(*accel)
	if err != nil {
		return failed, err
	}
	program, err := os.Executable()
	if err != nil {
		return failed, err
	}
	c := vm.Config{Program: program, Accelerator: a, Log: os.Stderr}
	if c.Cache, err = filepath.Abs(*cache); err != nil {
		return failed, err
	}
	if c.Share, err = filepath.Abs(*share); err != nil {
		return failed, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return failed, err
	}
	if *verbose {
		c.Console = os.Stderr
	}
	m, err := vm.Boot(ctx, c)
	if err != nil {
		return failed, err
	}
	defer m.Close()
	status, err := m.Run(ctx, vm.Command{Args: flags.Args(), Dir: dir, Env: vm.Environment(), Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		return failed, err
	}
	return status, nil
}
