package main

import (
	"image/color"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"gonum.org/v1/plot"
)

// Sizes, in units of the picture; a page shows one as a pixel or less.
const (
	rowHeight    = 22
	panelHead    = 30 // the title of a panel
	panelFoot    = 46 // its axis
	margin       = 16
	gap          = 12 // between columns
	plotWidth    = 380
	titleSize    = 18
	textSize     = 12
	legendHeight = 24
	markRadius   = 4.5
)

// sheet draws in the colours and letters of all pictures.
type sheet struct {
	colours [roles]tone
	letters text.Handler
}

func newSheet() *sheet { return &sheet{palette(), plot.DefaultTextHandler} }

func (s *sheet) colour(r role) color.Color { return s.colours[r].light }

// style is that of a text in a colour and a size.
func (s *sheet) style(r role, size vg.Length) text.Style {
	return text.Style{
		Color: s.colour(r), Handler: s.letters, YAlign: text.YCenter,
		Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: size},
	}
}

func (s *sheet) width(t string) vg.Length { return s.style(ink, textSize).Width(t) }

// aligned is a style whose text begins, ends or has its middle where it is put.
func aligned(st text.Style, x text.XAlignment) text.Style {
	st.XAlign = x
	return st
}

func (s *sheet) line(r role, width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: s.colour(r), Width: width}
}

// role is the colour of an outcome.
func (o outcome) role() role {
	return [...]role{reported: plain, met: good, noise: near, missed: bad}[o]
}

// mark draws the sign of an outcome: another shape for each, so that nobody needs the colours.
func (s *sheet) mark(c *draw.Canvas, o outcome, at vg.Point) {
	g := draw.GlyphStyle{Color: s.colour(o.role()), Radius: markRadius, Shape: draw.CircleGlyph{}}
	switch o {
	case noise:
		g.Shape = draw.BoxGlyph{}
	case missed:
		g.Shape, g.Radius = draw.PyramidGlyph{}, markRadius+1
	}
	c.DrawGlyphNoClip(g, at)
	if o == reported { // a ring
		g.Color, g.Radius = s.colour(paper), markRadius-1.5
		c.DrawGlyphNoClip(g, at)
	}
}

func (s *sheet) box(c *draw.Canvas, r role, x0, y0, x1, y1 vg.Length) {
	c.FillPolygon(s.colour(r), []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}
