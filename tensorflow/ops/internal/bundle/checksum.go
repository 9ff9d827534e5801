package bundle

import (
	"hash/crc32"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/status"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A checksum that is stored is masked, since the CRC of data that has CRCs in it has bad properties.
const maskDelta = 0xa282ead8

func mask(crc uint32) uint32 { return (crc>>15 | crc<<17) + maskDelta }

func unmask(masked uint32) uint32 {
	rot := masked - maskDelta
	return rot>>17 | rot<<15
}

// damaged returns a DataLoss.
func damaged(format string, args ...any) *status.Error {
	return status.Errorf(status.DataLoss, format, args...)
}

// invalid returns an InvalidArgument.
func invalid(format string, args ...any) *status.Error {
	return status.Errorf(status.InvalidArgument, format, args...)
}

// unsupported returns an Unimplemented.
func unsupported(format string, args ...any) *status.Error {
	return status.Errorf(status.Unimplemented, format, args...)
}

// quote returns a foreign key for a message: as it is, as TensorFlow does, if it can be printed, and cut.
func quote(key string) string {
	const most = 120
	end := ""
	if len(key) > most {
		key, end = key[:most], "..."
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		key = strconv.Quote(key)
	}
	return key + end
}
