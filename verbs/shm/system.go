//go:build linux

package shm

import "net"

// system is what a provider takes from the kernel, and from memory that a peer changes. Tests replace
// functions of it.
type system struct {
	// ownNS and peerNS return the user namespaces of this process and of a peer.
	ownNS  func() (uint64, error)
	peerNS func(*net.UnixConn) (uint64, error)
	// setRights sets SO_PASSRIGHTS of a socket.
	setRights func(fd uintptr, on bool) error
	// copy copies content. peerEpoch reads the epoch of the peer of a connection.
	copy      func(dst, src []byte) error
	peerEpoch func(*connection) (uint64, error)
}

func newSystem() system {
	return system{
		ownNS: userNamespace, peerNS: peerNamespace, setRights: setPassRights,
		copy: guardedCopy, peerEpoch: (*connection).peerEpoch,
	}
}
