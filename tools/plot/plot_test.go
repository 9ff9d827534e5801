package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// results are lines of a benchmark, one of each sort.
const results = `{"name":"step-recv","transport":"","size":65536,"inflight":4,"count":100,"seconds":1,"gbytes_per_second":3,"p50_us":5,"baseline":"raw-tcp","ratio":1,"ratio_q1":0.9,"ratio_q3":1.1,"better":"higher","ok":true,"load":0.25,"processor":"Abacus <9> & more, 2 processors"}
{"name":"step-recv","transport":"verbs","provider":"shm","size":65536,"inflight":4,"count":100,"seconds":1,"gbytes_per_second":2.5,"p50_us":6,"baseline":"raw-tcp","ratio":0.8,"ratio_q1":0.7,"ratio_q3":0.9,"better":"higher","target":0.75,"ok":true,"load":0.25}

{"name":"missed-it","transport":"grpc","size":1048576,"inflight":1,"count":10,"seconds":1,"baseline":"grpc-passthrough","ratio":0.5,"ratio_q1":0.4,"ratio_q3":0.6,"better":"higher","target":0.75,"ok":false}
{"name":"by-noise","transport":"grpc","count":10,"seconds":1,"p50_us":50,"baseline":"raw-tcp","ratio":1.6,"ratio_q1":1.4,"ratio_q3":1.7,"better":"lower","target":1.5,"ok":true}
{"name":"its-tail","transport":"grpc","size":8,"count":10,"seconds":1,"p50_us":50,"baseline":"own-p50","ratio":3,"ratio_q1":3,"ratio_q3":3,"better":"lower","ok":true}
{"name":"idle-one","transport":"verbs","provider":"tcp","size":200000,"count":360,"seconds":30,"baseline":"one-core","ratio":0.0002,"ratio_q1":0.0002,"ratio_q3":0.0002,"better":"lower","target":0.02,"ok":true}
{"name":"waiting-keys","transport":"local","size":700,"inflight":100000,"count":1,"seconds":1,"baseline":"none","better":"higher","ok":true}
{"name":"left-out","transport":"verbs","baseline":"ucx","better":"lower","ok":false}
`

func picture1(t *testing.T, lines string) string {
	t.Helper()
	svg, err := plotText("x.jsonl", "A title & more", []byte(lines))
	if err != nil {
		t.Fatal(err)
	}
	return string(svg)
}

// texts returns the texts of an SVG, and fails where it is not well formed.
func texts(t *testing.T, svg string) (all []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if c, ok := token.(xml.CharData); ok {
			all = append(all, string(c))
		}
	}
}

// TestEachRowIsInThePicture, which is well-formed XML, with the machine and what the axes show.
func TestEachRowIsInThePicture(t *testing.T) {
	all := texts(t, picture1(t, results))
	for _, want := range []string{
		"A title & more",
		"Abacus <9> & more, 2 processors; load average at the start 0.25",
		"step-recv, shm, 64 KiB, 4 in flight, beside raw-tcp",
		"0.80 (0.70 to 0.90)",
		"2.50 GB/s : 3.00 GB/s",
		"missed-it, grpc, 1 MiB, beside grpc-passthrough",
		"by-noise, grpc, beside raw-tcp",
		"its-tail, grpc, 8 bytes, p99 beside its median",
		"idle-one, tcp",
		"195 KiB, woken 12.0/s",
		"waiting-keys, 700 bytes, 100000 in flight",
		"left-out, verbs, beside ucx",
		"no result",
		"rate of ours as a multiple of the baseline's rate",
		"time of ours as a multiple of the baseline's time",
		"share of one processor",
		"Without a baseline",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no text %q", want)
		}
	}
}

// TestTheSameRowsGiveTheSameBytes.
func TestTheSameRowsGiveTheSameBytes(t *testing.T) {
	first := picture1(t, results)
	for range 5 {
		if picture1(t, results) != first {
			t.Fatal("another picture")
		}
	}
}

// TestOutcomesHaveTheirColours: a mark, a target and the quartiles are there for each.
func TestOutcomesHaveTheirColours(t *testing.T) {
	line := func(ratio float64, ok bool, target float64) string {
		return fmt.Sprintf(`{"name":"a","transport":"grpc","baseline":"b","ratio":%g,"ratio_q1":0.5,"ratio_q3":2,"better":"higher","target":%g,"ok":%v}`, ratio, target, ok)
	}
	for want, text := range map[role]string{
		good: line(1.2, true, 1), near: line(0.9, true, 1), bad: line(0.6, false, 1), plain: line(1, true, 0),
	} {
		svg := picture1(t, text)
		for _, other := range []role{good, near, bad, plain} {
			// The legend has a mark of each, and plain ones more.
			marks := strings.Count(svg, `style="fill:`+hex(palette()[other].light)) - 1
			if other == want && marks != 1 || other != want && marks != 0 {
				t.Errorf("%v: %d marks of %v", want, marks, other)
			}
		}
		if n := strings.Count(svg, `stroke:`+hex(palette()[want].light)+";stroke-width:2\""); n < 1 {
			t.Errorf("%v: no quartiles", want)
		}
	}
	with, without := picture1(t, line(1.2, true, 1)), picture1(t, line(1.2, true, 0))
	mark := "stroke:" + hex(palette()[target].light) + ";stroke-width:2.5"
	if strings.Count(with, mark) != 2 || strings.Count(without, mark) != 1 {
		t.Errorf("%d and %d lines of targets", strings.Count(with, mark), strings.Count(without, mark))
	}
}

