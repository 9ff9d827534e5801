package bench

import (
	"slices"
	"time"
)

// versionsRow says which row of versions is made.
type versionsRow struct {
	name, route, baseline string
	target                float64
	size                  int64    // of the model, or of what a row is about
	changed               *float64 // share of the elements
}

// times adds the rows of a contest of times: that of the baseline, and ours.
func (r *versionsRun) times(w versionsRow, ours, first, second []versionSample) {
	r.compare(w, versionTime, ours, first, second)
}

// compare adds the rows of a contest of a value that should be small.
func (r *versionsRun) compare(w versionsRow, of func(versionSample) float64, ours, first, second []versionSample) {
	pairs, again := make([]float64, len(ours)), make([]float64, len(ours))
	for i := range ours {
		pairs[i], again[i] = of(ours[i])/of(second[i]), of(first[i])/of(second[i]) // they ran one after the other
	}
	own := spreadOf(again)
	its := w.row(slices.Concat(first, second), own)
	its.itself = true
	r.add(its)
	row := w.row(ours, spreadOf(pairs))
	row.Transport = w.route
	row.judge(Lower, w.target, own.deviation())
	r.add(row)
}

// value adds a row of values that are not compared in turns.
func (r *versionsRun) value(w versionsRow, values []float64, beside float64, took ...versionSample) {
	var all []float64
	for _, v := range values {
		all = append(all, v/beside)
	}
	row := w.row(took, spreadOf(all))
	row.Transport, row.Count = w.route, int64(len(values))
	row.judge(Lower, w.target, 0)
	r.add(row)
}

// row returns a row of versions that took their time.
func (w versionsRow) row(took []versionSample, ratio spread) Row {
	o := outcome{run: run{count: int64(len(took))}, ratio: ratio}
	for _, s := range took {
		o.time += s.time
		o.latencies.add(s.time, 1)
	}
	row := rowOf(w.name, &o)
	row.Inflight, row.Better, row.Baseline, row.Changed = 1, Lower, w.baseline, w.changed
	row.moved(w.size)
	return row
}

func (r *versionsRun) add(row Row) {
	row.file, row.Load, row.Processor = versionsFile, r.load, r.processor
	r.rows = append(r.rows, row)
	if r.Row != nil {
		r.Row(row)
	}
}

// durations returns samples of times.
func durations(all []time.Duration) (s []versionSample) {
	for _, d := range all {
		s = append(s, versionSample{time: d})
	}
	return s
}
