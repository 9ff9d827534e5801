package ops

import "math"

// The functions below are logf and sincosf of glibc (since 2.28), which are those of ARM's optimized
// routines (math/logf.c, math/sincosf.h, MIT license): TensorFlow's random normals call them. They
// err by up to 0.8 ulp, so math.Log rounded to float32 gives other values in one case of 140, and
// the initial values of a model would differ from TensorFlow's.

// logTable has 1/c and log(c) for 16 points c.
var logTable = [16][2]float64{
	{0x1.661ec79f8f3bep+0, -0x1.57bf7808caadep-2},
	{0x1.571ed4aaf883dp+0, -0x1.2bef0a7c06ddbp-2},
	{0x1.49539f0f010bp+0, -0x1.01eae7f513a67p-2},
	{0x1.3c995b0b80385p+0, -0x1.b31d8a68224e9p-3},
	{0x1.30d190c8864a5p+0, -0x1.6574f0ac07758p-3},
	{0x1.25e227b0b8eap+0, -0x1.1aa2bc79c81p-3},
	{0x1.1bb4a4a1a343fp+0, -0x1.a4e76ce8c0e5ep-4},
	{0x1.12358f08ae5bap+0, -0x1.1973c5a611cccp-4},
	{0x1.0953f419900a7p+0, -0x1.252f438e10c1ep-5},
	{0x1p+0, 0x0p+0},
	{0x1.e608cfd9a47acp-1, 0x1.aa5aa5df25984p-5},
	{0x1.ca4b31f026aap-1, 0x1.c5e53aa362eb4p-4},
	{0x1.b2036576afce6p-1, 0x1.526e57720db08p-3},
	{0x1.9c2d163a1aa2dp-1, 0x1.bc2860d22477p-3},
	{0x1.886e6037841edp-1, 0x1.1058bc8a07ee1p-2},
	{0x1.767dcf5534862p-1, 0x1.4043057b6ee09p-2},
}

// logFloat returns the logarithm of a normal positive number.
func logFloat(x float32) float32 {
	const offset = 0x3f330000
	bits := math.Float32bits(x)
	if bits == 0x3f800000 {
		return 0
	}
	tmp := bits - offset
	t := logTable[tmp>>19&15]
	k := float64(int32(tmp) >> 23)
	z := float64(math.Float32frombits(bits - tmp&(0x1ff<<23)))
	r := float64(z*t[0]) - 1
	y0 := t[1] + float64(k*0x1.62e42fefa39efp-1)
	r2 := float64(r * r)
	y := float64(0x1.5575b0be00b6ap-2*r) - 0x1.ffffef20a4123p-2
	y = float64(-0x1.00ea348b88334p-2*r2) + y
	y = float64(y*r2) + (y0 + r)
	return float32(y)
}

// sincosFloat returns sine and cosine of a number whose absolute value is below 120.
func sincosFloat(y float32) (sin, cos float32) {
	x := float64(y)
	if abs := math.Abs(x); abs < math.Pi/4 {
		if abs < 0x1p-12 {
			return y, 1
		}
		return sinPoly(x, x*x), cosPoly(x*x, 1)
	}
	n := (int32(x*0x1.45F306DC9C883p+23) + 0x800000) >> 24
	x -= float64(float64(n) * 0x1.921FB54442D18p0)
	sign, negate := 1.0, 1.0
	if n&3 == 1 || n&3 == 2 {
		sign = -1
	}
	if n&2 != 0 {
		negate = -1
	}
	sin, cos = sinPoly(x*sign, x*x), cosPoly(x*x, negate)
	if n&1 != 0 {
		return cos, sin
	}
	return sin, cos
}

func sinPoly(x, x2 float64) float32 {
	x3 := float64(x * x2)
	s1 := 0x1.1107605230bc4p-7 + float64(x2*-0x1.994eb3774cf24p-13)
	x7 := float64(x3 * x2)
	return float32(x + float64(x3*-0x1.555545995a603p-3) + float64(x7*s1))
}

func cosPoly(x2, negate float64) float32 {
	x4 := float64(x2 * x2)
	c2 := -0x1.6c087e89a359dp-10 + float64(x2*0x1.99343027bf8c3p-16)
	c1 := 1 + float64(x2*-0x1.ffffffd0c621cp-2)
	x6 := float64(x4 * x2)
	return float32(negate * (c1 + float64(x4*0x1.55553e1068f19p-5) + float64(x6*c2)))
}
