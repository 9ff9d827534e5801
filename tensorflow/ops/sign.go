package ops

import "math"

// signRules take larger steps where the gradient has the sign of its average.
func signRules() []rule {
	small := ruleOptions{small: smallFloatTypes()}
	return []rule{
		{"AddSign", "m", "lr alpha sign_decay beta grad", "", addSign[float32], addSign[float64], small},
		{"PowerSign", "m", "lr logbase sign_decay beta grad", "", powerSign[float32], powerSign[float64], small},
	}
}

func addSign[T float](s *step[T]) {
	r, alpha, decay := s.round, s.h[1], s.h[2]
	signed(s, func(same T) T { return r.of(alpha + r.of(decay*same)) })
}

func powerSign[T float](s *step[T]) {
	r, scale := s.round, s.round.of(s.h[1]*s.h[2])
	signed(s, func(same T) T { return r.of(T(math.Exp(float64(r.of(scale * same))))) })
}

// signed changes the variable by the learning rate, the gradient and what factor returns for the product of the signs
// of the gradient and of its average.
func signed[T float](s *step[T], factor func(same T) T) {
	r, lr, beta, v := s.round, s.h[0], s.h[3], s.x[0]
	g, m := s.g[:len(v)], s.x[1][:len(v)]
	rest := r.of(1 - beta)
	for i := range v {
		m[i] = r.of(r.of(m[i]*beta) + r.of(g[i]*rest))
		v[i] = r.of(v[i] - r.of(r.of(lr*factor(sign(g[i])*sign(m[i])))*g[i]))
	}
}
