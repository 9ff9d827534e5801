package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Row is a line: the fields of internal/bench.Row that are drawn, with the same meaning.
type Row struct {
	Name            string  `json:"name"`
	Transport       string  `json:"transport"` // empty: the row is the baseline's own
	Provider        string  `json:"provider"`
	Size            int64   `json:"size"`
	Inflight        int     `json:"inflight"`
	Count           int64   `json:"count"`
	Seconds         float64 `json:"seconds"`
	GBytesPerSecond float64 `json:"gbytes_per_second"`
	P50             float64 `json:"p50_us"`
	Baseline        string  `json:"baseline"`
	Ratio           float64 `json:"ratio"` // 0: there is none
	RatioQ1         float64 `json:"ratio_q1"`
	RatioQ3         float64 `json:"ratio_q3"`
	Better          string  `json:"better"`
	Target          float64 `json:"target"` // 0: the row is only reported
	OK              bool    `json:"ok"`
	// Changed is the share of elements that changed, in rows that are points of a curve.
	Changed   *float64 `json:"changed,omitempty"`
	Load      float64  `json:"load"` // -1: unknown
	Processor string   `json:"processor"`
}

// The values of Better.
const (
	higher = "higher"
	lower  = "lower"
)

// The baselines that are not another program: nothing, a processor that does nothing else, and a row's own median.
const (
	none      = "none"
	oneCore   = "one-core"
	ownMedian = "own-p50"
)

// parse reads JSON lines. file is the name in errors.
func parse(file string, text []byte) (rows []Row, err error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: %d bytes are more than results of a benchmark have (%d)", file, len(text), maxFile)
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		r, err := parseRow(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number, err)
		}
		if rows = append(rows, r); len(rows) > maxRows {
			return nil, fmt.Errorf("%s: more than %d lines", file, maxRows)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s has no rows", file)
	}
	return rows, nil
}

func parseRow(line []byte) (r Row, err error) {
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("the line is no row of a benchmark: %w", err)
	}
	return r, r.check()
}

// check returns what is wrong with a row.
func (r *Row) check() error {
	if r.Name == "" {
		return errors.New("the row has no name")
	}
	for _, s := range []string{r.Name, r.Transport, r.Provider, r.Baseline, r.Processor} {
		if err := checkText(s, maxText); err != nil {
			return err
		}
	}
	if r.Better != higher && r.Better != lower {
		return fmt.Errorf("better is %q; want %s or %s", r.Better, higher, lower)
	}
	return r.checkNumbers()
}

func (r *Row) checkNumbers() error {
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"size", float64(r.Size)},
		{"inflight", float64(r.Inflight)},
		{"count", float64(r.Count)},
		{"seconds", r.Seconds},
		{"gbytes_per_second", r.GBytesPerSecond},
		{"p50_us", r.P50},
		{"ratio", r.Ratio},
		{"ratio_q1", r.RatioQ1},
		{"ratio_q3", r.RatioQ3},
		{"target", r.Target},
	} {
		if n.value < 0 || n.value > maxFigure || math.IsNaN(n.value) {
			return fmt.Errorf("%s is %g; want 0 to %g", n.name, n.value, float64(maxFigure))
		}
	}
	if c := r.Changed; c != nil && !(*c >= 0 && *c <= 1) {
		return fmt.Errorf("changed is %g; want 0 to 1", *c)
	}
	if r.RatioQ1 > r.RatioQ3 {
		return fmt.Errorf("the quartiles are %g and %g", r.RatioQ1, r.RatioQ3)
	}
	return nil
}

// checkText refuses what XML cannot have, or what no reader sees.
func checkText(s string, limit int) error {
	if n := utf8.RuneCountInString(s); n > limit {
		return fmt.Errorf("the text %q has %d characters; at most %d are drawn", string([]rune(s)[:limit]), n, limit)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		return fmt.Errorf("the text %q has characters that cannot be drawn", s)
	}
	return nil
}
