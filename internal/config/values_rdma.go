package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maybeCount is a whole number within limits, or nil for the empty text if none is set.
type maybeCount struct {
	p        **int
	min, max int
	none     string            // the meaning of the empty text; "" if it is not valid
	refuse   func(n int) error // a more specific error of an invalid number; may be nil
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

// trafficClass is a byte whose lower two bits are not both set.
type trafficClass struct{ count }

func (v trafficClass) limits() string { return v.count.limits() + ", lower two bits not 3" }
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

// unmarked refuses ECN 3 (congestion experienced): receivers would take each packet for one that
// a switch has marked, and slow down the sender.
func unmarked(class int) error {
	if class&3 == 3 {
		return errors.New("the lower two bits are 3, which means \"congestion experienced\" and is for switches (RFC 3168); want 0, 1 or 2 there: the upper six bits are the DSCP")
	}
	return nil
}

// noRetryForEver refuses 7, which the specification allows.
func noRetryForEver(n int) error {
	if n == 7 {
		return errors.New("with 7 Soft-RoCE retries forever, so a dead peer would never be detected; want 0 to 6")
	}
	return nil
}

// oneOf is one of a list of numbers.
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
