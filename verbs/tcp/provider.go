package tcp

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// Name is the name of this provider.
const Name = "tcp"

// Options configures a provider. The zero value gives a device that connects to peers and cannot
// be dialed.
type Options struct {
	// Listen holds the addresses, "host:port", at which peers reach this process. Whoever
	// listens there hands the connections to Acceptor.Accept. Empty: nobody can dial it.
	Listen []string
	// ListenOn makes each opened device listen itself on this address ("host:port"; port 0
	// chooses one), for programs without a listener that they share. If its host is no single
	// address (":0"), Listen has to name the addresses without a port. Empty: it does not listen.
	ListenOn string
	// Dial opens a connection to an address of a peer, or to verbs.Endpoint.Target. With TLS it
	// returns the connection after the handshake, in which it has checked the peer's name. Nil
	// means a net.Dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// GreetingTime is how long an accepted connection may take until a queue pair has
	// proved itself; 0 means 10 s.
	GreetingTime time.Duration
	// Busy makes goroutines look at the socket for 1 ms before they sleep, as the poll mode busy asks for.
	Busy bool
	// Logger receives what an operator may want to change; nil means no log.
	Logger *slog.Logger
}

// Provider implements verbs.Provider. It has one device, which any number of times can be
// opened.
type Provider struct{ options Options }

// New returns a provider.
func New(o Options) *Provider {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	if o.GreetingTime <= 0 {
		o.GreetingTime = greetingTime
	}
	return &Provider{options: o}
}

// Name implements verbs.Provider.
func (*Provider) Name() string { return Name }

// Devices implements verbs.Provider. The device is always there.
func (*Provider) Devices() ([]verbs.DeviceInfo, error) { return []verbs.DeviceInfo{info()}, nil }

func info() verbs.DeviceInfo {
	return verbs.DeviceInfo{Name: deviceName, Ports: onlyPort, GoMemory: true, Windows: true, Limits: soft.Limits()}
}

// Open implements verbs.Provider. The device implements Acceptor too.
func (p *Provider) Open(name string) (verbs.Device, error) {
	if name != deviceName {
		return nil, verbs.Errorf("open", name, verbs.ErrNotFound, "there is no %q: the only device is %s", name, deviceName)
	}
	d, err := newDevice(&p.options)
	if err != nil {
		return nil, err
	}
	return d, nil
}
