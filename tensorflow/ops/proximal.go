package ops

// proximalRules take a step and then pull the variable towards zero: l1 by the same length everywhere, l2 by a part.
func proximalRules() []rule {
	none := ruleOptions{}
	limited := ruleOptions{limits: map[string]string{"lr": positive, "l1": nonNegative, "l2": nonNegative}}
	return []rule{
		{"ProximalGradientDescent", "", "alpha l1 l2 delta", "", proximalDescent[float32], proximalDescent[float64], none},
		{"ProximalGradientDescent", "", "alpha l1 l2 grad indices", "", proximalDescent[float32], proximalDescent[float64], none},
		{"ProximalAdagrad", "accum", "lr l1 l2 grad", "", proximalAdagrad[float32], proximalAdagrad[float64], limited},
		{"ProximalAdagrad", "accum", "lr l1 l2 grad indices", "", proximalAdagrad[float32], proximalAdagrad[float64], limited},
	}
}

func proximalDescent[T float](s *step[T]) {
	lr, l1, l2, v := s.h[0], s.h[1], s.h[2], s.x[0]
	g := s.g[:len(v)]
	for i := range v {
		v[i] = proximal(s, v[i], g[i], lr, l1, l2)
	}
}

func proximalAdagrad[T float](s *step[T]) {
	r, lr, l1, l2, v := s.round, s.h[0], s.h[1], s.h[2], s.x[0]
	g, accum := s.g[:len(v)], s.x[1][:len(v)]
	for i := range v {
		accum[i] = r.of(accum[i] + r.of(g[i]*g[i]))
		rate := r.of(lr * s.rsqrt(accum[i]))
		if s.single {
			rate = r.of(lr / r.sqrt(accum[i]))
		}
		v[i] = proximal(s, v[i], g[i], rate, l1, l2)
	}
}

// proximal returns v after a step against g and the pull. In rows of one element TensorFlow divides doubles.
func proximal[T float](s *step[T], v, g, rate, l1, l2 T) T {
	r := s.round
	v = r.of(v - r.of(g*rate))
	if l1 > 0 {
		v = r.of(sign(v) * least0(r.of(abs(v)-r.of(rate*l1))))
	}
	if s.single {
		return r.of(T(float64(v) / (1 + float64(r.of(l2*rate)))))
	}
	return r.of(v / r.of(1+r.of(l2*rate)))
}
