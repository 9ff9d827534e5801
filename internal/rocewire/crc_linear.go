package rocewire

import (
	"hash/crc32"
	"math/bits"
)

// A CRC is linear: when two packets of one length differ in some bits, the difference
// of their CRCs depends only on these bits and their position. As polynomials over
// GF(2): the bits m, followed by k bytes, change the CRC by m·x^(8k+32) modulo the
// CRC's polynomial.
//
// This file uses it in two ways:
//
//   - fieldDelta computes, by table look-up, how the value of a header field changes the
//     CRC, so that the CRC of the headers is computed once for a path.
//   - inverse computes m = difference·x^-(8k+32): from the difference between two CRCs
//     follows the IPv4 identification that causes it, if a value of 16 bits does.
//
// Polynomials of degree 31 or less are stored as the CRC is: bit 31 is the coefficient
// of x^0, bit 0 that of x^31.

const (
	polynomial = 0xedb88320 // of the CRC, without x^32
	one        = 1 << 31    // the polynomial 1
)

// fieldDelta is the change of the CRC that a big-endian field of 16 bits causes,
// compared with a field of 0. It has one table for each hexadecimal digit, the lowest
// digit first.
type fieldDelta [4][16]uint32

// newFieldDelta returns the fieldDelta of a field that is followed by the given number
// of bytes.
func newFieldDelta(after int) *fieldDelta {
	var f fieldDelta
	b := make([]byte, 2+after)
	for digit := range f {
		for v := range f[digit] {
			field := uint16(v << (4 * digit)) //nolint:gosec // 4 bits
			b[0], b[1] = byte(field>>8), byte(field)
			f[digit][v] = ^crc32.Update(^uint32(0), crc32.IEEETable, b)
		}
	}
	return &f
}

func (f *fieldDelta) of(field uint16) uint32 {
	return f[0][field&15] ^ f[1][field>>4&15] ^ f[2][field>>8&15] ^ f[3][field>>12]
}

// The fields that Path.Begin fills in. Each argument is the number of bytes between the
// field and the BTH.
var (
	ipv4TotalLength    = newFieldDelta(ipv4Len - 4 + udpLen)
	ipv4Identification = newFieldDelta(afterID)
	ipv6PayloadLength  = newFieldDelta(ipv6Len - 6 + udpLen)
	udpLength          = newFieldDelta(udpLen - 6)
)

// afterID is the number of bytes between the IPv4 identification and the BTH.
const afterID = ipv4Len - 6 + udpLen

// multiply multiplies two polynomials modulo the CRC's polynomial.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ polynomial&-(b&1)
	}
	return product
}

// inverseBytes[i] is x^-8 to the power of 2^i: it reverts the effect of 2^i bytes.
var inverseBytes = func() (powers [16]uint32) {
	p := uint32(one)
	for range 8 { // divided by x
		carry := p >> 31
		p = (p^polynomial&-carry)<<1 | carry
	}
	for i := range powers {
		powers[i] = p
		p = multiply(p, p)
	}
	return powers
}()

// inverse multiplies a polynomial by x^-(8k+32) for packets of one length. k is the
// number of bytes after the identification that the CRC covers. products holds the
// products of that factor with the 16 polynomials of degree 3 or less.
type inverse struct {
	packet   int // length from BTH to ICRC in bytes; 0 when unset
	products [16]uint32
}

// set prepares u for packets of the given length, at most 65535 bytes. The 4 bytes of
// the ICRC, which k does not include, are the 32 of the exponent.
func (u *inverse) set(packet int) {
	factor := uint32(one)
	for i, k := 0, uint(afterID+packet); k != 0 && i < len(inverseBytes); i, k = i+1, k>>1 { //nolint:gosec // sizes
		if k&1 != 0 {
			factor = multiply(factor, inverseBytes[i])
		}
	}
	u.packet = packet
	for v := range u.products {
		u.products[v] = multiply(uint32(v)<<28, factor) //nolint:gosec // 4 bits
	}
}

// multiply multiplies a by the factor with Horner's rule, four coefficients at a time,
// from the highest down.
func (u *inverse) multiply(a uint32) uint32 {
	product := u.products[a&15]
	for range 7 {
		a >>= 4
		product = product>>4 ^ nibbleTable[product&15] ^ u.products[a&15]
	}
	return product
}

// inverseCache caches the inverse of some packet lengths, indexed by the length. A
// transfer uses mostly one length, that of its full packets.
type inverseCache [8]inverse

// identification returns the IPv4 identification that causes a difference of CRCs. ok
// is false when no identification does.
func (c *inverseCache) identification(difference uint32, packet int) (id uint16, ok bool) {
	u := &c[packet>>2%len(c)]
	if u.packet != packet {
		u.set(packet)
	}
	m := u.multiply(difference)
	if m&0xffff != 0 { // a coefficient of x^16 or above
		return 0, false
	}
	// The coefficient of x^15 is the lowest bit of the first byte, that of x^0 the
	// highest of the second.
	return bits.ReverseBytes16(uint16(m >> 16)), true //nolint:gosec // 16 bits are left
}
