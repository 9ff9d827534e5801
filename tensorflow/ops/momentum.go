package ops

// momentumRules are descent along the gradient, with and without momentum.
func momentumRules() []rule {
	small := ruleOptions{small: smallFloatTypes()}
	keras := ruleOptions{small: smallFloatTypes(), resourceOnly: true}
	return []rule{
		{"GradientDescent", "", "alpha delta", "", descent[float32], descent[float64], small},
		{"Momentum", "accum", "lr grad momentum", nesterovAttr, momentum[float32], momentum[float64], small},
		{"Momentum", "accum", "lr grad indices momentum", nesterovAttr, momentum[float32], momentum[float64], small},
		{"KerasMomentum", "accum", "lr grad momentum", nesterovAttr, kerasMomentum[float32], kerasMomentum[float64], keras},
		{"KerasMomentum", "accum", "lr grad indices momentum", nesterovAttr, kerasMomentum[float32], kerasMomentum[float64], keras},
	}
}

func descent[T float](s *step[T]) {
	r, alpha, v := s.round, s.h[0], s.x[0]
	g := s.g[:len(v)]
	for i := range v {
		v[i] = r.of(v[i] - r.of(g[i]*alpha))
	}
}

func momentum[T float](s *step[T]) {
	r, lr, momentum, v := s.round, s.h[0], s.h[1], s.x[0]
	g, accum := s.g[:len(v)], s.x[1][:len(v)]
	both := r.of(lr * momentum)
	for i := range v {
		accum[i] = r.of(r.of(accum[i]*momentum) + g[i])
		change := r.of(accum[i] * lr)
		if s.nesterov && s.sparse {
			change = r.of(r.of(g[i]*lr) + r.of(both*accum[i]))
		} else if s.nesterov {
			change = r.of(r.of(g[i]*lr) + r.of(r.of(accum[i]*momentum)*lr))
		}
		v[i] = r.of(v[i] - change)
	}
}

func kerasMomentum[T float](s *step[T]) {
	r, lr, momentum, v := s.round, s.h[0], s.h[1], s.x[0]
	g, accum := s.g[:len(v)], s.x[1][:len(v)]
	for i := range v {
		accum[i] = r.of(r.of(accum[i]*momentum) - r.of(g[i]*lr))
		change := accum[i]
		if s.nesterov {
			change = r.of(r.of(accum[i]*momentum) - r.of(g[i]*lr))
		}
		v[i] = r.of(v[i] + change)
	}
}
