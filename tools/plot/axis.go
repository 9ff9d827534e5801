package main

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// ratioTicks labels a logarithmic axis at 1, 2 and 5 times the powers of ten, where that is too much only at these, and where it is too little at each multiple.
type ratioTicks struct{}

var _ plot.Ticker = ratioTicks{}

// fewFactors is below which ratio of its ends an axis has a label at each multiple of a power of ten.
const fewFactors = 6

// manyDecades is from where only powers of ten have a label.
const manyDecades = 3.2

func (ratioTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	wide, narrow := math.Log10(high/low) > manyDecades, high/low < fewFactors
	for exponent := math.Floor(math.Log10(low)); math.Pow(10, exponent) <= high; exponent++ {
		for factor := 1.0; factor < 10; factor++ {
			t := plot.Tick{Value: factor * math.Pow(10, exponent)}
			if t.Value < low || t.Value > high {
				continue
			}
			if factor == 1 || !wide && (factor == 2 || factor == 5) || narrow {
				t.Label = strconv.FormatFloat(t.Value, 'g', 3, 64)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}
