package server

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/status"
)

// SelectFor opens the RDMA device that a process with these settings uses: a client of the server at
// target, as Dial finds it, or without a target a server, as Start does. The caller closes the
// device.
func SelectFor(ctx context.Context, c config.Config, target string) (Selection, error) {
	log := slog.New(slog.DiscardHandler)
	return selectFor(ctx, c, target, devices.KernelSource(), devices.RoCESource(log), log)
}

func selectFor(ctx context.Context, c config.Config, target string, kernel, software devices.Source, log *slog.Logger) (Selection, error) {
	local, err := localAddrFor(c, target)
	if err != nil {
		return Selection{}, err
	}
	o := finderOptions(c.Client, local, log)
	o.Kernel, o.Software = kernel, software
	f := devices.NewFinder(o)
	if !f.Allowed() {
		return Selection{}, status.Errorf(status.FailedPrecondition, "the setting provider, %s, names no RDMA", c.Provider)
	}
	return f.Find(ctx)
}

// LocalAddrFor returns the address by which peers reach a process as in SelectFor, and the reason
// for it. The address is zero when it is not known.
func LocalAddrFor(ctx context.Context, c config.Config, target string) (addr netip.Addr, why string, err error) {
	local, err := localAddrFor(c, target)
	if err != nil {
		return netip.Addr{}, "", err
	}
	addr, why = local(ctx)
	return addr, why, nil
}

func localAddrFor(c config.Config, target string) (func(context.Context) (netip.Addr, string), error) {
	if target == "" {
		return func(ctx context.Context) (netip.Addr, string) { return LocalAddr(ctx, c) }, nil
	}
	address, _, _, err := cluster.ResolveTarget(c.Cluster, target)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (netip.Addr, string) { return listen.RouteTo(ctx, address, "") }, nil
}

// LocalAddr returns the address by which peers reach a server with these settings, and the reason
// for it. The address is zero when it is not known.
func LocalAddr(ctx context.Context, c config.Config) (addr netip.Addr, why string) {
	return listen.Choose(ctx, listenOptions(c), listen.Lookup).Local(ctx)
}
