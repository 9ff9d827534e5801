package command

import (
	"testing"
	"time"
)

// moved updates a meter every 200 ms with a rate, for a time, and returns the time left at each
// update.
func moved(m *meter, now *time.Time, done *int64, total int64, perSecond float64, for_ time.Duration) (left []time.Duration) {
	const every = 200 * time.Millisecond
	for end := now.Add(for_); now.Before(end); {
		*now = now.Add(every)
		*done += int64(perSecond * every.Seconds())
		m.update(*now, *done)
		if d, ok := m.left(total - *done); ok {
			left = append(left, d)
		}
	}
	return left
}

// TestTimeLeftIsAveraged: a second without progress, as while a large tensor comes, hardly changes
// the time left, and a lasting change of the rate is followed.
func TestTimeLeftIsAveraged(t *testing.T) {
	const total = 10_000_000_000
	var m meter
	now, done := time.Unix(0, 0), int64(0)
	m.update(now, 0)
	moved(&m, &now, &done, total, 100e6, 20*time.Second)
	before, _ := m.left(total - done)
	if want := 80 * time.Second; before < want-time.Second || before > want+time.Second {
		t.Errorf("%v left at 100 MB/s, want %v", before, want)
	}
	for _, d := range moved(&m, &now, &done, total, 0, time.Second) {
		if d > before*5/4 {
			t.Errorf("%v left in a pause of a second, before it %v", d, before)
		}
	}
	moved(&m, &now, &done, total, 10e6, 30*time.Second)
	if rate, _ := m.rate(); rate < 10e6 || rate > 16e6 {
		t.Errorf("half a minute after the rate fell to 10 MB/s it is shown as %.0f", rate)
	}
}

// TestTimeLeftIsBounded: there is none before a second has passed, and a pull that stands still
// has at most 99 hours.
func TestTimeLeftIsBounded(t *testing.T) {
	var m meter
	now, done := time.Unix(0, 0), int64(5_000_000) // from an earlier pull
	m.update(now, done)
	if left := moved(&m, &now, &done, 1e9, 1e9, 800*time.Millisecond); left != nil {
		t.Errorf("%v left after less than a second", left)
	}
	for _, d := range moved(&m, &now, &done, 1e18, 0, time.Hour) {
		if d > maxLeft {
			t.Fatalf("%v left", d)
		}
	}
	if d, ok := m.left(1e18); !ok || leftText(d) != "more than 99h left" {
		t.Errorf("%v left", d)
	}
	m = meter{}
	m.update(now, done)
	moved(&m, &now, &done, 1e9, 0, 2*time.Second) // nothing has come
	if d, ok := m.left(1e9); ok {
		t.Errorf("%v left at a rate of 0 that was watched for 2 s", d)
	}
	moved(&m, &now, &done, 1e9, 0, time.Hour)
	if d, ok := m.left(1e9); !ok || d != maxLeft {
		t.Errorf("%v left at a rate of 0 that was watched for an hour", d)
	}
}

// TestMeanLeavesOutEarlierPulls: what was there at the first update took no time.
func TestMeanLeavesOutEarlierPulls(t *testing.T) {
	var m meter
	now := time.Unix(0, 0)
	m.update(now, 900)
	if rate, ok := m.mean(now.Add(2*time.Second), 1000); !ok || rate != 50 {
		t.Errorf("mean %v", rate)
	}
}

func TestLeftText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		400 * time.Millisecond: "0s left", 9 * time.Second: "9s left", 250 * time.Second: "4m10s left",
		time.Hour: "1h0m left", 80*time.Minute + 3*time.Second: "1h20m left", maxLeft: "more than 99h left",
	} {
		if got := leftText(d); got != want {
			t.Errorf("leftText(%v) = %q, want %q", d, got, want)
		}
	}
}
