package wire

import "fmt"

// Kind is the kind of a message: its second byte.
type Kind uint8

// The kinds (PROTOCOL.md section 8.2).
const (
	KindHello     Kind = 1
	KindCredit    Kind = 2
	KindBye       Kind = 3
	KindRequest   Kind = 4
	KindMeta      Kind = 5
	KindReRequest Kind = 6
	KindEager     Kind = 7
	KindError     Kind = 8
	KindCancel    Kind = 9
	KindCancelled Kind = 10
	KindAck       Kind = 11
	KindQuery     Kind = 12
	KindWaiting   Kind = 13
	KindUnknown   Kind = 14
)

var kinds = [...]struct {
	name  string
	flags flags // that it may have
}{
	KindHello:     {"HELLO", 0},
	KindCredit:    {"CREDIT", 0},
	KindBye:       {"BYE", 0},
	KindRequest:   {"REQUEST", flagWantCounts | flagDest},
	KindMeta:      {"META", flagWantCounts},
	KindReRequest: {"REREQUEST", flagWantCounts | flagDest},
	KindEager:     {"EAGER", flagWantCounts},
	KindError:     {"ERROR", flagWantCounts | flagEach | flagFallback},
	KindCancel:    {"CANCEL", flagWantCounts},
	KindCancelled: {"CANCELLED", flagWantCounts | flagEach},
	KindAck:       {"ACK", flagWantCounts},
	KindQuery:     {"QUERY", flagWantCounts},
	KindWaiting:   {"WAITING", flagWantCounts},
	KindUnknown:   {"UNKNOWN", flagWantCounts},
}

// Valid reports whether the protocol has this kind.
func (k Kind) Valid() bool { return k > 0 && int(k) < len(kinds) }

func (k Kind) String() string {
	if k.Valid() {
		return kinds[k].name
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// flags is the third byte of a message.
type flags uint8

const (
	flagWantCounts flags = 1 << 0 // the peer is to send its counts within 5 ms
	flagEach       flags = 1 << 1 // one comes over each rail that carries the content
	flagDest       flags = 1 << 2 // the body has a destination
	flagFallback   flags = 1 << 3 // the requester is to repeat the request over gRPC
)
