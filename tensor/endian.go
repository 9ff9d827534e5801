//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package tensor

// Elements are little-endian in memory, on every wire and in every file, and
// are moved without being looked at. A build for a big-endian machine stops
// here.
const _ = "tryst needs a little-endian machine" + 0
