package ops

// adadeltaRules take the learning rate from the average of the squares of past changes.
func adadeltaRules() []rule {
	small := ruleOptions{small: smallFloatTypes()}
	return []rule{
		{"Adadelta", "accum accum_update", "lr rho epsilon grad", "", adadelta[float32], adadelta[float64], small},
		{"Adadelta", "accum accum_update", "lr rho epsilon grad indices", "", adadelta[float32], adadelta[float64], small},
	}
}

func adadelta[T float](s *step[T]) {
	r, lr, rho, epsilon := s.round, s.h[0], s.h[1], s.h[2]
	v := s.x[0]
	g, accum, changes := s.g[:len(v)], s.x[1][:len(v)], s.x[2][:len(v)]
	rest := r.of(1 - rho)
	for i := range v {
		accum[i] = r.of(r.of(accum[i]*rho) + r.of(r.of(g[i]*g[i])*rest))
		change := r.of(r.of(r.sqrt(r.of(changes[i]+epsilon))*s.rsqrt(r.of(accum[i]+epsilon))) * g[i])
		v[i] = r.of(v[i] - r.of(change*lr))
		changes[i] = r.of(r.of(changes[i]*rho) + r.of(r.of(change*change)*rest))
	}
}
