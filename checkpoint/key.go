package checkpoint

import (
	"strings"
)

// The edge name of a published tensor's key is
//
//	publication:NAME@VERSION/TENSOR
//
// where % and two hexadecimal digits stand for a byte that would be mistaken:
// a percent sign, a semicolon (it ends the part of a key) and control
// characters anywhere, @ and / in the publication's name. No edge of a graph
// looks like this: in TensorFlow's names only a number follows a colon.
const edgePrefix = "publication:"

const upperHex = "0123456789ABCDEF"

// EdgeName returns the edge name of a published tensor's key, for receives without a Puller.
// The key's source is the catalog's device, its frame and iteration are 0, and it can be
// received in every step.
func EdgeName(publication, version, tensor string) string {
	b := make([]byte, 0, len(edgePrefix)+len(publication)+len(version)+len(tensor)+2)
	b = append(b, edgePrefix...)
	b = appendEscaped(b, publication, "@/")
	b = append(b, '@')
	b = append(b, version...)
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

// parseEdge takes an edge name apart; false when EdgeName does not write it so.
func parseEdge(s string) (publication, version, tensor string, ok bool) {
	rest, ok := strings.CutPrefix(s, edgePrefix)
	if !ok {
		return "", "", "", false
	}
	name, rest, _ := strings.Cut(rest, "@")
	version, rest, _ = strings.Cut(rest, "/")
	publication, tensor = unescape(name), unescape(rest)
	// One tensor has one edge name: what is escaped without need is foreign.
	if EdgeName(publication, version, tensor) != s || publication == "" || version == "" || tensor == "" {
		return "", "", "", false
	}
	return publication, version, tensor, true
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
