package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	softroce "github.com/tryst-rdma/tryst/internal/softroce"
	"github.com/tryst-rdma/tryst/soft-roce/internal/tier"
	"github.com/tryst-rdma/tryst/soft-roce/internal/vm"
	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/guest"
)

// guestMain runs the guest's init or agent if the arguments select one, and then returns true.
func guestMain(args []string) bool { return guest.Main(args) }

// upDeadline limits how long new devices may take to become active.
const upDeadline = 10 * time.Second

// maxVMs bounds the VMs of one run; each takes up to 4 GiB.
const maxVMs = 8

// options are the values of all flags. Each command has some of the flags.
type options struct {
	cache, share, accel string
	timeout             time.Duration
	verbose             bool

	mode, list, packages, goCommand string
	packageTimeout                  time.Duration
	vms                             int
}

func run(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		return failed, errors.New("no command given: use vm, where, missing, test, up, down or list")
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	machine := func() {
		flags.StringVar(&o.cache, "cache", "build/rxe-vm", "`directory` for the kernel and the accelerator that works here")
		flags.StringVar(&o.share, "share", "build", "`directory` that the guest may write to")
		flags.StringVar(&o.accel, "accel", "auto", "the accelerator of QEMU: kvm, tcg or auto")
		flags.DurationVar(&o.timeout, "timeout", 30*time.Minute, "kill the guest after this")
		flags.BoolVar(&o.verbose, "v", false, "show the guest's console")
	}
	tests := func() {
		machine()
		flags.StringVar(&o.mode, "mode", "auto", "where the tests run: vm, native, off or auto")
		flags.StringVar(&o.list, "list", "soft-roce/rxe-tests", "`file` with the packages and tests")
		flags.StringVar(&o.packages, "pkg", "./...", "run only these packages of the list; patterns as for the go command")
		flags.StringVar(&o.goCommand, "go", "go", "the go command")
		flags.IntVar(&o.vms, "vms", 1, "how many VMs run the packages of the list, each one package at a time")
		flags.DurationVar(&o.packageTimeout, "package-timeout", 15*time.Minute, "the timeout of one package's tests")
	}
	commands := map[string]struct {
		flags func()
		run   func(context.Context, options, []string) (int, error)
	}{
		"vm":      {machine, inVM},
		"where":   {tests, where},
		"missing": {machine, missing},
		"test":    {tests, test},
		"up":      {func() {}, up},
		"down":    {func() {}, down},
		"list":    {func() {}, list},
	}
	c, ok := commands[args[0]]
	if !ok {
		return failed, fmt.Errorf("unknown command %q: use vm, where, missing, test, up, down or list", args[0])
	}
	c.flags()
	if err := flags.Parse(args[1:]); err != nil {
		return failed, err
	}
	if o.timeout > 0 {
		var cancel func()
		ctx, cancel = context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("killed after %s (TRYST_VM_TIMEOUT, -timeout)", o.timeout))
		defer cancel()
	}
	return c.run(ctx, o, flags.Args())
}

// config returns the configuration of the VM.
func (o options) config() (vm.Config, error) {
	c := vm.Config{Log: os.Stderr}
	if o.verbose {
		c.Console = os.Stderr
	}
	var err error
	if c.Accelerator, err = vm.ParseAccelerator(o.accel); err != nil {
		return c, err
	}
	if c.Program, err = os.Executable(); err != nil {
		return c, err
	}
	if c.Cache, err = filepath.Abs(o.cache); err != nil {
		return c, err
	}
	c.Share, err = filepath.Abs(o.share)
	return c, err
}

func inVM(ctx context.Context, o options, args []string) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return failed, err
	}
	c, err := o.config()
	if err != nil {
		return failed, err
	}
	shell := len(args) == 0
	if shell && !term.IsTerminal(int(os.Stdin.Fd())) {
		return failed, errors.New("no command given, and a shell needs a terminal: use soft-roce vm -- COMMAND..., or make rxe-vm CMD='...'")
	}
	m, err := vm.Boot(ctx, c)
	if err != nil {
		return failed, err
	}
	defer m.Close()
	command := vm.Command{Args: args, Dir: dir, Env: vm.Environment(), Stdout: os.Stdout, Stderr: os.Stderr}
	if shell {
		command.Args = []string{"bash"}
		command.Env = append(command.Env, "TERM=xterm")
		return m.RunOnTerminal(ctx, command, os.Stdin)
	}
	return m.Run(ctx, command)
}

