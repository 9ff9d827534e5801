//go:build !linux

package udp

import (
	"net"
	"net/netip"
)

// sockaddr is not needed: the standard library takes a netip address.
type sockaddr struct{}

func newSockaddr(netip.AddrPort) sockaddr { return sockaddr{} }

// blockingKernel is a kernel whose calls block.
type blockingKernel struct{ batchWriter }

func newKernel(conn *net.UDPConn) (kernel, error) { return blockingKernel{newBatchWriter(conn)}, nil }

func (w blockingKernel) send(p *packing, at int) (int, error) { return w.wait(p, at) }

func (w blockingKernel) wait(p *packing, at int) (int, error) { return w.WriteBatch(p.msgs[at:p.n], 0) }

// socketReader receives one datagram.
type socketReader struct {
	conn *net.UDPConn
	from netip.AddrPort
}

func (d *socketReader) init(conn *net.UDPConn) error {
	d.conn = conn
	return nil
}

func (d *socketReader) receive(data, control []byte, idle func()) (n, controls, flags int, err error) {
	if idle != nil {
		idle() // the next call may block
	}
	n, controls, flags, d.from, err = d.conn.ReadMsgUDPAddrPort(data, control)
	return n, controls, flags, err
}

func (d *socketReader) sender(string) netip.AddrPort { return d.from }
