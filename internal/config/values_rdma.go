package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maybeCount is a whole number within limits, or nothing where that is said by
// a word for it.
type maybeCount struct {
	p        **int
	min, max int
	none     string            // what the empty text means, "" when it is not taken
	refuse   func(n int) error // a word about a number outside; nil for none
}

func (v maybeCount) Type() string { return "number" }
func (v maybeCount) check() error { return v.checkText(v.String()) }

func (v maybeCount) String() string {
	if *v.p == nil {
		return ""
	}
	return strconv.Itoa(**v.p)
}

func (v maybeCount) limits() string {
	s := fmt.Sprintf("%d to %d", v.min, v.max)
	if v.none != "" {
		s += ", " + v.none
	}
	return s
}

func (v maybeCount) Set(s string) error {
	if err := v.checkText(s); err != nil {
		return err
	}
	*v.p = nil
	if n, err := strconv.Atoi(s); err == nil {
		*v.p = &n
	}
	return nil
}

func (v maybeCount) checkText(s string) error {
	if s == "" && v.none != "" {
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return errors.New("want a whole number, " + v.limits())
	}
	if v.refuse != nil {
		if err := v.refuse(n); err != nil {
			return err
		}
	}
	return within(v, n < v.min || n > v.max)
}

// trafficClass is a byte whose two low bits are not both set.
type trafficClass struct{ count }

func (v trafficClass) limits() string { return v.count.limits() + ", 3 not in the two low bits" }
func (v trafficClass) check() error   { return errors.Join(v.count.check(), unmarked(*v.p)) }

func (v trafficClass) Set(s string) error {
	n := 0
	if err := (count{&n, v.min, v.max}).Set(s); err != nil {
		return err
	}
	if err := unmarked(n); err != nil {
		return err
	}
	*v.p = n
	return nil
}

// unmarked refuses packets that are sent as if a switch had marked them: each would
// slow down its own sender.
func unmarked(class int) error {
	if class&3 == 3 {
		return errors.New("3 in the two low bits is the mark of a switch whose queue is long (RFC 3168); want 0, 1 or 2 there: the upper six bits are the DSCP")
	}
	return nil
}

// noRetryForEver says why 7, which the specification allows, is refused.
func noRetryForEver(n int) error {
	if n == 7 {
		return errors.New("Soft-RoCE takes 7 for \"for ever\", so a dead peer would never be noticed; want 0 to 6")
	}
	return nil
}

// oneOf is one of a few numbers.
type oneOf struct {
	p     *int
	known []int
}

func (v oneOf) String() string { return strconv.Itoa(*v.p) }
func (v oneOf) Type() string   { return "number" }
func (v oneOf) check() error   { return within(v, !slices.Contains(v.known, *v.p)) }

func (v oneOf) limits() string {
	words := make([]string, len(v.known))
	for i, n := range v.known {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ", ")
}

func (v oneOf) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || !slices.Contains(v.known, n) {
		return errors.New("want one of " + v.limits())
	}
	*v.p = n
	return nil
}
