package main

import (
	"fmt"
	"html"
	"regexp"
	"strconv"
	"strings"

	"gonum.org/v1/plot/vg"
)

// What vgsvg writes and finish changes: the beginning, and texts with their size.
var (
	svgHead = regexp.MustCompile(`(?s)^.*?<svg [^>]*>\n`)
	svgText = regexp.MustCompile(`<text ([^>]*?)style="font-family:[^"]*?;font-size:([0-9.]+)px([^"]*)">([^<]*)</text>`)
)

// letters are those that texts are measured with, and ones of the same widths.
const letters = "'Liberation Sans',Arial,Helvetica,sans-serif"

// finish gives the picture a name and a description for who does not see it, texts that are as wide as they were measured
// also in other letters, and colours for dark pages.
func (p *picture) finish(svg string, width, height vg.Length) []byte {
	body := svgHead.ReplaceAllLiteralString(svg, "")
	body = svgText.ReplaceAllStringFunc(body, p.fit)
	var b strings.Builder
	fmt.Fprintf(&b, "<svg width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.5g %.5g\" role=\"img\" font-family=\"%s\" xmlns=\"http://www.w3.org/2000/svg\">\n",
		width.Points(), height.Points(), width.Points(), height.Points(), letters)
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>%s</desc>\n%s%s", html.EscapeString(p.title), html.EscapeString(p.description()), stylesheet(), body)
	return []byte(b.String())
}

// fit sets the width of a text.
func (p *picture) fit(element string) string {
	m := svgText.FindStringSubmatch(element)
	size, err := strconv.ParseFloat(m[2], 64)
	if err != nil {
		return element
	}
	width := p.style(ink, vg.Length(size)).Width(html.UnescapeString(m[4]))
	return fmt.Sprintf(`<text %stextLength="%.1f" lengthAdjust="spacingAndGlyphs" style="font-size:%spx%s">%s</text>`,
		m[1], width.Points(), m[2], m[3], m[4])
}
