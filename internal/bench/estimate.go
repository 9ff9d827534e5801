package bench

import "time"

// How long a benchmark takes beside its contests. These are estimates on two cores.
const (
	// secondTime is the start of the second process, which fills its tensors.
	secondTime = 2 * time.Second
	// waitingTime is the time for the rows about memory: 100,000 keys in this process,
	// and remoteWaitingTime the same keys at another one.
	waitingTime       = time.Second
	remoteWaitingTime = 10 * time.Second
	// manyTime is recv-many, wholeTime recv-whole: 5 GiB are filled, moved and digested.
	manyTime  = 2 * time.Second
	wholeTime = 20 * time.Second
	// membersTime is the start of the members of an all-reduce; each of gloo's imports torch.
	membersTime = 15 * time.Second
)

// estimate returns about how long a benchmark takes. It is short where one operation
// takes longer than the time for one run.
type estimate func(*suite) time.Duration

// constant is a benchmark that takes as long for all options.
func constant(d time.Duration) estimate { return func(*suite) time.Duration { return d } }

// contests is a benchmark of n contests in this process.
func contests(n int) estimate {
	return func(s *suite) time.Duration { return time.Duration(n) * s.contest().takes() }
}

// perReceive is a benchmark of n contests for each size and number in flight.
func perReceive(n int) estimate {
	return func(s *suite) time.Duration {
		return secondTime + contests(n*len(s.Sizes)*len(s.Inflight))(s)
	}
}

// perWay is a benchmark of n contests for each way to receive a small tensor.
func perWay(n int) estimate {
	return func(s *suite) time.Duration {
		polls := len(waits)
		if len(s.polls) > 0 {
			polls = len(s.polls)
		}
		return secondTime + contests(n*polls*len(smallWays))(s)
	}
}

// takes returns how long compare takes: a warm-up of each side, three runs for each pair,
// and one of each side to count allocations.
func (c contest) takes() time.Duration { return time.Duration(3*c.pairs+4) * c.time }

// takesAlone is takes for measure.
func (c contest) takesAlone() time.Duration { return time.Duration(c.pairs+2) * c.time }

// announce reports what will run and how long it will take.
func (s *suite) announce(all []benchmark) {
	var total time.Duration
	for _, b := range all {
		total += b.takes(s)
	}
	s.progress("%d %s will take about %v", len(all), plural("benchmark", len(all)), rough(total))
}

// announceNext reports which of the benchmarks runs now, and what is left with it.
func (s *suite) announceNext(all []benchmark, i int) {
	var left time.Duration
	for _, b := range all[i:] {
		left += b.takes(s)
	}
	s.say("benchmark %d of %d, about %v; about %v left in all", i+1, len(all), rough(all[i].takes(s)), rough(left))
}

func plural(word string, n int) string {
	if n != 1 {
		word += "s"
	}
	return word
}

// rough rounds an estimate to what it is good for.
func rough(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return time.Second
	case d < time.Minute:
		return d.Round(time.Second)
	}
	return d.Round(10 * time.Second)
}
