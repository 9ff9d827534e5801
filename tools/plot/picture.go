package main

import (
	"bytes"
	"fmt"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// picture is a drawing of the rows of one file.
type picture struct {
	*sheet
	title, subtitle string
	panels          []panel
	lines           []curve

	names, ratios, figures vg.Length // widths of the columns beside the axis
}

// render returns the SVG of rows.
func render(title string, rows []Row) ([]byte, error) {
	all := comparisons(rows)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: all rows are those of baselines", title)
	}
	all, lines := splitCurves(all)
	p := &picture{sheet: newSheet(), title: title, subtitle: subtitle(rows), panels: panels(all), lines: lines}
	for i := range all {
		p.names = max(p.names, p.width(all[i].label()))
		p.ratios = max(p.ratios, p.width(all[i].ratio()))
		p.figures = max(p.figures, p.width(all[i].figures()))
	}
	p.ratios = max(p.ratios, p.width(ratioHead))
	p.figures = max(p.figures, p.width(figuresHead))
	return p.draw()
}

// The heads of the columns at the right.
const (
	ratioHead   = "ratio (quartiles)"
	figuresHead = "ours : baseline"
)

// subtitle names the machine, so that nobody compares figures of different ones.
func subtitle(rows []Row) string {
	r := &rows[0]
	machine := r.Processor
	if machine == "" {
		machine = "processor not recorded"
	}
	if r.Load < 0 {
		return machine + "; load average unknown"
	}
	return fmt.Sprintf("%s; load average at the start %.2f", machine, r.Load)
}

func (p *picture) size() (width, height vg.Length) {
	width = 2*margin + p.names + gap + plotWidth + gap + p.ratios + gap + p.figures
	width = max(width, 2*margin+p.style(ink, titleSize).Width(p.title), 2*margin+p.width(p.subtitle), 2*margin+p.legend(nil, 0))
	height = 2*margin + 50 + legendHeight
	for i := range p.panels {
		height += p.panels[i].height()
	}
	if len(p.lines) > 0 {
		width = max(width, 2*margin+p.names+2*gap+plotWidth+30+p.widest())
		height += max(curvesHeight, panelHead+vg.Length(len(p.lines))*rowHeight)
	}
	return width, height
}

func (p *panel) height() vg.Length {
	h := panelHead + vg.Length(len(p.rows))*rowHeight
	if p.drawn() {
		h += panelFoot
	}
	return h
}

func (p *picture) draw() ([]byte, error) {
	width, height := p.size()
	svg := vgsvg.New(width, height)
	c := draw.New(svg)
	p.box(&c, paper, 0, 0, width, height)
	top := height - margin
	c.FillText(p.style(ink, titleSize), vg.Point{X: margin, Y: top - 12}, p.title)
	c.FillText(p.style(faint, textSize), vg.Point{X: margin, Y: top - 36}, p.subtitle)
	top -= 50
	p.legend(&c, top-legendHeight/2)
	top -= legendHeight
	for i := range p.panels {
		p.panel(c, &p.panels[i], top)
		top -= p.panels[i].height()
	}
	if len(p.lines) > 0 {
		p.drawCurves(c, top)
	}
	var b bytes.Buffer
	if _, err := svg.WriteTo(&b); err != nil {
		return nil, err
	}
	return p.finish(b.String(), width, height), nil
}

// panel draws one below top.
func (p *picture) panel(c draw.Canvas, one *panel, top vg.Length) {
	left := margin + p.names + gap
	right := left + plotWidth
	at := columns{left - gap, right + gap, right + 2*gap + p.ratios}
	head := p.style(faint, textSize)
	c.FillText(p.style(ink, 14), vg.Point{X: margin, Y: top - panelHead/2}, one.title)
	if !one.drawn() {
		p.list(&c, one, left, top-panelHead)
		return
	}
	c.FillText(head, vg.Point{X: at.ratios, Y: top - panelHead/2}, ratioHead)
	c.FillText(head, vg.Point{X: at.figures, Y: top - panelHead/2}, figuresHead)
	bottom := top - one.height()
	c.FillText(aligned(head, text.XCenter), vg.Point{X: left + plotWidth/2, Y: bottom + 18}, one.axis)
	area := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
		Min: vg.Point{X: left, Y: bottom + 26},
		Max: vg.Point{X: right, Y: top - panelHead},
	}}
	p.axes(one, at).Draw(area)
}

