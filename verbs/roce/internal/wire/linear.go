package wire

import (
	"hash/crc32"
	"math/bits"
)

// A CRC is linear: when one packet differs from another in some bits, their CRCs
// differ by a value that only these bits and their place decide. As polynomials
// over GF(2), bits m that k bytes follow make a difference of m·x^(8k+32) modulo
// the CRC's polynomial.
//
// That gives two things. The CRC of the headers of one length is that of another
// with some table look-ups (influence). And from a difference comes the
// identification that makes it, m = difference·x^-(8k+32), where there is one, a
// value of 16 bits (undoing).
//
// A polynomial of degree 31 or less is kept as the CRC is: bit 31 is the
// coefficient of x^0, bit 0 that of x^31.

const (
	polynomial = 0xedb88320 // the CRC's, without x^32
	one        = 1 << 31    // the polynomial 1
)

// influence is what a field of 16 bits, big-endian, does to the CRC, by its four
// hexadecimal digits, the lowest first. It is relative to a field of 0.
type influence [4][16]uint32

// influenceOf is the influence of a field that so many bytes follow.
func influenceOf(follow int) *influence {
	var f influence
	b := make([]byte, 2+follow)
	for digit := range f {
		for v := range f[digit] {
			field := uint16(v << (4 * digit)) //nolint:gosec // 4 bits
			b[0], b[1] = byte(field>>8), byte(field)
			f[digit][v] = ^crc32.Update(^uint32(0), crc32.IEEETable, b)
		}
	}
	return &f
}

func (f *influence) of(field uint16) uint32 {
	return f[0][field&15] ^ f[1][field>>4&15] ^ f[2][field>>8&15] ^ f[3][field>>12]
}

// The fields that Path.Begin fills in, by what follows them before the BTH.
var (
	ipv4TotalLength    = influenceOf(ipv4Len - 4 + udpLen)
	ipv4Identification = influenceOf(behindID)
	ipv6PayloadLength  = influenceOf(ipv6Len - 6 + udpLen)
	udpLength          = influenceOf(udpLen - 6)
)

// behindID is how many bytes there are from the end of IPv4's identification to
// the BTH.
const behindID = ipv4Len - 6 + udpLen

// multiply multiplies two polynomials modulo the CRC's.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ polynomial&-(b&1)
	}
	return product
}

// backBytes are x^-8 to the power of 1, 2, 4 and so on: what undoes so many bytes.
var backBytes = func() (powers [16]uint32) {
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

// undoing multiplies a polynomial by x^-(8k+32) for packets of one length, where k
// is how many of the bytes that the CRC covers follow the identification: it holds
// the factor's products with the 16 polynomials of degree 3 or less.
type undoing struct {
	packet   int // bytes from BTH to ICRC; 0 for none
	products [16]uint32
}

// set makes it one for packets of so many bytes, at most 65535. The ICRC's own 4
// bytes, which k does not count, are the 32 of the exponent.
func (u *undoing) set(packet int) {
	factor := uint32(one)
	for i, k := 0, uint(behindID+packet); k != 0 && i < len(backBytes); i, k = i+1, k>>1 { //nolint:gosec // sizes
		if k&1 != 0 {
			factor = multiply(factor, backBytes[i])
		}
	}
	u.packet = packet
	for v := range u.products {
		u.products[v] = multiply(uint32(v)<<28, factor) //nolint:gosec // 4 bits
	}
}

// multiply multiplies the factor by a, by Horner's rule, four coefficients at a
// time from the highest.
func (u *undoing) multiply(a uint32) uint32 {
	product := u.products[a&15]
	for range 7 {
		a >>= 4
		product = product>>4 ^ byNibble[product&15] ^ u.products[a&15]
	}
	return product
}

// undoCache has what was used last for some packet lengths, at the place that
// follows from the length. A transfer has one that is frequent, that of its full
// packets.
type undoCache [8]undoing

// identification is what a difference of CRCs says that the identification is, if
// it is what one makes.
func (c *undoCache) identification(difference uint32, packet int) (id uint16, ok bool) {
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
