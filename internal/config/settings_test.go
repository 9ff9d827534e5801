package config

import (
	"log/slog"
	"regexp"
	"testing"
	"time"
)

// TestTable holds the table's rules: the names are of one form, no two
// settings share one, and every default is a value that the setting takes.
func TestTable(t *testing.T) {
	form := regexp.MustCompile(`^[a-z]+(-[a-z]+)*(\.[a-z]+(-[a-z]+)*)?$`)
	names := make(map[string]string)
	for _, s := range Settings() {
		if !form.MatchString(s.Key) {
			t.Errorf("key %q: want words of small letters, parted by dashes, with one dot at most", s.Key)
		}
		for _, name := range []string{s.Flag(), s.Env()} {
			if other, taken := names[name]; taken {
				t.Errorf("%s and %s are both called %s", other, s.Key, name)
			}
			names[name] = s.Key
		}
		if s.Use == 0 || s.Help == "" || s.Type() == "" {
			t.Errorf("%s: something is missing: %+v", s.Key, s)
		}
		v := fresh(t, s)
		if s.Default == "" {
			if v.String() != "" {
				t.Errorf("%s: the default is empty and the zero value %q is not", s.Key, v)
			}
			continue
		}
		if err := v.Set(s.Default); err != nil {
			t.Errorf("%s: default %q: %v", s.Key, s.Default, err)
		}
		if v.String() != s.Default {
			t.Errorf("%s: default %q reads back as %q", s.Key, s.Default, v)
		}
	}
}

// fresh returns a value of a setting, with a field of its own that has its zero value.
func fresh(t *testing.T, s Setting) value {
	t.Helper()
	switch s.value(nil).(type) {
	case anyText, choice, address, providerText, task, maybeTask:
		return s.value(new(string))
	case boolean:
		return s.value(new(bool))
	case count, oneOf, trafficClass:
		return s.value(new(int))
	case size:
		return s.value(new(int64))
	case duration, maybeDuration:
		return s.value(new(time.Duration))
	case maybeCount:
		return s.value(new(*int))
	case ratio:
		return s.value(new(float64))
	case level:
		return s.value(new(slog.Level))
	case spec:
		return s.value(new(map[string][]string))
	}
	t.Fatalf("%s: an unknown kind", s.Key)
	return nil
}

func TestFillDefaultsKeepsWhatIsSet(t *testing.T) {
	c := struct {
		Listen  string `setting:"listen"`
		Waiting struct {
			Most  int   `setting:"max-waiting"`
			Bytes int64 `setting:"max-waiting-bytes"`
		}
		Retry *int `setting:"rdma.retry"`
		Other int
	}{Listen: ":0"}
	c.Waiting.Most = 7
	f := Bind(&c)
	if f.FillDefaults(); c.Listen != ":0" || c.Waiting.Most != 7 || c.Waiting.Bytes != 256*mib || *c.Retry != 6 || c.Other != 0 {
		t.Errorf("%+v", c)
	}
	if f.Path("max-waiting") != "Waiting.Most" || f.Path("task") != "" {
		t.Errorf("the fields are %q and %q", f.Path("max-waiting"), f.Path("task"))
	}
	if f.Restrict(ForClient); f.IsSet("listen") || !f.IsSet("rdma.retry") {
		t.Errorf("of a client: %+v", c)
	}
}
