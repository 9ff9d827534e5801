//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package tensor

// Elements are little-endian in memory, in messages and in files, and are never
// converted. So the build fails for a big-endian machine.
const _ = "tryst needs a little-endian machine" + 0
