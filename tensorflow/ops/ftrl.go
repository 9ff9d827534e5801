package ops

import "math"

// ftrlRules follow the regularised leader: they keep the sums of the squares of the gradients and of the gradients
// themselves, and compute the variable from these.
func ftrlRules() []rule {
	const attr = "; multiply_linear_by_lr: bool = false"
	dense := ruleOptions{small: smallFloatTypes()}
	sparse := ruleOptions{small: smallFloatTypes(), limits: map[string]string{
		"lr": positiveOrZero, "l1": nonNegative, "l2": nonNegative, "l2_shrinkage": nonNegative, "lr_power": nonPositive,
	}}
	return []rule{
		{"Ftrl", "accum linear", "grad lr l1 l2 lr_power", attr, ftrl[float32], ftrl[float64], dense},
		{"Ftrl", "accum linear", "grad indices lr l1 l2 lr_power", attr, ftrl[float32], ftrl[float64], sparse},
		{"FtrlV2", "accum linear", "grad lr l1 l2 l2_shrinkage lr_power", attr, ftrl[float32], ftrl[float64], dense},
		{"FtrlV2", "accum linear", "grad indices lr l1 l2 l2_shrinkage lr_power", attr, ftrl[float32], ftrl[float64], sparse},
	}
}

// pow returns x to the power of −p: the root for the usual p = −0.5.
func (r rounding[T]) pow(x, p T) T {
	if p == -0.5 {
		return r.sqrt(x)
	}
	return r.of(T(math.Pow(float64(x), -float64(p))))
}

func ftrl[T float](s *step[T]) {
	r, lr, l1, l2, power := s.round, s.h[0], s.h[1], s.h[2], s.h[len(s.h)-1]
	var shrinkage T
	if len(s.h) == 5 {
		shrinkage = r.of(2 * s.h[3])
	}
	l2 = r.of(2 * l2)
	if s.multiply {
		l1, l2 = r.of(l1*lr), r.of(l2*lr)
	}
	v := s.x[0]
	g, accum, linear := s.g[:len(v)], s.x[1][:len(v)], s.x[2][:len(v)]
	for i := range v {
		sum := r.of(accum[i] + r.of(g[i]*g[i]))
		root := r.pow(sum, power)
		sigma := r.of(root - r.pow(accum[i], power))
		change := r.of(g[i] + r.of(shrinkage*v[i]))
		if s.multiply {
			change = r.of(change * lr)
		} else {
			sigma, root = r.of(sigma/lr), r.of(root/lr)
		}
		sigma = r.of(sigma * v[i])
		if s.single {
			linear[i] = r.of(r.of(linear[i]+change) - sigma)
		} else {
			linear[i] = r.of(linear[i] + r.of(change-sigma))
		}
		accum[i] = sum
		v[i] = r.of(r.of(ftrlPull(s, linear[i], l1)-linear[i]) / r.of(root+l2))
		if pulled := abs(linear[i]) > l1; !pulled && !s.sparse { // also where it is no number, or the root is zero
			v[i] = 0
		}
	}
}

// ftrlPull returns what l1 takes from the sum of the gradients. For rows TensorFlow computes it in another way, which
// differs where l1 is negative.
func ftrlPull[T float](s *step[T], linear, l1 T) T {
	if s.sparse {
		return max(min(linear, l1), -l1)
	}
	return l1 * sign(linear)
}
