package bench

import (
	"strings"
	"testing"
)

// What perftest 6.06 prints.
const (
	writeTable = ` GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:02
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 1048576    100              48.50              48.22  		   0.000048
---------------------------------------------------------------------------------------
`
	latencyTable = ` #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       1000          37.79          377.83       39.28    	       45.70       	33.91  		275.79  		377.83 
`
)

func TestPerftestTable(t *testing.T) {
	for _, c := range []struct {
		out, heading string
		column       int
		want         float64
	}{
		{writeTable, "BW average[MB/sec]", 3, 48.22},
		{writeTable, "MsgRate[Mpps]", 4, 0.000048},
		{latencyTable, "t_typical[usec]", 4, 39.28},
	} {
		if got, err := perftestColumn([]byte(c.out), c.heading, c.column); err != nil || got != c.want {
			t.Errorf("%s: %v, %v, want %v", c.heading, got, err, c.want)
		}
	}
	for _, out := range []string{"", "\n", writeTable, strings.ReplaceAll(latencyTable, "39.28", "nan?"), latencyTable[:100]} {
		if got, err := perftestColumn([]byte(out), "t_typical[usec]", 4); err == nil || !strings.Contains(err.Error(), "perftest printed no") {
			t.Errorf("%q: %v, %v, want an error", out, got, err)
		}
	}
}

func TestSpreadInverse(t *testing.T) {
	if got := (spread{0.5, 1, 2}).inverse(); got != (spread{0.5, 1, 2}) {
		t.Errorf("%v", got)
	}
	if got := (spread{0.25, 0.5, 4}).inverse(); got != (spread{0.25, 2, 4}) {
		t.Errorf("%v", got)
	}
	if got := (spread{}).inverse(); got != (spread{}) {
		t.Errorf("%v", got)
	}
}
