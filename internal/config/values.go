package config

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Value accesses a field as text. Set parses the text of a source; if it returns an
// error, which says what to write instead, the field is unchanged. String returns a text that Set
// accepts. Type names the kind of value. It is a pflag.Value.
type Value interface {
	String() string
	Set(string) error
	Type() string
}

// value is a Value with its limits. check checks a field that was not set by Set.
type value interface {
	Value
	limits() string
	check() error
}

// to returns p as a pointer to a T; nil if p is nil.
func to[T any](p any) *T {
	if p == nil {
		return nil
	}
	return p.(*T) //nolint:errcheck,forcetypeassert // TestBind binds all fields
}

// mustSet sets a value to a default of the table. A test checks that all defaults parse.
func mustSet(v value, text string) {
	if err := v.Set(text); err != nil {
		panic("config: default " + strconv.Quote(text) + ": " + err.Error()) //nolint:forbidigo // a mistake in the table
	}
}

// anyText is a text that is not checked here: a path, a name.
type anyText struct {
	p    *string
	kind string
}

func (v anyText) String() string     { return *v.p }
func (v anyText) Type() string       { return v.kind }
func (v anyText) limits() string     { return "" }
func (v anyText) Set(s string) error { return setChecked(v.p, s, v.checkText) }
func (v anyText) check() error       { return v.checkText(*v.p) }

func (v anyText) checkText(s string) error {
	if strings.ContainsRune(s, 0) {
		return errors.New("it contains a zero byte, which is not allowed in a path or name")
	}
	return nil
}

// choice is one of a few names.
type choice struct {
	p     *string
	known []string
}

func (v choice) String() string     { return *v.p }
func (v choice) Type() string       { return "name" }
func (v choice) limits() string     { return strings.Join(v.known, ", ") }
func (v choice) Set(s string) error { return setChecked(v.p, s, v.checkText) }
func (v choice) check() error       { return v.checkText(*v.p) }

func (v choice) checkText(s string) error {
	if !slices.Contains(v.known, s) {
		return fmt.Errorf("unknown; want one of %s", v.limits())
	}
	return nil
}

// address is HOST:PORT, or empty if it is optional.
type address struct {
	p        *string
	optional bool
}

func (v address) String() string     { return *v.p }
func (v address) Type() string       { return "host:port" }
func (v address) Set(s string) error { return setChecked(v.p, s, v.checkText) }
func (v address) check() error       { return v.checkText(*v.p) }

func (v address) limits() string {
	if v.optional {
		return "empty = off"
	}
	return ""
}

func (v address) checkText(s string) error {
	if s == "" && v.optional {
		return nil
	}
	if strings.HasPrefix(s, "/") { // valid in cluster specs, for resolvers, but not for listening
		return errors.New("want HOST:PORT")
	}
	return Reason(cluster.ValidateHostPort(s), s)
}

// setChecked sets *p to s unless check refuses it.
func setChecked(p *string, s string, check func(string) error) error {
	err := check(s)
	if err == nil {
		*p = s
	}
	return err
}

// boolean is true or false.
type boolean struct{ p *bool }

func (v boolean) String() string { return strconv.FormatBool(*v.p) }
func (v boolean) Type() string   { return "bool" }
func (v boolean) limits() string { return "" }
func (v boolean) check() error   { return nil }

func (v boolean) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("want true or false")
	}
	*v.p = b
	return nil
}

// count is a whole number within limits.
type count struct {
	p        *int
	min, max int
}

func (v count) String() string { return strconv.Itoa(*v.p) }
func (v count) Type() string   { return "number" }
func (v count) limits() string { return fmt.Sprintf("%d to %d", v.min, v.max) }
func (v count) check() error   { return v.within(*v.p) }

func (v count) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return errors.New("want a whole number, " + v.limits())
	}
	if err := v.within(n); err != nil {
		return err
	}
	*v.p = n
	return nil
}

func (v count) within(n int) error { return within(v, n < v.min || n > v.max) }

// size is a number of bytes within limits.
type size struct {
	p        *int64
	min, max int64
}

func (v size) String() string { return FormatSize(*v.p) }
func (v size) Type() string   { return "size" }
func (v size) limits() string { return FormatSize(v.min) + " to " + FormatSize(v.max) }
func (v size) check() error   { return v.within(*v.p) }

func (v size) Set(s string) error {
	n, err := ParseSize(s)
	if err != nil {
		return err
	}
	if err := v.within(n); err != nil {
		return err
	}
	*v.p = n
	return nil
}

