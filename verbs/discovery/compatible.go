package discovery

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tryst-rdma/tryst/verbs"
)

// ErrIncompatible says that two sides cannot talk by RDMA, whatever they try.
var ErrIncompatible = errors.New("the two sides cannot talk by RDMA")

// Side is one end of a connection, as far as it decides whether two ends can talk.
type Side struct {
	Link verbs.LinkLayer
	Type verbs.GIDType
	GID  verbs.GID
	LID  verbs.LID // InfiniBand
}

func (s Side) String() string {
	if s.Link == verbs.LinkInfiniBand {
		return fmt.Sprintf("InfiniBand, GID %s, LID %d", s.GID, s.LID)
	}
	return fmt.Sprintf("%s, GID %s", s.Type, s.GID)
}

// Compatible says why two sides cannot talk, in words for people, as an error
// that is ErrIncompatible; nil when nothing speaks against it. (A route between
// two addresses of one family may still be missing: only a packet tells.)
func Compatible(ours, theirs Side) error {
	no := func(format string, args ...any) error {
		return verbs.Errorf("connect by RDMA", fmt.Sprintf("(ours: %s; the peer's: %s)", ours, theirs), ErrIncompatible, format, args...)
	}
	if ours.Link != theirs.Link {
		return no("one side is %s and the other %s", ours.Link, theirs.Link)
	}
	switch ours.Link {
	case verbs.LinkInfiniBand:
		switch {
		case ours.LID == 0 || theirs.LID == 0:
			return no("a port has no LID: its fabric has no subnet manager")
		case !bytes.Equal(ours.GID[:8], theirs.GID[:8]):
			return no("the ports are in two InfiniBand subnets, %x and %x", ours.GID[:8], theirs.GID[:8])
		}
		return nil
	case verbs.LinkEthernet:
	default:
		return no("the link layer is not known")
	}
	if ours.GID.IsZero() || theirs.GID.IsZero() {
		return no("a side has no GID")
	}
	if ours.Type != theirs.Type {
		return no("one side is %s and the other %s; choose GIDs of one version (--rdma-gid-index)", ours.Type, theirs.Type)
	}
	a, b := GID{GIDEntry: verbs.GIDEntry{GID: ours.GID}}, GID{GIDEntry: verbs.GIDEntry{GID: theirs.GID}}
	if x, y := a.GID.Addr(), b.GID.Addr(); x.Is4() != y.Is4() {
		return no("there is no route between IPv4 and IPv6; choose GIDs of one family (--rdma-gid-index)")
	}
	// Loopback of two hosts cannot be told from loopback of one.
	if ra, rb := reach(a), reach(b); ra != rb {
		return no("there is no route between %s, which %s, and %s, which %s", a.GID, reachWords[ra], b.GID, reachWords[rb])
	}
	return nil
}
