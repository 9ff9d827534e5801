//go:build linux

package shm

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// secret is a random number of a queue pair that only its peer gets, in the bootstrap.
type secret [16]byte

func newSecret() (s secret) {
	rand.Read(s[:]) // never fails
	return s
}

// endpointData is what Endpoint.Data contains (PROTOCOL.md, section 12.1):
//
//	0      version
//	1      secret
//	17     name of the socket
//	59     1 if it is in the directory for sockets, too; else 0
type endpointData struct {
	secret secret
	socket string
	inDir  bool
}

const (
	endpointVersion = 1
	// socketPrefix and 32 hex digits are the name of a socket. A peer can name no other one, so it
	// cannot make this process connect to another service.
	socketPrefix = "tryst-shm-"
	socketLen    = len(socketPrefix) + 32
	endpointSize = 1 + 16 + socketLen + 1
)

func (e *endpointData) append(b []byte) []byte {
	b = append(b, endpointVersion)
	b = append(append(b, e.secret[:]...), e.socket...)
	if e.inDir {
		return append(b, 1)
	}
	return append(b, 0)
}

func parseEndpointData(b []byte) (e endpointData, err error) {
	switch {
	case len(b) == 0:
		return e, fmt.Errorf("the peer's endpoint has no data: its device is not of package shm")
	case b[0] != endpointVersion:
		return e, fmt.Errorf("the peer's endpoint has version %d, this side knows %d", b[0], endpointVersion)
	case len(b) != endpointSize:
		return e, fmt.Errorf("the peer's endpoint has %d bytes instead of %d", len(b), endpointSize)
	}
	copy(e.secret[:], b[1:])
	e.socket = string(b[17 : 17+socketLen])
	digits, ok := strings.CutPrefix(e.socket, socketPrefix)
	if !ok || strings.Trim(digits, "0123456789abcdef") != "" || b[endpointSize-1] > 1 {
		return e, fmt.Errorf("the peer's endpoint names the socket %q, which no device of this package has", e.socket)
	}
	e.inDir = b[endpointSize-1] == 1
	return e, nil
}

// role is the side of a connection.
type role uint8

const (
	connector role = iota + 1
	acceptor
)

// roleOf returns the role of the side with the secret own: the lower secret connects.
func roleOf(own, peer secret) role {
	if bytes.Compare(own[:], peer[:]) < 0 {
		return connector
	}
	return acceptor
}

// ends are the two queue pairs of a connection, by role.
type ends struct {
	gids    [2]verbs.GID // of the connector, of the acceptor
	qpns    [2]verbs.QPN
	secrets [2]secret
}

// proof returns the HMAC-SHA-256 by which a role proves both secrets. message is what it sends
// with it, and what it received before.
func (e *ends) proof(r role, message ...[]byte) []byte {
	key := append(bytes.Clone(e.secrets[0][:]), e.secrets[1][:]...)
	h := hmac.New(sha256.New, key)
	h.Write([]byte("tryst shm 1 "))
	h.Write([]byte{byte(r)})
	for _, m := range message {
		h.Write(m)
	}
	return h.Sum(nil)
}
