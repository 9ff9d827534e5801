package checkpoint

import (
	"strconv"
	"strings"
)

// The edge name of a delta's key is
//
//	publication:NAME@<EPOCH.FROM.TO/TENSOR
//
// with the epoch and the numbers of the two versions, in decimal. No version begins with <.
const deltaPrefix = "<"

// deltaKey says which delta a key is of.
type deltaKey struct {
	publication, tensor string
	epoch, from, to     uint64
}

// edge returns the edge name of the key.
func (k *deltaKey) edge() string {
	b := append(make([]byte, 0, 80), deltaPrefix...)
	b = append(strconv.AppendUint(b, k.epoch, 10), '.')
	b = append(strconv.AppendUint(b, k.from, 10), '.')
	return EdgeName(k.publication, string(strconv.AppendUint(b, k.to, 10)), k.tensor)
}

// parseDeltaEdge takes the edge name of a delta's key apart; false for any other one.
func parseDeltaEdge(s string) (k deltaKey, ok bool) {
	publication, version, tensor, p, ok := parseEdge(s)
	numbers, is := strings.CutPrefix(version, deltaPrefix)
	if !ok || !is || !p.whole() {
		return deltaKey{}, false
	}
	k = deltaKey{publication: publication, tensor: tensor}
	epoch, rest, _ := strings.Cut(numbers, ".")
	from, to, _ := strings.Cut(rest, ".")
	k.epoch, _ = strconv.ParseUint(epoch, 10, 64) // what does not parse is not written so, below
	k.from, _ = strconv.ParseUint(from, 10, 64)
	k.to, _ = strconv.ParseUint(to, 10, 64)
	if k.edge() != s {
		return deltaKey{}, false
	}
	return k, true
}
