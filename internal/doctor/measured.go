package doctor

import (
	"fmt"
	"io"
	"time"

	"github.com/tryst-rdma/tryst/internal/console"
)

// WriteMeasured writes a table of what was measured of each route to each peer: one unit for each
// column. It writes nothing when no peer was reached.
func WriteMeasured(w io.Writer, f Facts) error {
	rows := [][]string{{"PEER", "ROUTE", "DEVICE", "ROUND TRIP µs", "P99 µs", "LOSS %", "MB/s"}}
	for _, p := range f.Peers {
		rows = append(rows, measuredRow(p.Task, "grpc", p.GRPC)...)
		for _, o := range p.Fixed {
			rows = append(rows, measuredRow(p.Task, o.Provider, o.Reached)...)
		}
		if p.Verbs != nil {
			rows = append(rows, measuredRow(p.Task, "rdma", *p.Verbs)...)
		}
	}
	if len(rows) == 1 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return console.Table{Width: console.Width(w)}.Write(w, rows...)
}

// measuredRow is the row of a route; none if it was not reached, since a line of the report says why.
func measuredRow(peer, route string, r Reached) [][]string {
	if r.Err != nil {
		return nil
	}
	row := []string{printable(peer), route, "-", "-", "-", "-", "-"}
	if m := r.Path; m != nil {
		if m.Device != "" {
			row[2] = printable(m.Device)
		}
		row[3], row[4] = micros(m.Median), micros(m.P99)
		if m.Sent > 0 {
			row[5] = fmt.Sprintf("%.2f", 100*m.Loss())
		}
	}
	if r.Rate > 0 {
		row[6] = fmt.Sprintf("%.0f", r.Rate/1e6)
	}
	return [][]string{row}
}

func micros(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d)/1e3) }
