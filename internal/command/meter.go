package command

import (
	"math"
	"time"
)

const (
	// meterSpan is the time over which a rate is averaged: long enough that one large tensor
	// or a short stall does not make the time left jump.
	meterSpan = 10 * time.Second
	// meterEvery is the least time between two samples of a rate.
	meterEvery = 200 * time.Millisecond
	// meterFirst is how long progress is watched before there is a rate.
	meterFirst = time.Second
	// leftFactor bounds the time left that is shown by the time watched: in its first second a pull of minutes has a
	// few packets, whose rate says hours.
	leftFactor = 100
	// maxLeft bounds the time left that is shown. A rate near zero says nothing about days.
	maxLeft = 99 * time.Hour
)

// meter measures the rate of a progress: an average in which the last meterSpan counts
// most. The zero meter is ready; times must not go back.
type meter struct {
	begin, last time.Time
	first, done int64   // bytes at begin and last
	sum, weight float64 // of the rates, in bytes per second, and of what they count
}

// update takes the number of bytes that are complete now.
func (m *meter) update(now time.Time, done int64) {
	if m.begin.IsZero() {
		m.begin, m.last, m.first, m.done = now, now, done, done
		return
	}
	took := now.Sub(m.last)
	if took < meterEvery {
		return
	}
	keep := math.Exp(-took.Seconds() / meterSpan.Seconds())
	m.sum = m.sum*keep + float64(done-m.done)/took.Seconds()*(1-keep)
	m.weight = m.weight*keep + 1 - keep
	m.last, m.done = now, done
}

// skip says that n of the bytes were complete before the first update. They do not count.
func (m *meter) skip(n int64) {
	m.first += n
	m.done += n
}

// rate returns the bytes per second; ok is false when there is no rate yet.
func (m *meter) rate() (perSecond float64, ok bool) {
	if m.weight == 0 || m.last.Sub(m.begin) < meterFirst {
		return 0, false
	}
	return max(0, m.sum/m.weight), true
}

// mean returns the bytes per second since the first update.
func (m *meter) mean(now time.Time, done int64) (perSecond float64, ok bool) {
	took := now.Sub(m.begin)
	if m.begin.IsZero() || took <= 0 {
		return 0, false
	}
	return float64(done-m.first) / took.Seconds(), true
}

// left returns how long so many bytes take; ok is false when there is no rate yet, and when it was watched for
// less than a leftFactor of that time. More than maxLeft is maxLeft.
func (m *meter) left(bytes int64) (left time.Duration, ok bool) {
	rate, ok := m.rate()
	if !ok {
		return 0, false
	}
	left = maxLeft
	if float64(bytes) < rate*maxLeft.Seconds() {
		left = time.Duration(float64(bytes) / rate * float64(time.Second))
	}
	return left, left <= leftFactor*m.last.Sub(m.begin)
}

// leftText formats a time left: "7s left", "1h20m left", "more than 99h left".
func leftText(d time.Duration) string {
	switch {
	case d >= maxLeft:
		return "more than 99h left"
	case d >= time.Hour:
		d = d.Round(time.Minute)
		return d.String()[:len(d.String())-len("0s")] + " left"
	}
	return d.Round(time.Second).String() + " left"
}
