package main

import (
	"fmt"
	"image/color"
	"strings"
)

// role is what a colour is for. Each has one colour on light pages and one on dark ones.
type role int

const (
	paper  role = iota
	ink         // names, figures, the line of the baseline
	faint       // what explains: the subtitle, the axis
	grid        // lines that only guide the eye
	band        // the quartiles of the baseline beside itself
	good        // a target that is met
	near        // one that is missed by no more than noise
	bad         // one that is missed
	plain       // a row without a target
	target      // the line of a target
	roles  = int(target) + 1
)

// tone has the two colours of a role.
type tone struct{ light, dark color.RGBA }

// palette has the colours by role. No two of the light ones are the same: the stylesheet finds them by their values. Nor is
// one of them black, which vgsvg does not write.
func palette() [roles]tone {
	return [roles]tone{
		paper:  {rgb(0xFFFFFF), rgb(0x0D1117)},
		ink:    {rgb(0x1F2328), rgb(0xE6EDF3)},
		faint:  {rgb(0x57606A), rgb(0x9198A1)},
		grid:   {rgb(0xE4E8ED), rgb(0x2A313A)},
		band:   {rgb(0xCFD6DE), rgb(0x3D4550)},
		good:   {rgb(0x0A69DA), rgb(0x58A6FF)},
		near:   {rgb(0x6B4FBB), rgb(0xB392F0)},
		bad:    {rgb(0xC2410C), rgb(0xFF9B57)},
		plain:  {rgb(0x4B5560), rgb(0xA9B1BB)},
		target: {rgb(0x157F3B), rgb(0x3FB950)},
	}
}

func rgb(v uint32) color.RGBA { return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xFF} }

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

// stylesheet changes each light colour into the dark one where the reader's page is dark. A program that knows no such rule
// shows the light picture, which has its own paper.
func stylesheet() string {
	var b strings.Builder
	b.WriteString("<style>@media (prefers-color-scheme:dark){\n")
	for _, t := range palette() {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&b, "[style*=\"%s:%s\"]{%s:%s!important}\n", property, hex(t.light), property, hex(t.dark))
		}
	}
	b.WriteString("}</style>\n")
	return b.String()
}
