package bench

import (
	"context"
	"slices"
)

// turns runs two sides in turn, the baseline twice in each pair, in the opposite order each time, after one run
// of each that is not counted. The second run of the baseline is next to that of ours.
func turns[T any](ctx context.Context, pairs int, ours, baseline func(context.Context) (T, error)) (o, first, second []T, err error) {
	for _, side := range []func(context.Context) (T, error){baseline, ours} {
		if _, err := side(ctx); err != nil {
			return nil, nil, nil, err
		}
	}
	for i := range pairs {
		order := []int{0, 1, 2}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		var got [3]T
		for _, k := range order {
			side := baseline
			if k == 2 {
				side = ours
			}
			if got[k], err = side(ctx); err != nil {
				return nil, nil, nil, err
			}
		}
		first, second, o = append(first, got[0]), append(second, got[1]), append(o, got[2])
	}
	return o, first, second, nil
}