// TestMalformedLines: the error has file, line and reason.
func TestMalformedLines(t *testing.T) {
	for line, want := range map[string]string{
		`{`:                  "x.jsonl:2: the line is no row of a benchmark: unexpected end of JSON input",
		`[]`:                 "x.jsonl:2: the line is no row",
		`{"name":1}`:         "Row.name of type string",
		`{}`:                 "x.jsonl:2: the row has no name",
		`{"name":"a"}`:       `better is ""; want higher or lower`,
		`{"name":"a\u0001"}`: "cannot be drawn",
		`{"name":"` + strings.Repeat("a", 121) + `"}`:                     "at most 120",
		`{"name":"a","better":"lower","ratio":-1}`:                        "ratio is -1",
		`{"name":"a","better":"lower","ratio":1e300}`:                     "ratio is 1e+300",
		`{"name":"a","better":"lower","ratio_q1":3,"ratio_q3":1}`:         "the quartiles are 3 and 1",
		`{"name":"a","better":"lower","size":99999999999999999999999999}`: "Row.size of type int64",
	} {
		_, err := plotText("x.jsonl", "t", []byte("\n"+line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "has no rows",
		`{"name":"a","transport":"","baseline":"b","better":"lower"}`:                             "all rows are those of baselines",
		strings.Repeat(`{"name":"a","transport":"g","baseline":"b","better":"lower"}`+"\n", 1001): "more than 1000 lines",
		strings.Repeat(" ", maxFile+1):                                                            "more than results of a benchmark have",
	} {
		if _, err := plotText("x.jsonl", "t", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// sharesOfVersions are points of two curves.
const sharesOfVersions = `{"name":"versions-share-time-10%","transport":"link","baseline":"whole","ratio":0.5,"better":"lower","ok":true,"changed":0.1}
{"name":"versions-share-time-0%","transport":"link","baseline":"whole","ratio":0.01,"better":"lower","ok":true,"changed":0}
{"name":"versions-share-bytes-0%","transport":"link","baseline":"whole","ratio":0,"better":"lower","ok":true,"changed":0}
{"name":"versions-whole","transport":"tcp","baseline":"publish","ratio":1,"better":"lower","target":1.1,"ok":true}
`

// TestSharesAreCurves: rows that differ in the share of changed elements are points of one line, in their order, and not lines of
// a panel.
func TestSharesAreCurves(t *testing.T) {
	svg := picture1(t, sharesOfVersions)
	all := texts(t, svg)
	for _, want := range []string{curvesHead, curvesAxis, "versions, time, link", "versions, bytes, link", "versions-whole, tcp, beside publish"} {
		if !slices.Contains(all, want) {
			t.Errorf("no text %q", want)
		}
	}
	if !strings.Contains(svg, "versions, time, link: 0%: 0.01, 10.0%: 0.50\n") && !strings.Contains(svg, "versions, time, link: 0%: 0.01, 10.0%: 0.50&#") {
		t.Errorf("the description has no line of both points")
	}
	if strings.Contains(svg, "versions-share") {
		t.Error("a point is a line of a panel")
	}
	if picture1(t, sharesOfVersions) != svg {
		t.Error("another picture")
	}
	if _, err := plotText("x.jsonl", "t", []byte(`{"name":"a","better":"lower","changed":2}`)); err == nil || !strings.Contains(err.Error(), "changed is 2") {
		t.Error(err)
	}
}

// FuzzPlot: whatever a file has, there is a picture of well-formed XML or an error.
func FuzzPlot(f *testing.F) {
	f.Add(results)
	f.Add(sharesOfVersions)
	for line := range strings.Lines(results) {
		f.Add(line)
	}
	f.Add(`{"name":"a","transport":"g","baseline":"b","better":"lower","ratio":1e15,"ratio_q3":1e-300,"target":5e-324}`)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 10_000 {
			return
		}
		svg, err := plotText("x.jsonl", "t", []byte(text))
		if err == nil {
			texts(t, string(svg))
		}
	})
}

// TestContrast: on its own paper each colour of a text has the contrast that WCAG 2 wants of texts, 4.5, and each of a mark that
// of graphics, 3; on light and on dark pages.
func TestContrast(t *testing.T) {
	p := palette()
	for r, least := range map[role]float64{ink: 4.5, faint: 4.5, good: 3, near: 3, bad: 3, plain: 3, target: 3} {
		if c := contrast(p[r].light, p[paper].light); c < least {
			t.Errorf("light: %v has %.1f", r, c)
		}
		if c := contrast(p[r].dark, p[paper].dark); c < least {
			t.Errorf("dark: %v has %.1f", r, c)
		}
		if r != ink && r != faint { // marks lie on the band, too
			if a, b := contrast(p[r].light, p[band].light), contrast(p[r].dark, p[band].dark); a < 3 || b < 3 {
				t.Errorf("on the band %v has %.1f and %.1f", r, a, b)
			}
		}
	}
}

// contrast is the contrast ratio of WCAG 2.2.
func contrast(a, b color.RGBA) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(c color.RGBA) float64 {
	part := func(v uint8) float64 {
		s := float64(v) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	return 0.2126*part(c.R) + 0.7152*part(c.G) + 0.0722*part(c.B)
}

// TestEachColourHasADarkOne: the stylesheet has all of them, and no colour of a picture is without.
func TestEachColourHasADarkOne(t *testing.T) {
	svg := picture1(t, results)
	seen := map[string]bool{}
	for _, tone := range palette() {
		if seen[hex(tone.light)] || hex(tone.light) == "#000000" {
			t.Errorf("%s is there twice, or black", hex(tone.light))
		}
		seen[hex(tone.light)] = true
		for _, property := range []string{"fill", "stroke"} {
			if rule := fmt.Sprintf(`[style*="%s:%s"]{%s:%s!important}`, property, hex(tone.light), property, hex(tone.dark)); !strings.Contains(svg, rule) {
				t.Errorf("no rule %s", rule)
			}
		}
	}
	_, body, _ := strings.Cut(svg, "</style>")
	body = strings.ReplaceAll(body, "&#", "")
	for _, part := range strings.Split(body, "#")[1:] {
		if !seen["#"+part[:6]] {
			t.Errorf("the picture has the colour #%s", part[:6])
		}
	}
	if strings.Contains(body, "font-family") {
		t.Error("a text has letters of its own, so it is not as wide as it was measured")
	}
}

// TestCommand draws beside the lines, and --check tells when a picture is an old one.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "grpc.jsonl")
	command := func(want int, args ...string) string {
		t.Helper()
		var errs bytes.Buffer
		if got := run(args, &errs); got != want {
			t.Fatalf("%q: exit status %d, want %d: %s", args, got, want, errs.String())
		}
		return errs.String()
	}
	if err := os.WriteFile(file, []byte(results), 0o600); err != nil {
		t.Fatal(err)
	}
	command(exitFailed, "--check", file) // there is none
	command(exitDone, file)
	command(exitDone, "--check", file)
	svg, err := os.ReadFile(filepath.Join(dir, "grpc.svg"))
	if err != nil || !strings.Contains(string(svg), "<title>Receives over gRPC beside bare gRPC calls</title>") {
		t.Fatalf("%v: %.200s", err, svg)
	}
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(results, "0.8", "0.85")), 0o600); err != nil {
		t.Fatal(err)
	}
	if errs := command(exitFailed, "--check", file); !strings.Contains(errs, "draw it again") {
		t.Error(errs)
	}
	command(exitUsage)
	command(exitUsage, "--no-such")
	command(exitDone, "--help")
	if errs := command(exitFailed, filepath.Join(dir, "grpc.svg"), filepath.Join(dir, "none.jsonl")); strings.Count(errs, "\n") != 2 {
		t.Error(errs)
	}
}

// TestPicturesOfTheDocuments: each is what its rows give, and docs/performance.md or versions.md shows it, with a text for who does not see it.
func TestPicturesOfTheDocuments(t *testing.T) {
	files, err := filepath.Glob("../../docs/plots/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("%q, %v", files, err)
	}
	var errs bytes.Buffer
	if run(append([]string{"--check"}, files...), &errs) != exitDone {
		t.Error(errs.String() + "make plots draws them")
	}
	var doc []byte
	for _, name := range []string{"performance.md", "versions.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		doc = append(doc, text...)
	}
	for _, f := range files {
		name := "](plots/" + strings.TrimSuffix(filepath.Base(f), ".jsonl") + ".svg)"
		before, _, ok := strings.Cut(string(doc), name)
		if alt := before[strings.LastIndex(before, "![")+2:]; !ok || len(alt) < 20 {
			t.Errorf("no document shows %s, or without a text: %q", name, alt)
		}
	}
}

// TestFieldsAreThoseOfTheBenchmarks: internal/bench writes each that is drawn.
func TestFieldsAreThoseOfTheBenchmarks(t *testing.T) {
	source, err := os.ReadFile("../../internal/bench/row.go")
	if err != nil {
		t.Fatal(err)
	}
	for f := range reflect.TypeFor[Row]().Fields() {
		if tag := "`json:\"" + f.Tag.Get("json") + "\"`"; !strings.Contains(string(source), tag) {
			t.Errorf("bench.Row has no %s", tag)
		}
	}
}
