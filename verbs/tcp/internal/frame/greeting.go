package frame

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
)

// Magic begins every connection of a queue pair. No TLS record (0x16), HTTP method or HTTP/2
// preface ("PRI") begins so, and a listener can tell the protocols apart by the first bytes.
const Magic = "TRYSTQP1"

// Lengths in bytes.
const (
	proofLen = sha256.Size
	// GreetingLen is the length of a greeting, with Magic.
	GreetingLen = len(Magic) + 4 + 4 + 4 + 16 + 16 + proofLen
	// ReplyHeadLen is the length of a reply without its text.
	ReplyHeadLen = 4 + proofLen
)

// Names identifies a connection: both queue pairs and their devices.
type Names struct {
	From, To       verbs.QPN // of the connecting and of the accepting side
	FromGID, ToGID verbs.GID
}

// Proof is the evidence that a side knows both secrets.
type Proof [proofLen]byte

// Secrets is what both sides know from the bootstrap, and nobody else.
type Secrets struct{ From, To [SecretLen]byte }

// The roles that a proof is for.
const (
	roleConnecting = "tryst tcp connecting"
	roleAccepting  = "tryst tcp accepting"
)

func proof(role string, n *Names, k *Secrets) (p Proof) {
	h := hmac.New(sha256.New, append(append([]byte(nil), k.From[:]...), k.To[:]...))
	b := append([]byte(role), n.FromGID[:]...)
	b = append(b, n.ToGID[:]...)
	for _, v := range [...]uint32{uint32(n.From), uint32(n.To)} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	h.Write(b)
	copy(p[:], h.Sum(nil))
	return p
}

// Connecting returns the proof of the connecting side.
func Connecting(n *Names, k *Secrets) Proof { return proof(roleConnecting, n, k) }

// Accepting returns the proof of the accepting side.
func Accepting(n *Names, k *Secrets) Proof { return proof(roleAccepting, n, k) }

// Equal compares two proofs in constant time.
func (p *Proof) Equal(q *Proof) bool { return hmac.Equal(p[:], q[:]) }

// Greeting is the first message of the connecting side.
type Greeting struct {
	Names Names
	Proof Proof
}

// Append appends the greeting to b.
func (g *Greeting) Append(b []byte) []byte {
	b = append(b, Magic...)
	b = append(b, version, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.Names.From))
	b = binary.LittleEndian.AppendUint32(b, uint32(g.Names.To))
	b = append(b, g.Names.FromGID[:]...)
	b = append(b, g.Names.ToGID[:]...)
	return append(b, g.Proof[:]...)
}

// Parse reads a greeting of GreetingLen bytes.
func (g *Greeting) Parse(b []byte) error {
	if string(b[:len(Magic)]) != Magic {
		return fmt.Errorf("the connection does not begin with %s", Magic)
	}
	b = b[len(Magic):]
	if b[0] != version {
		return fmt.Errorf("version %d: this process knows only %d", b[0], version)
	}
	if b[1] != 0 || b[2] != 0 || b[3] != 0 {
		return fmt.Errorf("reserved bytes %#x, which must be 0", b[1:4])
	}
	g.Names.From, g.Names.To = verbs.QPN(binary.LittleEndian.Uint32(b[4:])), verbs.QPN(binary.LittleEndian.Uint32(b[8:]))
	copy(g.Names.FromGID[:], b[12:])
	copy(g.Names.ToGID[:], b[28:])
	copy(g.Proof[:], b[44:])
	return nil
}

// Reply is the answer of the accepting side: a proof, or the reason of a refusal.
type Reply struct {
	Proof  Proof
	Reason string // empty: accepted. Longer ones are cut to MaxReason bytes
}

// Append appends the reply to b.
func (r *Reply) Append(b []byte) []byte {
	reason := r.Reason[:min(len(r.Reason), MaxReason)]
	b = append(b, version, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(reason))) //nolint:gosec // at most MaxReason
	b = append(b, r.Proof[:]...)
	return append(b, reason...)
}

// ParseHead reads the first ReplyHeadLen bytes of a reply and returns the length of the
// reason that follows.
func (r *Reply) ParseHead(b []byte) (reason int, err error) {
	if b[0] != version || b[1] != 0 {
		return 0, fmt.Errorf("the peer does not answer as a device of TCP (first bytes %#x)", b[:4])
	}
	if reason = int(binary.LittleEndian.Uint16(b[2:])); reason > MaxReason {
		return 0, fmt.Errorf("a refusal of %d bytes: at most %d", reason, MaxReason)
	}
	copy(r.Proof[:], b[4:])
	return reason, nil
}
