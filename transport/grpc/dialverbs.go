package grpctransport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// ConnectVerbs connects to the port of a server for a queue pair over TCP (SharedPort): as Connect
// with security nil, otherwise with TLS 1.3 and the checks of gRPC's connections: security is their
// configuration, and the server must have a certificate for the host in address unless it has a
// ServerName. The caller owns the connection.
func (o DialOptions) ConnectVerbs(ctx context.Context, address string, security *tls.Config) (net.Conn, error) {
	raw, err := o.Connect(ctx, address)
	if err != nil || security == nil {
		return raw, err
	}
	c := security.Clone()
	c.NextProtos, c.MinVersion = []string{VerbsProtocol}, tls.VersionTLS13
	if c.ServerName == "" {
		if c.ServerName, _, err = net.SplitHostPort(address); err != nil {
			c.ServerName = address
		}
	}
	conn := tls.Client(raw, c)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, explainVerbs(address, err)
	}
	if conn.ConnectionState().NegotiatedProtocol != VerbsProtocol {
		_ = conn.Close()
		return nil, noQueuePairs(address)
	}
	return conn, nil
}

// explainVerbs is explainHandshake for a queue pair.
func explainVerbs(address string, err error) error {
	switch alert, _ := alertOf(err); alert {
	case "no application protocol":
		return noQueuePairs(address)
	case "protocol version not supported":
		return fmt.Errorf("%s has no TLS 1.3, which queue pairs over TCP need", address)
	}
	return explainHandshake(address, true, err)
}

func noQueuePairs(address string) error {
	return fmt.Errorf("%s takes no queue pairs over TCP (ALPN %s): its setting provider leaves out tcp, it is an earlier release, or something between ends TLS", address, VerbsProtocol)
}
