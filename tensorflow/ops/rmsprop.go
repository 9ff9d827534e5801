package ops

import "github.com/tryst-rdma/tryst/tensor"

// rmsPropRules divide by the root of the average of the square of the gradient.
func rmsPropRules() []rule {
	return []rule{
		{"RMSProp", "ms mom", "lr rho momentum epsilon grad", "", rmsProp[float32], rmsProp[float64],
			ruleOptions{small: smallFloatTypes()}},
		{"RMSProp", "ms mom", "lr rho momentum epsilon grad indices", "", rmsProp[float32], rmsProp[float64],
			ruleOptions{small: []tensor.DType{tensor.Float16}}},
		{"CenteredRMSProp", "mg ms mom", "lr rho momentum epsilon grad", "", centeredRMSProp[float32], centeredRMSProp[float64],
			ruleOptions{small: smallFloatTypes()}},
		{"CenteredRMSProp", "mg ms mom", "lr rho momentum epsilon grad indices", "", centeredRMSProp[float32], centeredRMSProp[float64],
			ruleOptions{small: []tensor.DType{tensor.Float16}}},
	}
}

// averageOf returns the average of before and x, which counts by the part 1 − rho. TensorFlow computes it in another
// order for rows.
func averageOf[T float](s *step[T], before, x, rho T) T {
	r := s.round
	if s.sparse {
		return r.of(r.of(before*rho) + r.of(x*r.of(1-rho)))
	}
	return r.of(before + r.of(r.of(x-before)*r.of(1-rho)))
}

// overRoot returns lr·g/√denominator.
func overRoot[T float](s *step[T], lr, g, denominator T) T {
	r := s.round
	if s.sparse {
		return r.of(r.of(s.rsqrt(denominator)*lr) * g)
	}
	return r.of(r.of(g*lr) / r.sqrt(denominator))
}

func rmsProp[T float](s *step[T]) {
	r, lr, rho, momentum, epsilon := s.round, s.h[0], s.h[1], s.h[2], s.h[3]
	x := s.x[0]
	g, ms, mom := s.g[:len(x)], s.x[1][:len(x)], s.x[2][:len(x)]
	for i := range x {
		ms[i] = averageOf(s, ms[i], r.of(g[i]*g[i]), rho)
		mom[i] = r.of(r.of(mom[i]*momentum) + overRoot(s, lr, g[i], r.of(ms[i]+epsilon)))
		x[i] = r.of(x[i] - mom[i])
	}
}

// centeredRMSProp divides by the root of the variance.
func centeredRMSProp[T float](s *step[T]) {
	r, lr, rho, momentum, epsilon := s.round, s.h[0], s.h[1], s.h[2], s.h[3]
	x := s.x[0]
	g, mg, ms, mom := s.g[:len(x)], s.x[1][:len(x)], s.x[2][:len(x)], s.x[3][:len(x)]
	for i := range x {
		ms[i] = averageOf(s, ms[i], r.of(g[i]*g[i]), rho)
		mg[i] = averageOf(s, mg[i], g[i], rho)
		square := r.of(mg[i] * mg[i])
		variance := r.of(r.of(ms[i]-square) + epsilon)
		if s.sparse {
			variance = r.of(r.of(ms[i]+epsilon) - square)
		}
		mom[i] = r.of(r.of(mom[i]*momentum) + overRoot(s, lr, g[i], variance))
		x[i] = r.of(x[i] - mom[i])
	}
}
