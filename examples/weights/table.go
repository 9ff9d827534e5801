package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// table has what each rollout has seen.
type table struct {
	names []string
	seen  map[string][]seen
}

func newTable(names ...string) *table { return &table{names, make(map[string][]seen)} }

func (t *table) add(s seen) { t.seen[s.Rollout] = append(t.seen[s.Rollout], s) }

func (t *table) versions(name string) int { return len(t.seen[name]) }

// all reports whether each rollout has the version of this number.
func (t *table) all(number uint64) bool {
	return !slices.ContainsFunc(t.names, func(name string) bool {
		return !slices.ContainsFunc(t.seen[name], func(s seen) bool { return s.Number == number })
	})
}

func (t *table) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROLLOUT\tVERSIONS\tLAST\tMEDIAN LAG\tBYTES\tOVER")
	for _, name := range t.names {
		var (
			lags  []time.Duration
			bytes int64
			last  seen
		)
		for _, last = range t.seen[name] {
			lags = append(lags, last.Lag)
			bytes += last.Bytes
		}
		slices.Sort(lags)
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\n", name, len(lags), last.Number, milliseconds(lags[len(lags)/2]), megabytes(bytes), last.Route)
	}
	return w.Flush()
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
