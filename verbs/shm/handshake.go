//go:build linux

package shm

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
)

// The messages on the socket, each in a packet of its own (SOCK_SEQPACKET). The first byte is
// the kind.
//
//	connector ── hello: who it is, whom it means, proof ──► acceptor
//	connector ◄── welcome: proof (or refused: why) ──────── acceptor
//	connector ── ring, with a descriptor ─────────────────► acceptor
//	connector ◄── ring, with a descriptor ───────────────── acceptor
//	          ◄── wake, file, drop, dropped ──────────────►
const (
	kindWake    = 0 // 1 byte: look at the ring
	kindHello   = 1
	kindWelcome = 2
	kindRefused = 3 // u8 at 1: refusedGone or refusedForGood; a text at 2
	kindRing    = 4 // with the descriptor of the ring
	kindFile    = 5 // u32 at 4: number of a memfd; with its descriptor
	kindDrop    = 6 // u32 at 4: the memfd is no longer needed
	kindDropped = 7 // u32 at 4: it has been unmapped
)

// How a connection was refused.
const (
	// refusedGone: the queue pair does not exist, or is in a state in which a device sends
	// nothing. The requests of the connector end as if nobody answered.
	refusedGone = 0
	// refusedForGood: the connector is not the peer, or may not share memory.
	refusedForGood = 1
)

const (
	helloMagic   = "TRYSTSM1"
	helloVersion = 1
	proofSize    = 32
	helloSize    = 16 + 2*16 + 2*4 + 8 + 16 + proofSize
	welcomeSize  = 8 + 8 + 16 + proofSize
	fileSize     = 8 // of kindRing, kindFile, kindDrop and kindDropped
)

// hello is the first message of a connection.
//
//	0   kind, version, 6 zero bytes
//	8   magic
//	16  GIDs and then QP numbers of connector and acceptor
//	56  user namespace of the connector
//	64  random number
//	80  proof
type hello struct {
	gids   [2]verbs.GID
	qpns   [2]verbs.QPN
	userNS uint64
	nonce  [16]byte
}

func newHello(e *ends, userNS uint64) hello {
	h := hello{gids: e.gids, qpns: e.qpns, userNS: userNS}
	rand.Read(h.nonce[:]) // never fails
	return h
}

// body returns the message without the proof.
func (h *hello) body() []byte {
	b := make([]byte, helloSize-proofSize, helloSize)
	b[0], b[1] = kindHello, helloVersion
	copy(b[8:], helloMagic)
	copy(b[16:], h.gids[0][:])
	copy(b[32:], h.gids[1][:])
	binary.LittleEndian.PutUint32(b[48:], uint32(h.qpns[0]))
	binary.LittleEndian.PutUint32(b[52:], uint32(h.qpns[1]))
	binary.LittleEndian.PutUint64(b[56:], h.userNS)
	copy(b[64:], h.nonce[:])
	return b
}

func parseHello(b []byte) (h hello, err error) {
	if len(b) != helloSize || b[0] != kindHello || string(b[8:16]) != helloMagic {
		return h, fmt.Errorf("%d bytes that begin no connection of a queue pair", len(b))
	}
	if b[1] != helloVersion {
		return h, fmt.Errorf("version %d of the handshake, this side knows %d", b[1], helloVersion)
	}
	copy(h.gids[0][:], b[16:])
	copy(h.gids[1][:], b[32:])
	h.qpns = [2]verbs.QPN{verbs.QPN(binary.LittleEndian.Uint32(b[48:])), verbs.QPN(binary.LittleEndian.Uint32(b[52:]))}
	h.userNS = binary.LittleEndian.Uint64(b[56:])
	copy(h.nonce[:], b[64:])
	return h, nil
}

// checkHello returns nil if a hello proves that it comes from the peer of the queue pair.
func checkHello(b []byte, h *hello, e *ends) error {
	if h.gids != e.gids || h.qpns != e.qpns {
		return fmt.Errorf("QP %v of %v is not the peer of QP %v", h.qpns[0], h.gids[0], h.qpns[1])
	}
	if !hmac.Equal(b[helloSize-proofSize:], e.proof(connector, b[:helloSize-proofSize])) {
		return fmt.Errorf("QP %v does not prove the secrets of both queue pairs", h.qpns[0])
	}
	return nil
}

// welcomeFor returns the acceptor's answer to a hello.
//
//	0   kind, 7 zero bytes
//	8   user namespace of the acceptor
//	16  random number
//	32  proof
func welcomeFor(helloBytes []byte, userNS uint64, e *ends) []byte {
	b := make([]byte, welcomeSize-proofSize, welcomeSize)
	b[0] = kindWelcome
	binary.LittleEndian.PutUint64(b[8:], userNS)
	rand.Read(b[16:32]) // never fails
	return append(b, e.proof(acceptor, helloBytes, b)...)
}

// checkWelcome returns the user namespace of the acceptor if it has proved the secrets.
func checkWelcome(b, helloBytes []byte, e *ends) (userNS uint64, err error) {
	switch {
	case len(b) > 2 && b[0] == kindRefused:
		return 0, parseRefusal(b)
	case len(b) != welcomeSize || b[0] != kindWelcome:
		return 0, fmt.Errorf("the peer answers with %d bytes that are no welcome", len(b))
	case !hmac.Equal(b[welcomeSize-proofSize:], e.proof(acceptor, helloBytes, b[:welcomeSize-proofSize])):
		return 0, fmt.Errorf("the acceptor does not prove the secrets of both queue pairs: another process listens there")
	}
	return binary.LittleEndian.Uint64(b[8:]), nil
}

// goneError is the error of an acceptor whose queue pair does not answer.
type goneError struct{ text string }

func (e *goneError) Error() string { return e.text }

func gonef(format string, args ...any) error { return &goneError{fmt.Sprintf(format, args...)} }

// refusal returns the message that refuses a connection.
func refusal(err error) []byte {
	text, kind := err.Error(), byte(refusedForGood)
	if gone := (*goneError)(nil); errors.As(err, &gone) {
		kind = refusedGone
	}
	return append([]byte{kindRefused, kind}, text[:min(len(text), maxReason)]...)
}

func parseRefusal(b []byte) error {
	text := fmt.Sprintf("the peer refused: %q", b[2:min(len(b), 2+maxReason)])
	if b[1] == refusedGone {
		return &goneError{text}
	}
	return errors.New(text)
}

// fileMessage returns a message of one of the four kinds that name a memfd.
func fileMessage(kind byte, id uint32) (b [fileSize]byte) {
	b[0] = kind
	binary.LittleEndian.PutUint32(b[4:], id)
	return b
}
