package ops

import "github.com/tryst-rdma/tryst/tensor"

// adamRules keep averages of the gradient and of its square.
func adamRules() []rule {
	return []rule{
		{"Adam", "m v", "beta1_power beta2_power lr beta1 beta2 epsilon grad", nesterovAttr, adam32, adam[float64],
			ruleOptions{small: smallFloatTypes()}},
		{"AdamWithAmsgrad", "m v vhat", "beta1_power beta2_power lr beta1 beta2 epsilon grad", "", amsgrad[float32], amsgrad[float64],
			ruleOptions{small: smallFloatTypes(), resourceOnly: true}},
		{"AdaMax", "m v", "beta1_power lr beta1 beta2 epsilon grad", "", adaMax[float32], adaMax[float64],
			ruleOptions{small: []tensor.DType{tensor.Float16}}},
	}
}

// adamAlpha returns the learning rate of a step of Adam.
func adamAlpha[T float](s *step[T]) T {
	r := s.round
	return r.of(r.of(s.h[2]*r.sqrt(r.of(1-s.h[1]))) / r.of(1-s.h[0]))
}

func adam[T float](s *step[T]) {
	r, beta1, beta2, epsilon, alpha := s.round, s.h[3], s.h[4], s.h[5], adamAlpha(s)
	x := s.x[0]
	g, m, v := s.g[:len(x)], s.x[1][:len(x)], s.x[2][:len(x)]
	c1, c2 := r.of(1-beta1), r.of(1-beta2)
	for i := range x {
		m[i] = r.of(m[i] + r.of(r.of(g[i]-m[i])*c1))
		v[i] = r.of(v[i] + r.of(r.of(r.of(g[i]*g[i])-v[i])*c2))
		change := m[i]
		if s.nesterov {
			change = r.of(r.of(g[i]*c1) + r.of(beta1*m[i]))
		}
		x[i] = r.of(x[i] - r.of(r.of(change*alpha)/r.of(r.sqrt(v[i])+epsilon)))
	}
}

// adam32 is adam with vector instructions, where there are some. It computes the same bits.
func adam32(s *step[float32]) {
	if !s.nesterov && s.round == nil {
		done := adamVector(s.x[0], s.x[1], s.x[2], s.g, adamAlpha(s), 1-s.h[3], 1-s.h[4], s.h[5])
		for i := range s.x[:3] {
			s.x[i] = s.x[i][done:]
		}
		s.g = s.g[done:]
	}
	adam(s)
}

// amsgrad divides by the largest average of the square so far.
func amsgrad[T float](s *step[T]) {
	r, beta1, beta2, epsilon, alpha := s.round, s.h[3], s.h[4], s.h[5], adamAlpha(s)
	x := s.x[0]
	g, m, v, most := s.g[:len(x)], s.x[1][:len(x)], s.x[2][:len(x)], s.x[3][:len(x)]
	for i := range x {
		m[i] = averageOf(s, m[i], g[i], beta1)
		v[i] = averageOf(s, v[i], r.of(g[i]*g[i]), beta2)
		if v[i] > most[i] { // not if it is no number
			most[i] = v[i]
		}
		x[i] = r.of(x[i] - r.of(r.of(m[i]*alpha)/r.of(r.sqrt(most[i])+epsilon)))
	}
}

// adaMax divides by the largest gradient, of which older ones count less.
func adaMax[T float](s *step[T]) {
	r, lr, beta1, beta2, epsilon := s.round, s.h[1], s.h[2], s.h[3], s.h[4]
	alpha := r.of(lr / r.of(1-s.h[0]))
	x := s.x[0]
	g, m, v := s.g[:len(x)], s.x[1][:len(x)], s.x[2][:len(x)]
	for i := range x {
		m[i] = averageOf(s, m[i], g[i], beta1)
		v[i] = r.of(beta2 * v[i])
		if size := abs(g[i]); size > v[i] { // not if it is no number
			v[i] = size
		}
		x[i] = r.of(x[i] - r.of(alpha*r.of(m[i]/r.of(v[i]+epsilon))))
	}
}
