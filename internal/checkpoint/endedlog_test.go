package checkpoint

import (
	"fmt"
	"testing"
	"time"
)

// TestOneAddressDoesNotHideThePullsOfOthers: the lines about ended pulls are shared, and have a total.
func TestOneAddressDoesNotHideThePullsOfOthers(t *testing.T) {
	var l endedLog
	now, logged, left := time.Unix(1000, 0), 0, 0
	count := func(source string, pulls int) (lines int) {
		for range pulls {
			if silent, ok := l.now(source, now); ok {
				lines++
				left += silent
			}
		}
		logged += lines
		return lines
	}
	if n := count("a", 1000); n != maxEndedLinesOfSource {
		t.Errorf("%d lines for one address", n)
	}
	if n := count("b", 1); n != 1 || left != 1000-maxEndedLinesOfSource {
		t.Errorf("another address: %d lines, %d were left out", n, left)
	}
	for i := range 10_000 {
		count(fmt.Sprint(i), 1)
	}
	if logged != maxEndedLines || len(l.ofSource) > maxEndedLines {
		t.Errorf("%d lines in all, %d addresses are known", logged, len(l.ofSource))
	}
	now = now.Add(endedPause)
	if n := count("a", 1); n != 1 || left+logged != 11_002 {
		t.Errorf("a minute later: %d lines; %d were logged and %d left out", n, logged, left)
	}
}
