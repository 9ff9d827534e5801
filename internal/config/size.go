package config

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// units are the powers of 1024, the largest first. Decimal units (kB, MB) are not accepted,
// because many users mean powers of 1024 by them.
var units = []struct {
	name  string
	bytes int64
}{
	{"PiB", 1 << 50}, {"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1},
}

// quantities are the suffixes of Kubernetes' quantities for the same units, by the last two letters.
const quantities = "Pi Ti Gi Mi Ki"

var (
	errSize     = errors.New("want a whole number of bytes or one with a unit, B, KiB, MiB, GiB, TiB or PiB: 64MiB")
	errSizeHigh = errors.New("it is above the limit of 8EiB")
)

// ParseSize parses a number of bytes: "64MiB", "1GiB", or "4096" without a
// unit. The number is whole and not negative, the unit one of B, KiB, MiB,
// GiB, TiB and PiB, with or without a space before it. The B may be missing, as in quantities of
// Kubernetes: "1Gi".
func ParseSize(s string) (int64, error) {
	if n := len(s); n > 2 && s[n-1] == 'i' && strings.Contains(quantities, s[n-2:]) {
		s += "B"
	}
	number, factor := s, int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			number, factor = strings.TrimSuffix(rest, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > uint64(math.MaxInt64/factor):
		return 0, errSizeHigh
	case err != nil:
		return 0, errSize
	}
	return int64(n) * factor, nil
}

// FormatSize formats a number of bytes for [ParseSize], in the largest unit in which it is a
// whole number.
func FormatSize(n int64) string {
	if n == 0 {
		return "0"
	}
	for _, u := range units {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) // unreachable: every number is whole in bytes
}
