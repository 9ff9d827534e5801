package server

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/status"
)

// SelectFor opens the RDMA device that a process with these settings uses: a client of the server at
// target, as Dial finds it, or without a target a server, as Start does. The caller closes the
// device.
func SelectFor(ctx context.Context, c Config, target string) (Selection, error) {
	log := slog.New(slog.DiscardHandler)
	return selectFor(ctx, c, target, providers.All(), log)
}

func selectFor(ctx context.Context, c Config, target string, rows []providers.Row, log *slog.Logger) (Selection, error) {
	all, err := c.check(config.ForDoctor, GraphLimits{})
	if err != nil {
		return Selection{}, err
	}
	local, err := all.localAddrFor(target)
	if err != nil {
		return Selection{}, err
	}
	o := finderOptions(&all, local, log)
	o.Openers = devices.RDMAOpeners(rows, all.providers().Takes, providers.Options{Logger: log})
	f := devices.NewFinder(o)
	if !f.Allowed() {
		return Selection{}, status.Errorf(status.FailedPrecondition, "the setting provider, %s, names no RDMA", all.Provider)
	}
	return f.Find(ctx)
}

// LocalAddrFor returns the address by which peers reach a process as in SelectFor, and the reason
// for it. The address is zero when it is not known.
func LocalAddrFor(ctx context.Context, c Config, target string) (addr netip.Addr, why string, err error) {
	all, err := c.check(config.ForDoctor, GraphLimits{})
	if err != nil {
		return netip.Addr{}, "", err
	}
	local, err := all.localAddrFor(target)
	if err != nil {
		return netip.Addr{}, "", err
	}
	addr, why = local(ctx)
	return addr, why, nil
}

func (c *complete) localAddrFor(target string) (func(context.Context) (netip.Addr, string), error) {
	if target == "" {
		return func(ctx context.Context) (netip.Addr, string) {
			return listen.Choose(ctx, listenOptions(c), listen.Lookup).Local(ctx)
		}, nil
	}
	address, _, _, err := cluster.ResolveTarget(c.spec, target)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (netip.Addr, string) { return listen.RouteTo(ctx, address, "") }, nil
}

// LocalAddr returns the address by which peers reach a server with these settings, and the reason
// for it. The address is zero when it is not known, and for settings that are not valid.
func LocalAddr(ctx context.Context, c Config) (addr netip.Addr, why string) {
	addr, why, err := LocalAddrFor(ctx, c, "")
	if err != nil {
		return netip.Addr{}, err.Error()
	}
	return addr, why
}
