package checkpoint

import (
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// The edge name of a published tensor's key is
//
//	publication:NAME@VERSION/TENSOR
//
// where % and two hexadecimal digits stand for a byte that would be mistaken:
// a percent sign, a semicolon (it ends the part of a key) and control
// characters anywhere, @ and / in the publication's name. No edge of a graph
// looks like this: in TensorFlow's names only a number follows a colon.
//
// The key of a piece of a tensor has the piece's offset and length, both in bytes and decimal:
//
//	publication:NAME@VERSION:OFFSET+LENGTH/TENSOR
const edgePrefix = rendezvous.PublicationPrefix

const upperHex = "0123456789ABCDEF"

// EdgeName returns the edge name of a published tensor's key, for receives without a Puller.
// The key's source is the catalog's device, its frame and iteration are 0, and it can be
// received in every step.
func EdgeName(publication, version, tensor string) string {
	return edgeName(publication, version, tensor, piece{})
}

// edgeName is EdgeName for a piece of the tensor; the zero piece means the whole tensor.
func edgeName(publication, version, tensor string, p piece) string {
	b := make([]byte, 0, len(edgePrefix)+len(publication)+len(version)+len(tensor)+2)
	b = append(b, edgePrefix...)
	b = appendEscaped(b, publication, "@/")
	b = append(b, '@')
	b = append(b, version...)
	if p != (piece{}) {
		b = append(b, ':')
		b = strconv.AppendInt(b, p.off, 10)
		b = append(b, '+')
		b = strconv.AppendInt(b, p.n, 10)
	}
	b = append(b, '/')
	return string(appendEscaped(b, tensor, ""))
}

func appendEscaped(b []byte, s, special string) []byte {
	for i := range len(s) {
		c := s[i]
		if c < ' ' || c == 0x7f || c == '%' || c == ';' || strings.IndexByte(special, c) >= 0 {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return b
}

// parseEdge takes an edge name apart; false when edgeName does not write it so.
func parseEdge(s string) (publication, version, tensor string, p piece, ok bool) {
	rest, ok := strings.CutPrefix(s, edgePrefix)
	if !ok {
		return "", "", "", piece{}, false
	}
	name, rest, _ := strings.Cut(rest, "@")
	version, rest, _ = strings.Cut(rest, "/")
	if v, numbers, found := strings.Cut(version, ":"); found {
		version = v
		off, n, _ := strings.Cut(numbers, "+")
		p.off, _ = strconv.ParseInt(off, 10, 64) // what does not parse is not written so, below
		p.n, _ = strconv.ParseInt(n, 10, 64)
	}
	publication, tensor = unescape(name), unescape(rest)
	// One tensor has one edge name: what is escaped without need is foreign.
	if edgeName(publication, version, tensor, p) != s || publication == "" || version == "" || tensor == "" {
		return "", "", "", piece{}, false
	}
	return publication, version, tensor, p, true
}

// ContinuesTensor reports whether an edge name is that of a piece of a published tensor, but not of
// its first piece. Counters of tensors pass over these.
func ContinuesTensor(edge string) bool {
	rest, ok := strings.CutPrefix(edge, edgePrefix)
	if !ok {
		return false
	}
	_, rest, _ = strings.Cut(rest, "@")
	version, _, _ := strings.Cut(rest, "/")
	_, numbers, isPiece := strings.Cut(version, ":")
	return isPiece && !strings.HasPrefix(numbers, "0+")
}

// unescape decodes the text of appendEscaped. It leaves other escapes unchanged.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, lo := strings.IndexByte(upperHex, s[i+1]), strings.IndexByte(upperHex, s[i+2])
			if hi >= 0 && lo >= 0 {
				b = append(b, byte(hi<<4|lo))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}