// where prints where the tests will run, and prepares the VM if that is the place. It prints the
// reason after skip. It prints none if -pkg selects nothing of the list.
func where(ctx context.Context, o options, _ []string) (int, error) {
	entries, err := o.entries(ctx)
	if err != nil {
		return failed, err
	}
	if len(entries) == 0 {
		fmt.Println("none")
		return 0, nil
	}
	mode, err := tier.ParseMode(o.mode)
	if err != nil {
		return failed, err
	}
	c, err := o.config()
	if err != nil {
		return failed, err
	}
	d, err := tier.Decide(ctx, mode, func() error { return vm.Prepare(ctx, c) })
	if err != nil {
		return failed, err
	}
	fmt.Println(strings.TrimSpace(string(d.Where) + " " + d.Reason))
	return 0, nil
}

// missing prints what the VM needs and this machine lacks, one item a line.
func missing(_ context.Context, o options, _ []string) (int, error) {
	c, err := o.config()
	if err != nil {
		return failed, err
	}
	lines, err := vm.Missing(c)
	if err != nil {
		return failed, err
	}
	for _, line := range lines {
		fmt.Println(line)
	}
	return 0, nil
}

// test runs the tests at the place that where printed.
func test(ctx context.Context, o options, args []string) (_ int, err error) {
	entries, err := o.entries(ctx)
	if err != nil {
		return failed, err
	}
	c, err := o.config()
	if err != nil {
		return failed, err
	}
	root, err := os.Getwd()
	if err != nil {
		return failed, err
	}
	// Another run may be in progress, so each has its own directory.
	tests := filepath.Join(c.Cache, "tests")
	if err := os.MkdirAll(tests, 0o755); err != nil {
		return failed, err
	}
	binaries, err := os.MkdirTemp(tests, "")
	if err != nil {
		return failed, err
	}
	defer os.RemoveAll(binaries)
	var places []tier.Place
	switch tier.Where(o.mode) {
	case tier.InVM:
		for range o.vms {
			places = append(places, tier.InMachine(c))
		}
	case tier.Here:
		place, err := tier.OnThisMachine(ctx)
		if err != nil {
			return failed, err
		}
		places = append(places, place)
	default:
		return failed, fmt.Errorf("-mode %s: must be vm or native, as soft-roce where prints it", o.mode)
	}
	defer func() {
		for _, place := range places {
			err = errors.Join(err, place.Close())
		}
	}()
	return 0, tier.Run(ctx, tier.Config{
		Go: o.goCommand, Root: root, Binaries: binaries, Timeout: o.packageTimeout, Args: args,
		Events: os.Stdout, Log: os.Stderr,
	}, entries, places...)
}

// entries checks the flags of tests, and returns the entries of the list for the packages that -pkg selects.
func (o options) entries(ctx context.Context) ([]tier.Entry, error) {
	if o.vms < 1 || o.vms > maxVMs {
		return nil, fmt.Errorf("-vms %d (TRYST_VMS): must be 1 to %d", o.vms, maxVMs)
	}
	f, err := os.Open(o.list)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := tier.ParseList(f)
	if err != nil {
		return nil, fmt.Errorf("%s, %w", o.list, err)
	}
	if o.packages == "./..." {
		return all, nil
	}
	cmd := exec.CommandContext(ctx, o.goCommand, append([]string{"list", "-tags", tier.Tag, "-f", "{{.Dir}}"}, strings.Fields(o.packages)...)...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", o.packages, err, strings.TrimSpace(errs.String()))
	}
	wanted := map[string]bool{}
	for dir := range strings.Lines(string(out)) {
		wanted[strings.TrimSpace(dir)] = true
	}
	var selected []tier.Entry
	for _, e := range all {
		if dir, err := filepath.Abs(e.Package); err == nil && wanted[dir] {
			selected = append(selected, e)
		}
	}
	return selected, nil
}

func up(ctx context.Context, _ options, args []string) (int, error) {
	if len(args) == 0 {
		ctx, cancel := context.WithTimeout(ctx, upDeadline)
		defer cancel()
		if err := softroce.SetupPair(ctx, softroce.DefaultPair()); err != nil {
			return failed, err
		}
	}
	for _, a := range args {
		name, netdev, ok := strings.Cut(a, "=")
		if !ok {
			return failed, fmt.Errorf("%q: must be NAME=NETDEV, as in rxe0=eth0", a)
		}
		if err := softroce.AddDevice(name, netdev); err != nil {
			return failed, err
		}
	}
	return list(ctx, options{}, nil)
}

func down(_ context.Context, _ options, args []string) (int, error) {
	if len(args) == 0 {
		return 0, softroce.RemovePair(softroce.DefaultPair())
	}
	for _, name := range args {
		if err := softroce.RemoveDevice(name); err != nil {
			return failed, err
		}
	}
	return 0, nil
}

func list(context.Context, options, []string) (int, error) {
	links, err := softroce.Devices()
	for _, l := range links {
		fmt.Printf("%s=%s\n", l.Name, l.Netdev)
	}
	return 0, err
}
