package config

import (
	"reflect"

	"github.com/tryst-rdma/tryst/cluster"
)

// Fields are the fields of structs, by the key of the setting that each one has. The tag of a field
// is the key:
//
//	MTU int `setting:"rdma.mtu"`
type Fields map[string]field

type field struct {
	path string // such as Config.RDMA.MTU
	of   reflect.Value
	value
}

// Bind returns the fields of structs, which are given by pointers. A change through Fields changes them.
func Bind(structs ...any) Fields {
	f := make(Fields, len(settings))
	for _, s := range structs {
		of := reflect.ValueOf(s).Elem()
		path := of.Type().Name()
		if path != "" {
			path += "."
		}
		f.bind(path, of)
	}
	return f
}

func (f Fields) bind(path string, of reflect.Value) {
	for member, v := range of.Fields() {
		key, tagged := member.Tag.Lookup("setting")
		switch s, known := byKey(key); {
		case known:
			f[key] = field{path + member.Name, v, s.value(v.Addr().Interface())}
		case tagged:
			panic("config: the field " + path + member.Name + " names no setting: " + key) //nolint:forbidigo // a mistake in a tag
		case v.Kind() == reflect.Struct:
			f.bind(path+member.Name+".", v)
		}
	}
}

// Path returns the field of a setting with its struct, such as Config.RDMA.MTU; "" if there is none.
func (f Fields) Path(key string) string { return f[key].path }

// Text returns the value of a setting in the form of a flag; "" if there is no field.
func (f Fields) Text(key string) string {
	if v, ok := f[key]; ok {
		return v.String()
	}
	return ""
}

// SetText sets a setting to the text of a source. The error says what to write instead; then the field is
// unchanged.
func (f Fields) SetText(key, text string) error { return f[key].Set(text) }

// Set returns the keys of the settings that do not have their zero value.
func (f Fields) Set() map[string]bool {
	set := make(map[string]bool)
	for key := range f {
		if f.IsSet(key) {
			set[key] = true
		}
	}
	return set
}

// IsSet reports whether a field does not have its zero value, which stands for the default.
func (f Fields) IsSet(key string) bool {
	v, ok := f[key]
	return ok && !v.of.IsZero() && (v.of.Kind() != reflect.Map || v.of.Len() > 0)
}

// Reset gives a field its default.
func (f Fields) Reset(key string) {
	s, _ := byKey(key)
	if f[key].of.SetZero(); s.Default != "" {
		mustSet(f[key].value, s.Default)
	}
}

// Clear gives a field its zero value.
func (f Fields) Clear(key string) {
	if v, ok := f[key]; ok {
		v.of.SetZero()
	}
}

// FillDefaults sets each field with its zero value to its default. The default of listen in a cluster is
// the address of task; inCluster reports whether it was taken.
func (f Fields) FillDefaults() (inCluster bool) {
	listens := f.IsSet(ListenKey)
	for key := range f {
		if !f.IsSet(key) {
			f.Reset(key)
		}
	}
	return !listens && f.TakeOwnAddress()
}

// TakeOwnAddress sets listen to the address of task in cluster, which the other tasks dial. Without such an
// address listen stays, and the result is false.
func (f Fields) TakeOwnAddress() bool {
	spec, task := f.Spec(), f.Self()
	address, ok := spec.Address(task)
	if _, set := f[ListenKey]; !ok || !set || !hasPort(address) { // a name for a resolver of the site has no port
		return false
	}
	f[ListenKey].of.SetString(address)
	return true
}

// Restrict gives their zero value to the fields without an effect in processes of the given use.
func (f Fields) Restrict(use Use) {
	for _, key := range f.WithoutEffect(use) {
		f.Clear(key)
	}
}

// WithoutEffect returns the keys of the settings that do not have their zero value, and have no
// effect in processes of the given use.
func (f Fields) WithoutEffect(use Use) (keys []string) {
	for _, s := range settings {
		if s.Use&use == 0 && f.IsSet(s.Key) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// Spec returns the cluster; nil without one.
func (f Fields) Spec() *cluster.Spec {
	spec, err := cluster.ParseSpec(f.Text(ClusterKey))
	if err != nil {
		return nil
	}
	return spec
}

// Self returns the name of this process; zero if it is not valid.
func (f Fields) Self() cluster.Task {
	t, err := cluster.ParseTask(f.Text(TaskKey))
	if err != nil {
		return cluster.Task{}
	}
	return t
}

// ChangedSetting is a setting with its value in the form of a flag.
type ChangedSetting struct{ Key, Text string }

// Changed returns the settings whose value is not the default, in the order of docs/settings.md.
func (f Fields) Changed() (changed []ChangedSetting) {
	for _, s := range settings {
		if f.IsSet(s.Key) && f.Text(s.Key) != s.Default {
			changed = append(changed, ChangedSetting{s.Key, f.Text(s.Key)})
		}
	}
	return changed
}
