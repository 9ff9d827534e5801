package config

import (
	"regexp"
	"testing"
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
		var c Config
		v := s.value(&c)
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

func TestFillDefaultsKeepsWhatIsSet(t *testing.T) {
	c := Config{Listen: ":0", MaxWaiting: 7}
	c.FillDefaults()
	want := Default()
	want.Listen, want.MaxWaiting = ":0", 7
	for _, s := range settings {
		if got, want := s.value(&c).String(), s.value(&want).String(); got != want {
			t.Errorf("%s: got %q, want %q", s.Key, got, want)
		}
	}
}
