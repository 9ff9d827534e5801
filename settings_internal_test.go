package tryst

import (
	"reflect"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
)

// ofTheCommand are the settings without an effect in Serve and Dial.
var ofTheCommand = map[string]bool{
	"config": true, "kernels": true, "log.level": true, "log.format": true, "otel.endpoint": true, "otel.sample-ratio": true, "otel.insecure": true,
}

// Every setting has a field that gives it, except those of the command alone.
func TestEverySettingHasAField(t *testing.T) {
	used := map[string]bool{}
	for _, s := range config.Settings() {
		path, ok := fields[s.Key]
		if ok == ofTheCommand[s.Key] {
			t.Errorf("setting %s: the field is %q, of the command alone: %v", s.Key, path, ofTheCommand[s.Key])
		}
		if !ok {
			continue
		}
		used[path] = true
		name := strings.NewReplacer(".", "", "-", "", "publish", "").Replace(s.Key)
		if !strings.HasSuffix(strings.ToLower(strings.ReplaceAll(path, ".", "")), name) {
			t.Errorf("setting %s has the field %s, which has another name", s.Key, path)
		}
		var c Config
		v := reflect.ValueOf(&c).Elem()
		for name := range strings.SplitSeq(path, ".") {
			if v = v.FieldByName(name); !v.IsValid() {
				t.Fatalf("setting %s: there is no field %s", s.Key, path)
			}
		}
		fill(v, s.Key)
		given, err := c.given()
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if got := given.WithoutEffect(0); len(got) != 1 || got[0] != s.Key {
			t.Errorf("%s sets %q, want %s alone", path, got, s.Key)
		}
	}
	if n := count(reflect.TypeFor[Config]()); n != len(used) {
		t.Errorf("Config has %d fields, and %d settings use them", n, len(used))
	}
}

// fill sets a field to a value that is not its zero value.
func fill(v reflect.Value, key string) {
	switch {
	case key == "cluster":
		v.Set(reflect.ValueOf(map[string][]string{"worker": {"a:1"}}))
	case v.Kind() == reflect.String:
		v.SetString("/job:a/task:0")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.ValueOf(new(3)))
	default:
		v.SetInt(7)
	}
}

// count returns the number of fields, those of structs included.
func count(typ reflect.Type) int {
	n := 0
	for f := range typ.Fields() {
		if f.Type.Kind() == reflect.Struct {
			n += count(f.Type)
		} else {
			n++
		}
	}
	return n
}

// TestErrorsNameFieldsInTheirAdvice: an importer knows no keys of the command. What an error quotes stays.
func TestErrorsNameFieldsInTheirAdvice(t *testing.T) {
	_, err := Config{TLS: TLS{Cert: "tls.ca"}}.settings(config.ForServer)
	if got, want := err.Error(), `Config.TLS.Cert "tls.ca": it requires the private key; set Config.TLS.Key, too`; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	for text, want := range map[string]string{
		"arena 3: raise arena-limit":                   "Config.RDMA.Arena 3: raise Config.RDMA.ArenaLimit",
		"x (metrics-address), or kept.total; the task": "x (Config.MetricsAddress), or Config.Limits.KeptTotal; the task",
		"tls.key /a/tls.key and tls.keys":              "Config.TLS.Key /a/tls.key and tls.keys",
	} {
		if got := withFields(text); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
