package main

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// comparison is what one line of a picture shows.
type comparison struct {
	ours Row
	its  *Row // the baseline's own row, if there is one
}

// comparisons pairs each row with that of its baseline, which precedes it.
func comparisons(rows []Row) (all []comparison) {
	var its *Row
	for i := range rows {
		r := &rows[i]
		if r.itself() {
			its = r
			continue
		}
		c := comparison{ours: *r}
		if its != nil && its.Baseline == r.Baseline && its.Name == r.Name {
			c.its = its
		}
		all, its = append(all, c), nil
	}
	return all
}

func (r *Row) itself() bool { return r.Transport == "" && r.Baseline != none && r.Baseline != "" }

// label is what a line is called.
func (c *comparison) label() string {
	r := &c.ours
	parts := []string{r.Name}
	if r.carrier() != "" && !strings.Contains(r.Name, r.carrier()) {
		parts = append(parts, r.carrier())
	}
	if r.Size > 0 && r.Baseline != oneCore {
		parts = append(parts, sizeText(r.Size))
	}
	if r.Inflight > 1 {
		parts = append(parts, fmt.Sprint(r.Inflight, " in flight"))
	}
	switch r.Baseline {
	case none, "", oneCore:
	case ownMedian:
		parts = append(parts, "p99 beside its median")
	default:
		parts = append(parts, "beside "+r.Baseline)
	}
	return strings.Join(parts, ", ")
}

// carrier is what the bytes travel over.
func (r *Row) carrier() string {
	switch {
	case r.Transport == "local":
		return ""
	case r.Provider != "":
		return r.Provider
	}
	return r.Transport
}

// unknown stands for a figure that the rows do not have.
const unknown = "?"

// figures are those of both sides, or of one.
func (c *comparison) figures() string {
	ours := c.ours.figure()
	if c.its == nil || c.its.figure() == "" {
		return ours
	}
	return cmp.Or(ours, unknown) + " : " + c.its.figure()
}

// figure is what a row is about: a bandwidth, operations in a second, the median of one, or how often an idle process was
// woken. The tables of internal/bench show the same.
func (r *Row) figure() string {
	switch {
	case r.Baseline == oneCore && r.Seconds > 0:
		return fmt.Sprintf("%s, woken %.1f/s", sizeText(r.Size), float64(r.Count)/r.Seconds)
	case r.GBytesPerSecond > 0:
		return significant(r.GBytesPerSecond) + " GB/s"
	case r.Better == higher && r.Seconds > 0 && r.Count > 0:
		return rateText(float64(r.Count)/r.Seconds) + "/s"
	case r.P50 > 0:
		return timeText(r.P50)
	}
	return ""
}

// ratio is the median with its quartiles.
func (c *comparison) ratio() string {
	r := &c.ours
	if r.Ratio == 0 && !r.OK {
		return "no result"
	}
	if r.Ratio == 0 {
		return ""
	}
	if r.RatioQ1 == r.RatioQ3 { // measured once
		return significant(r.Ratio)
	}
	return fmt.Sprintf("%s (%s to %s)", significant(r.Ratio), significant(r.RatioQ1), significant(r.RatioQ3))
}

// outcome is how a row did, which a mark of its own shows.
type outcome int

const (
	reported outcome = iota // without a target
	met
	noise // missed by no more than the baseline is from itself
	missed
)

func (r *Row) outcome() outcome {
	switch {
	case !r.OK:
		return missed
	case r.Target == 0:
		return reported
	case r.Better == higher && r.Ratio < r.Target, r.Better == lower && r.Ratio > r.Target:
		return noise
	}
	return met
}

// significant formats a number with about three digits.
func significant(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || a == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}

func rateText(v float64) string {
	switch {
	case v >= 1e6:
		return significant(v/1e6) + " M"
	case v >= 1e4:
		return significant(v/1e3) + " k"
	}
	return significant(v)
}

// timeText formats microseconds.
func timeText(us float64) string {
	switch {
	case us >= 1e6:
		return significant(us/1e6) + " s"
	case us >= 1e3:
		return significant(us/1e3) + " ms"
	}
	return significant(us) + " us"
}

func sizeText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		switch {
		case n >= u.size && n%u.size == 0:
			return fmt.Sprint(n/u.size, " ", u.name)
		case n >= u.size:
			return significant(float64(n)/float64(u.size)) + " " + u.name
		}
	}
	return fmt.Sprint(n, " bytes")
}
