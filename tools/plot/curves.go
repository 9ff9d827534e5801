package main

import (
	"cmp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// curves are the comparisons of which there are several that differ in the share of changed elements: lines over that
// share, and not one below the other.
type curves struct {
	*sheet
	all []curve
}

var _ plot.Plotter = (*curves)(nil)

// curve is one line, by ascending shares.
type curve struct {
	name   string
	points []Row
}

// curveMark is in the names of rows that are points of curves: "NAME-share-WHAT-0.1%".
const curveMark = "-share-"

// splitCurves takes the points of curves from the comparisons.
func splitCurves(all []comparison) (rest []comparison, lines []curve) {
	for _, c := range all {
		r := c.ours
		before, what, ok := strings.Cut(r.Name, curveMark)
		if !ok || r.Changed == nil {
			rest = append(rest, c)
			continue
		}
		what, _, _ = strings.Cut(what, "-")
		name := before + ", " + what + ", " + r.carrier()
		i := slices.IndexFunc(lines, func(l curve) bool { return l.name == name })
		if i < 0 {
			i, lines = len(lines), append(lines, curve{name: name})
		}
		lines[i].points = append(lines[i].points, r)
	}
	for _, l := range lines {
		slices.SortStableFunc(l.points, func(a, b Row) int { return cmp.Compare(*a.Changed, *b.Changed) })
	}
	return rest, lines
}

// The shares and ratios that the axes show. What is smaller is at their ends.
const (
	minShare      = 0.0003
	minCurveRatio = 0.0001
	maxCurveRatio = 2
	curvesHeight  = 300
	curvesHead    = "By the share of changed elements: less is better"
	curvesAxis    = "share of the elements that changed; ratio of ours to the whole, upwards"
)

// Plot implements plot.Plotter.
func (l *curves) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
		if !t.IsMinor() {
			c.StrokeLine2(l.line(grid, 1), x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if !t.IsMinor() {
			c.StrokeLine2(l.line(grid, 1), c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
	for i, one := range l.all {
		var at []vg.Point
		for _, r := range one.points {
			at = append(at, vg.Point{
				X: x(max(*r.Changed, minShare)),
				Y: y(min(max(r.Ratio, minCurveRatio), maxCurveRatio)),
			})
		}
		style := l.curveStyle(i)
		c.StrokeLines(style, at)
		for _, p := range at {
			c.DrawGlyphNoClip(draw.GlyphStyle{Color: style.Color, Radius: 3, Shape: draw.CircleGlyph{}}, p)
		}
	}
}

// curveStyle differs also without colours.
func (s *sheet) curveStyle(i int) draw.LineStyle {
	roles := []role{good, bad, near, target, plain, ink}
	style := s.line(roles[i%len(roles)], 2)
	if i%2 == 1 {
		style.Dashes = []vg.Length{6, 3}
	}
	return style
}

// curves draws the lines below top, with their names at the right.
func (p *picture) drawCurves(c draw.Canvas, top vg.Length) {
	left := margin + p.names + gap
	right := left + plotWidth
	c.FillText(p.style(ink, 14), vg.Point{X: margin, Y: top - panelHead/2}, curvesHead)
	for i, one := range p.lines {
		y := top - panelHead - (vg.Length(i)+0.5)*rowHeight
		c.StrokeLine2(p.curveStyle(i), right+gap, y, right+gap+24, y)
		c.FillText(p.style(ink, textSize), vg.Point{X: right + gap + 30, Y: y}, one.name)
	}
	bottom := top - curvesHeight
	c.FillText(aligned(p.style(faint, textSize), text.XCenter), vg.Point{X: left + plotWidth/2, Y: bottom + 18}, curvesAxis)
	a := plot.New()
	a.BackgroundColor = nil
	a.X.Min, a.X.Max, a.X.Scale, a.X.Tick.Marker, a.X.Padding = minShare, 1, plot.LogScale{}, ratioTicks{}, 0
	a.Y.Min, a.Y.Max, a.Y.Scale, a.Y.Tick.Marker, a.Y.Padding = minCurveRatio, maxCurveRatio, plot.LogScale{}, ratioTicks{}, 0
	for _, axis := range []*plot.Axis{&a.X, &a.Y} {
		axis.LineStyle, axis.Tick.LineStyle = p.line(faint, 1), p.line(faint, 1)
	}
	a.X.Tick.Label = aligned(p.style(faint, textSize), text.XCenter)
	a.X.Tick.Label.YAlign = text.YTop
	a.Y.Tick.Label = aligned(p.style(faint, textSize), text.XRight)
	a.Add(&curves{p.sheet, p.lines})
	a.Draw(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
		Min: vg.Point{X: left, Y: bottom + 26},
		Max: vg.Point{X: right, Y: top - panelHead},
	}})
}

// widest is the width of the names of the curves.
func (p *picture) widest() (w vg.Length) {
	for _, l := range p.lines {
		w = max(w, p.width(l.name))
	}
	return w
}

// describe has the curves as text.
func (l *curve) describe() string {
	parts := make([]string, len(l.points))
	for i, r := range l.points {
		parts[i] = significant(100**r.Changed) + "%: " + significant(r.Ratio)
	}
	return l.name + ": " + strings.Join(parts, ", ")
}
