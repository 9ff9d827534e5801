//go:build !linux

package udp

import (
	"net"
	"net/netip"
)

// sockaddr is not needed: the standard library takes the address.
type sockaddr struct{}

func newSockaddr(netip.AddrPort) sockaddr { return sockaddr{} }

// waiting is a kernel whose calls wait, both of them.
type waiting struct{ batchWriter }

func newKernel(conn *net.UDPConn) (kernel, error) { return waiting{newBatchWriter(conn)}, nil }

func (w waiting) send(p *packing, at int) (int, error) { return w.wait(p, at) }

func (w waiting) wait(p *packing, at int) (int, error) { return w.WriteBatch(p.msgs[at:p.n], 0) }

// directReceiver receives one datagram.
type directReceiver struct {
	conn *net.UDPConn
	from netip.AddrPort
}

func (d *directReceiver) init(conn *net.UDPConn) error {
	d.conn = conn
	return nil
}

func (d *directReceiver) receive(data, control []byte, idle func()) (n, controls, flags int, err error) {
	if idle != nil {
		idle() // whether anything is there is not known
	}
	n, controls, flags, d.from, err = d.conn.ReadMsgUDPAddrPort(data, control)
	return n, controls, flags, err
}

func (d *directReceiver) sender(string) netip.AddrPort { return d.from }
