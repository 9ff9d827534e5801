package main

import (
	"math"
	"slices"
)

// panel has the comparisons that share an axis: ratios of rates and of times do not.
type panel struct {
	title, axis string
	unity       bool // it has a line where both sides are equal
	rows        []comparison
}

// panels sorts comparisons, and keeps their order within each panel. Those without a baseline are the last.
func panels(all []comparison) (used []panel) {
	kinds := []panel{
		{title: "Rates: to the right is better", axis: "rate of ours as a multiple of the baseline's rate", unity: true},
		{title: "Times: to the left is better", axis: "time of ours as a multiple of the baseline's time", unity: true},
		{title: "Idle: to the left is better", axis: "share of one processor"},
		{title: "Without a baseline"},
	}
	for _, c := range all {
		k := &kinds[c.panel()]
		k.rows = append(k.rows, c)
	}
	for _, k := range kinds {
		if len(k.rows) > 0 {
			used = append(used, k)
		}
	}
	return used
}

func (c *comparison) panel() int {
	switch r := &c.ours; {
	case r.Baseline == none || r.Baseline == "":
		return 3
	case r.Baseline == oneCore:
		return 2
	case r.Better == lower:
		return 1
	}
	return 0
}

func (p *panel) drawn() bool { return p.axis != "" }

// span is what the axis shows: all that is drawn, and some space beside it.
func (p *panel) span() (low, high float64) {
	var all []float64
	if p.unity {
		all = append(all, 1)
	}
	for _, c := range p.rows {
		all = append(all, c.values()...)
	}
	if len(all) == 0 {
		return 0.1, 10
	}
	low, high = slices.Min(all)/1.2, slices.Max(all)*1.2
	if wide := 2.0; high/low < wide {
		middle := math.Sqrt(low * high)
		low, high = middle/math.Sqrt(wide), middle*math.Sqrt(wide)
	}
	return low, high
}

// values are the ratios of a line that can be on a logarithmic axis.
func (c *comparison) values() (all []float64) {
	for _, v := range []float64{c.ours.Ratio, c.ours.RatioQ1, c.ours.RatioQ3, c.ours.Target} {
		if v > 0 {
			all = append(all, bounded(v))
		}
	}
	if c.its != nil && c.its.RatioQ1 > 0 {
		all = append(all, bounded(c.its.RatioQ1), bounded(c.its.RatioQ3))
	}
	return all
}

func bounded(v float64) float64 { return min(max(v, minRatio), maxRatio) }
