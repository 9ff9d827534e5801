package ops

// adagradRules divide the learning rate by the root of the sum of the squares of the gradients.
func adagradRules() []rule {
	small := ruleOptions{small: smallFloatTypes()}
	return []rule{
		{"Adagrad", "accum", "lr grad", slotsAttr, adagrad[float32], adagrad[float64], small},
		{"Adagrad", "accum", "lr grad indices", slotsAttr, adagrad[float32], adagrad[float64], small},
		{"AdagradV2", "accum", "lr epsilon grad", slotsAttr, adagradV2[float32], adagradV2[float64], small},
		{"AdagradV2", "accum", "lr epsilon grad indices", slotsAttr, adagradV2[float32], adagradV2[float64], small},
	}
}

func adagrad[T float](s *step[T]) {
	r, lr, v := s.round, s.h[0], s.x[0]
	g, accum := s.g[:len(v)], s.x[1][:len(v)]
	for i := range v {
		if s.updateSlots {
			accum[i] = r.of(accum[i] + r.of(g[i]*g[i]))
		}
		change := r.of(g[i] * lr)
		if s.single {
			change = r.of(change / r.sqrt(accum[i]))
		} else {
			change = r.of(change * r.rsqrt(accum[i]))
		}
		v[i] = r.of(v[i] - change)
	}
}

func adagradV2[T float](s *step[T]) {
	r, lr, epsilon, v := s.round, s.h[0], s.h[1], s.x[0]
	g, accum := s.g[:len(v)], s.x[1][:len(v)]
	for i := range v {
		if s.updateSlots {
			accum[i] = r.of(accum[i] + r.of(g[i]*g[i]))
		}
		v[i] = r.of(v[i] - r.of(r.of(g[i]*lr)/r.of(r.sqrt(accum[i])+epsilon)))
	}
}
