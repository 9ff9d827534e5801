package server

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// SelectFor opens the RDMA device that a process with these settings uses: a client of the server at
// target, as Dial finds it, or without a target a server, as Start does. The caller closes the
// device.
func SelectFor(ctx context.Context, c config.Config, target string, kernel, software Source) (Selection, error) {
	local, err := localAddrFor(c, target)
	if err != nil {
		return Selection{}, err
	}
	d := newDevices(c.Client, nil, local, slog.New(slog.DiscardHandler))
	d.kernel, d.software = kernel, software
	if !d.allowed() {
		return Selection{}, status.Errorf(status.FailedPrecondition, "the setting provider, %s, names no RDMA", c.Provider)
	}
	return d.find(ctx)
}

// LocalAddrFor returns the address by which peers reach a process as in SelectFor, and the reason
// for it. The address is zero when it is not known.
func LocalAddrFor(ctx context.Context, c config.Config, target string) (addr netip.Addr, why string, err error) {
	local, err := localAddrFor(c, target)
	if err != nil {
		return netip.Addr{}, "", err
	}
	n := local(ctx)
	return n.addr, n.why, nil
}

func localAddrFor(c config.Config, target string) (func(context.Context) localAddr, error) {
	if target == "" {
		return func(ctx context.Context) localAddr { return newOwnAddress(ctx, c, lookup).local(ctx) }, nil
	}
	address, _, _, err := cluster.ResolveTarget(c.Cluster, target)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) localAddr { return routedLocalAddr(ctx, serverTask, address) }, nil
}
