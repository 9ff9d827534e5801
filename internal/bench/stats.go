package bench

import "slices"

// spread is a median with its quartiles.
type spread struct{ q1, median, q3 float64 }

// spreadOf returns the spread of values, which it sorts; zero for none.
func spreadOf(values []float64) spread {
	slices.Sort(values)
	return spread{quantile(values, 0.25), quantile(values, 0.5), quantile(values, 0.75)}
}

// quantile interpolates between the neighbours in sorted values (type 7 of
// Hyndman and Fan, what R and NumPy do).
func quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// inverse is the spread of the inverses: of times, when s is of scores.
func (s spread) inverse() spread {
	if s.q1 == 0 || s.median == 0 || s.q3 == 0 {
		return spread{}
	}
	return spread{1 / s.q3, 1 / s.median, 1 / s.q1}
}

// deviation is how far the middle half of an A/A ratio is from 1.
func (s spread) deviation() float64 { return max(1-s.q1, s.q3-1, 0) }
