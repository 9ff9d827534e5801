//go:build linux

package shm

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
)

// secret is a random number of a queue pair that only its peer gets, in the bootstrap.
type secret [16]byte

func newSecret() (s secret) {
	rand.Read(s[:]) // never fails
	return s
}

// endpointData is what Endpoint.Data contains (PROTOCOL.md, section 12):
//
//	0      version
//	1      secret
//	17     length of the socket's name in the abstract namespace, and the name
//	then   length of the socket's path, and the path; 0 for none
type endpointData struct {
	secret secret
	socket string
	path   string
}

const endpointVersion = 1

func (e *endpointData) append(b []byte) []byte {
	b = append(b, endpointVersion)
	b = append(b, e.secret[:]...)
	b = append(append(b, byte(len(e.socket))), e.socket...)
	return append(append(b, byte(len(e.path))), e.path...)
}

func parseEndpointData(b []byte) (e endpointData, err error) {
	if len(b) == 0 {
		return e, fmt.Errorf("the peer's endpoint has no data: its device is not of package shm")
	}
	if b[0] != endpointVersion {
		return e, fmt.Errorf("the peer's endpoint has version %d, this side knows %d", b[0], endpointVersion)
	}
	rest := b[1:]
	if len(rest) < len(e.secret) {
		return e, fmt.Errorf("the peer's endpoint has %d bytes", len(b))
	}
	rest = rest[copy(e.secret[:], rest):]
	for _, to := range []*string{&e.socket, &e.path} {
		if len(rest) == 0 || len(rest) <= int(rest[0]) || rest[0] > maxSocketName {
			return e, fmt.Errorf("the peer's endpoint of %d bytes has a wrong socket name", len(b))
		}
		*to = string(rest[1 : 1+rest[0]])
		rest = rest[1+rest[0]:]
	}
	if len(rest) > 0 { // a later version may append
		return e, fmt.Errorf("the peer's endpoint has %d bytes too many", len(rest))
	}
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
