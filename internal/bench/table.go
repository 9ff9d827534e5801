package bench

import (
	"fmt"
	"io"
	"strconv"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/console"
)

// WriteTable writes the rows for people.
func WriteTable(w io.Writer, rows []Row) error {
	table := [][]string{{
		"name", "transport", "size", "in flight", "per second", "GB/s", "p50", "p90", "p99", "allocs", "beside", "ratio", "quartiles", "target", "",
	}}
	for i := range rows {
		r := &rows[i]
		table = append(table, []string{
			r.Name, r.who(), config.FormatSize(r.Size), strconv.Itoa(r.Inflight), r.perSecond(), blankZero("%.3f", r.GBytesPerSecond),
			timeText(r.P50), timeText(r.P90), timeText(r.P99), fmt.Sprintf("%.1f", r.AllocsPerOp), r.beside(),
			r.ratioText(), r.quartiles(), r.target(), r.word(),
		})
	}
	if err := (console.Table{Width: console.Width(w), AlignRight: true}).Write(w, table...); err != nil {
		return err
	}
	if len(rows) > 0 && rows[0].Load != unknownLoad {
		fmt.Fprintln(w, loadText(rows[0].Load))
	}
	return nil
}

// WriteTargets writes one row for each comparison: ours, what is beside it, and whether the
// target is met. The baselines' own rows are a column.
func WriteTargets(w io.Writer, rows []Row) error {
	table := [][]string{{"WHAT", "SIZE", "IN FLIGHT", "BESIDE", "TARGET", "OURS", "P50 P90 P99", "ITS", "P50 P90 P99", "RATIO", "QUARTILES", ""}}
	var beside *Row // the own row of a baseline, which precedes those that are beside it
	for i := range rows {
		r := &rows[i]
		if r.itself {
			beside = r
			continue
		}
		var its, itsTimes string
		if beside != nil && beside.Baseline == r.Baseline {
			its, itsTimes = beside.figure(), beside.percentiles()
		}
		table = append(table, []string{
			r.Name, config.FormatSize(r.Size), strconv.Itoa(r.Inflight), r.beside(), r.target(), r.figure(), r.percentiles(), its, itsTimes,
			r.ratioText(), r.quartiles(), r.outcome(),
		})
		beside = nil
	}
	if err := (console.Table{Width: console.Width(w)}).Write(w, table...); err != nil {
		return err
	}
	if len(rows) > 0 && rows[0].Load != unknownLoad {
		fmt.Fprintln(w, loadText(rows[0].Load))
	}
	return nil
}

// ratioText shows also small shares of a processor, or of bytes.
func (r *Row) ratioText() string {
	if r.Ratio == 0 {
		return ""
	}
	return ratioText(r.Ratio)
}

func ratioText(v float64) string {
	if v < smallRatio {
		return strconv.FormatFloat(v, 'f', 4, 64)
	}
	return decimals(v)
}

// figure is what a row is about: a bandwidth, operations in a second, the median of one, or how often
// an idle process was woken.
func (r *Row) figure() string {
	switch {
	case r.GBytesPerSecond > 0:
		return fmt.Sprintf("%.2f GB/s", r.GBytesPerSecond)
	case r.P50 == 0 && r.Seconds > 0:
		return fmt.Sprintf("woken %.1f/s", float64(r.Count)/r.Seconds)
	case r.Better == Higher && r.Seconds > 0:
		return r.perSecond() + "/s"
	}
	return timeText(r.P50)
}

// percentiles are the median, the 90th and the 99th percentile of one operation.
func (r *Row) percentiles() string {
	if r.P50 == 0 {
		return ""
	}
	return timeText(r.P50) + ", " + timeText(r.P90) + ", " + timeText(r.P99)
}

// outcome is word, spelled out.
func (r *Row) outcome() string {
	switch {
	case !r.OK:
		return "missed"
	case r.noise:
		return "met within noise"
	case r.Target != 0:
		return "met"
	}
	return "reported"
}

// who returns the subject of a row: the transport, this process, or the baseline itself.
func (r *Row) who() string {
	if r.itself {
		return r.Baseline
	}
	return r.Transport
}

func (r *Row) beside() string {
	switch {
	case r.itself:
		return "itself"
	case r.Baseline == None:
		return ""
	}
	return r.Baseline
}

func (r *Row) perSecond() string {
	if r.Seconds == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(r.Count)/r.Seconds, 'f', 0, 64)
}

func (r *Row) quartiles() string {
	if r.Ratio == 0 || r.RatioQ1 == r.RatioQ3 && (r.Baseline == OneCore || r.Baseline == OwnMedian) { // measured once
		return ""
	}
	return ratioText(r.RatioQ1) + " to " + ratioText(r.RatioQ3)
}

func (r *Row) target() string {
	switch {
	case r.Target == 0:
		return ""
	case r.Better == Lower:
		return "<= " + ratioText(r.Target)
	}
	return ">= " + ratioText(r.Target)
}

// word is the outcome.
func (r *Row) word() string {
	switch {
	case !r.OK:
		return "MISSED"
	case r.noise:
		return "noise"
	case r.Target != 0:
		return "ok"
	}
	return ""
}

// verdict says in a line what was missed.
func (r *Row) verdict() string {
	what := fmt.Sprintf("%s, %s, %d in flight", r.Name, config.FormatSize(r.Size), r.Inflight)
	switch {
	case r.Target == 0:
		return what + ": the outcome is wrong"
	case r.Better == Lower && r.Ratio <= r.Target, r.Better == Higher && r.Ratio >= r.Target:
		return fmt.Sprintf("%s: %.1f allocations an operation", what, r.AllocsPerOp)
	}
	return fmt.Sprintf("%s: %s of %s, the target is %s", what, ratioText(r.Ratio), r.Baseline, r.target())
}

func blankZero(format string, v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf(format, v)
}

// timeText writes microseconds with a fitting unit.
func timeText(us float64) string {
	switch {
	case us == 0:
		return ""
	case us < 1:
		return fmt.Sprintf("%.0f ns", us*1e3)
	case us < 1e3:
		return fmt.Sprintf("%.0f µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.1f ms", us/1e3)
	}
	return fmt.Sprintf("%.2f s", us/1e6)
}