func (v size) within(n int64) error { return within(v, n < v.min || n > v.max) }

// duration is a Go duration within limits.
type duration struct {
	p        *time.Duration
	min, max time.Duration
}

func (v duration) String() string { return formatDuration(*v.p) }
func (v duration) Type() string   { return "duration" }
func (v duration) limits() string { return formatDuration(v.min) + " to " + formatDuration(v.max) }
func (v duration) check() error   { return v.within(*v.p) }

func (v duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a number with a unit, ms, s, m or h: 30s")
	}
	if err := v.within(d); err != nil {
		return err
	}
	*v.p = d
	return nil
}

func (v duration) within(d time.Duration) error { return within(v, d < v.min || d > v.max) }

// maybeDuration is a duration, or 0 for a default that is chosen later.
type maybeDuration struct{ duration }

func (v maybeDuration) limits() string { return "0, " + v.duration.limits() }

func (v maybeDuration) check() error {
	if *v.p == 0 {
		return nil
	}
	return v.duration.check()
}

func (v maybeDuration) Set(s string) error {
	if d, err := time.ParseDuration(s); err == nil && d == 0 {
		*v.p = 0
		return nil
	}
	return v.duration.Set(s)
}

// formatDuration is Duration.String without trailing zero parts: 1h, not
// 1h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ratio is a number above 0 and up to 1.
type ratio struct{ p *float64 }

func (v ratio) String() string { return strconv.FormatFloat(*v.p, 'g', -1, 64) }
func (v ratio) Type() string   { return "number" }
func (v ratio) limits() string { return "above 0, up to 1" }
func (v ratio) check() error   { return v.within(*v.p) }

func (v ratio) Set(s string) error {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return errors.New("want a number, " + v.limits())
	}
	if err := v.within(f); err != nil {
		return err
	}
	*v.p = f
	return nil
}

func (v ratio) within(f float64) error { return within(v, !(f > 0 && f <= 1)) } // false for NaN, too

// within returns the error of a number that is not within its limits.
func within(v value, outside bool) error {
	if outside {
		return errors.New("want " + v.limits())
	}
	return nil
}

// level is a level of log/slog.
type level struct{ p *slog.Level }

func (v level) String() string { return strings.ToLower(v.p.String()) }
func (v level) Type() string   { return "level" }
func (v level) limits() string { return "debug, info, warn, error" }
func (v level) check() error   { return nil }

func (v level) Set(s string) error {
	var l slog.Level
	known := strings.Split(v.limits(), ", ") // slog accepts more, such as INFO+2
	if err := l.UnmarshalText([]byte(s)); err != nil || !slices.Contains(known, strings.ToLower(s)) {
		return errors.New("unknown; want one of " + v.limits())
	}
	*v.p = l
	return nil
}

// task is a task's full name.
type task struct{ p *string }

func (v task) String() string { return *v.p }
func (v task) Type() string   { return "task" }
func (v task) limits() string { return "" }

func (v task) Set(s string) error {
	t, err := cluster.ParseTask(s)
	if err != nil {
		return Reason(err, s)
	}
	*v.p = t.String()
	return nil
}

func (v task) check() error {
	_, err := cluster.ParseTask(*v.p)
	return Reason(err, *v.p)
}

// maybeTask is a task that need not be given.
type maybeTask struct{ task }

func (v maybeTask) Set(s string) error {
	if s == "" {
		*v.p = ""
		return nil
	}
	return v.task.Set(s)
}

func (v maybeTask) check() error {
	if *v.p == "" {
		return nil
	}
	return v.task.check()
}

// spec is a cluster: the addresses of the tasks of each job, as [cluster.ParseLists] takes them.
type spec struct{ p *map[string][]string }

func (v spec) Type() string   { return "cluster" }
func (v spec) limits() string { return "" }

func (v spec) String() string {
	s, err := cluster.ParseLists(*v.p)
	if err != nil {
		return fmt.Sprint(*v.p) // check reports it
	}
	return s.String()
}

func (v spec) check() error {
	_, err := cluster.ParseLists(*v.p)
	return Reason(err, "")
}

func (v spec) Set(s string) error {
	parsed, err := cluster.ParseSpec(s)
	if err != nil {
		return Reason(err, s)
	}
	*v.p = nil
	if parsed.Len() > 0 {
		*v.p = parsed.Lists()
	}
	return nil
}