// axes makes a panel's plot. What its axis shows is written by panel: plot would put it where the middle is on a linear axis.
func (p *picture) axes(one *panel, at columns) *plot.Plot {
	a := plot.New()
	a.BackgroundColor = nil
	a.HideY()
	a.Y.Min, a.Y.Max, a.Y.Padding = -0.5, float64(len(one.rows))-0.5, 0
	a.X.Min, a.X.Max = one.span()
	a.X.Scale, a.X.Tick.Marker, a.X.Padding = plot.LogScale{}, ratioTicks{}, 0
	a.X.Tick.Label = aligned(p.style(faint, textSize), text.XCenter)
	a.X.Tick.Label.YAlign = text.YTop
	a.X.LineStyle, a.X.Tick.LineStyle = p.line(faint, 1), p.line(faint, 1)
	a.Add(&bars{p.sheet, *one, at})
	return a
}

// list writes rows that have no ratio.
func (p *picture) list(c *draw.Canvas, one *panel, left, top vg.Length) {
	st := p.style(ink, textSize)
	for i := range one.rows {
		at := top - (vg.Length(i)+0.5)*rowHeight
		c.FillText(aligned(st, text.XRight), vg.Point{X: left - gap, Y: at}, one.rows[i].label())
		c.FillText(st, vg.Point{X: left, Y: at}, one.rows[i].figures())
	}
}

// legend explains the marks, and returns its width. Without a canvas it only measures.
func (p *picture) legend(c *draw.Canvas, at vg.Length) vg.Length {
	x := vg.Length(margin)
	for _, e := range []struct {
		name string
		sign func(x vg.Length)
	}{
		{"target met", func(x vg.Length) { p.mark(c, met, vg.Point{X: x + 12, Y: at}) }},
		{"met within noise", func(x vg.Length) { p.mark(c, noise, vg.Point{X: x + 12, Y: at}) }},
		{"missed", func(x vg.Length) { p.mark(c, missed, vg.Point{X: x + 12, Y: at}) }},
		{"no target", func(x vg.Length) { p.mark(c, reported, vg.Point{X: x + 12, Y: at}) }},
		{"quartiles", func(x vg.Length) { c.StrokeLine2(p.line(plain, 2), x, at, x+24, at) }},
		{"target", func(x vg.Length) { c.StrokeLine2(p.line(target, 2.5), x+12, at-9, x+12, at+9) }},
		{"baseline beside itself (quartiles)", func(x vg.Length) { p.box(c, band, x, at-7, x+24, at+7) }},
	} {
		if c != nil {
			e.sign(x)
			c.FillText(p.style(faint, textSize), vg.Point{X: x + 30, Y: at}, e.name)
		}
		x += 30 + p.width(e.name) + 18
	}
	return x - margin
}

// description has what the picture shows as text.
func (p *picture) description() string {
	lines := []string{p.subtitle}
	for _, one := range p.panels {
		lines = append(lines, one.title+".")
		for i := range one.rows {
			r := &one.rows[i]
			line := r.label() + ": " + strings.Trim(r.ratio()+", "+r.figures(), ", ")
			if r.ours.Target > 0 {
				line += ", target " + significant(r.ours.Target)
			}
			lines = append(lines, line)
		}
	}
	for i := range p.lines {
		lines = append(lines, p.lines[i].describe())
	}
	return strings.Join(lines, "\n")
}
