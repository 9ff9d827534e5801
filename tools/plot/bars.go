package main

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// columns are the places of the texts beside an axis: where names end, and where ratios and figures begin.
type columns struct{ names, ratios, figures vg.Length }

// bars draws the comparisons of a panel, the first at the top, with their names at the left and their figures at the right.
type bars struct {
	*sheet
	panel
	columns
}

var _ plot.Plotter = (*bars)(nil)

// Plot implements plot.Plotter.
func (b *bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if !t.IsMinor() {
			c.StrokeLine2(b.line(grid, 1), x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	if b.unity {
		c.StrokeLine2(b.line(faint, 1.5), x(1), c.Min.Y, x(1), c.Max.Y)
	}
	for i := range b.rows {
		at := y(float64(len(b.rows) - 1 - i))
		b.name(&c, i, at)
		b.comparison(&c, &b.rows[i], x, at)
	}
}

// name writes what is beside a line of the panel.
func (b *bars) name(c *draw.Canvas, i int, at vg.Length) {
	r, st := &b.rows[i], b.style(ink, textSize)
	c.FillText(aligned(st, text.XRight), vg.Point{X: b.names, Y: at}, r.label())
	c.FillText(st, vg.Point{X: b.ratios, Y: at}, r.ratio())
	c.FillText(st, vg.Point{X: b.figures, Y: at}, r.figures())
}

// comparison draws the quartiles of the baseline beside itself, then those of ours, the target and the median.
func (b *bars) comparison(c *draw.Canvas, r *comparison, x func(float64) vg.Length, at vg.Length) {
	o := &r.ours
	if r.its != nil && r.its.RatioQ1 > 0 {
		b.box(c, band, x(bounded(r.its.RatioQ1)), at-7, x(bounded(r.its.RatioQ3)), at+7)
	}
	if o.Target > 0 {
		c.StrokeLine2(b.line(target, 2.5), x(bounded(o.Target)), at-9, x(bounded(o.Target)), at+9)
	}
	if o.Ratio == 0 {
		return
	}
	mark := o.outcome()
	if o.RatioQ1 > 0 {
		c.StrokeLine2(b.line(mark.role(), 2), x(bounded(o.RatioQ1)), at, x(bounded(o.RatioQ3)), at)
	}
	b.mark(c, mark, vg.Point{X: x(bounded(o.Ratio)), Y: at})
}
