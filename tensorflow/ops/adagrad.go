package ops

// adagradRules divide the learning rate by the root of the sum of the squares of the gradients.
func adagradRules() []rule {
	small := ruleOptions{small: smallFloatTypes()}
	return []rule{
		{"Adagrad", "accum", "lr grad", slotsAttr, adagrad[float32], adagrad[float64], small},
		{"Adagrad", "accum", "lr grad indices", slotsAttr, adagrad[float32], adagrad[float64], small},
		{"AdagradV2", "accum", "lr epsilon grad", slotsAttr, adagradV2[float32], adagradV2[float64], small},
		{"AdagradV2", "accum", "lr epsilon grad indices", slotsAttr, adagradV2[float32], adagradV2[float64], small},
		{"AdagradDA", "gradient_accumulator gradient_squared_accumulator", "grad lr l1 l2 global_step", "",
			adagradDA[float32], adagradDA[float64], ruleOptions{}},
		{"AdagradDA", "gradient_accumulator gradient_squared_accumulator", "grad indices lr l1 l2 global_step", "",
			adagradDA[float32], adagradDA[float64], ruleOptions{}},
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
			change = r.of(change * s.rsqrt(accum[i]))
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

// adagradDA computes the variable from the sums alone: dual averaging.
func adagradDA[T float](s *step[T]) {
	r, v := s.round, s.x[0]
	g, sum, squares := s.g[:len(v)], s.x[1][:len(v)], s.x[2][:len(v)]
	f := averaged[T]
	switch {
	case s.single:
		f = averagedSingle[T]
	case s.sparse:
		f = averagedRow[T]
	}
	for i := range v {
		sum[i] = r.of(sum[i] + g[i])
		if s.single {
			squares[i] = T(float64(squares[i]) + float64(float64(g[i])*float64(g[i])))
		} else {
			squares[i] = r.of(squares[i] + r.of(g[i]*g[i]))
		}
		v[i] = f(s, sum[i], squares[i])
	}
}

// averaged returns −lr·sign(sum)·max(|sum| − steps·l1, 0) / (steps·lr·l2 + √squares), the element of a dense
// variable. The two below are the same, computed as TensorFlow does for rows and for rows of one element.
func averaged[T float](s *step[T], sum, squares T) T {
	r, lr, l1, l2, steps := s.round, s.h[0], s.h[1], s.h[2], T(float32(s.globalStep))
	if l1 > 0 {
		sum = r.of(-lr*sign(sum)) * least0(r.of(abs(sum)-r.of(steps*l1)))
	} else {
		sum = -r.of(lr * sum)
	}
	return r.of(r.of(sum) / r.of(r.of(l2*r.of(steps*lr))+r.sqrt(squares)))
}

func averagedRow[T float](s *step[T], sum, squares T) T {
	r, lr, l1, l2, steps := s.round, s.h[0], s.h[1], s.h[2], T(s.globalStep)
	mean := r.of(sum / steps)
	if l1 > 0 {
		mean = r.of(sign(sum) * least0(r.of(r.of(abs(sum)/steps)-l1)))
	}
	return r.of(-mean / r.of(l2+r.of(r.sqrt(squares)/r.of(steps*lr))))
}

func averagedSingle[T float](s *step[T], sum, squares T) T {
	lr, l1, l2, steps := float64(s.h[0]), float64(s.h[1]), float64(s.h[2]), float64(s.globalStep)
	r := rounding[float64](nil)
	wide := r.of(float64(sum) * lr)
	if l1 > 0 {
		wide = r.of(r.of(float64(sign(sum))*lr) * least0(float64(abs(sum))-r.of(steps*l1)))
	}
	return T(-wide / (r.of(r.of(steps*l2)*lr) + float64(s.round.sqrt(squares))))
}

// least0 returns x, or 0 if it is negative.
func least0[T float](x T) T {
	if x < 0 {
		return 0
	}
	return x
}
