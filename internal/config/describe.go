package config

// Entry is one setting with its value.
type Entry struct {
	// Key names the setting.
	Key string
	// Value is in the form of a flag.
	Value string
	// Source is where the value comes from.
	Source Source
}

// Describe lists all settings in the order of the table. No setting is a
// secret: keys and certificates are given by path.
func Describe(c Config) []Entry {
	entries := make([]Entry, len(settings))
	for i, s := range settings {
		entries[i] = Entry{s.Key, s.value(&c).String(), c.Source(s.Key)}
	}
	return entries
}

// Source returns the source of a setting's value. A value of listen that comes from the cluster has
// the source of the cluster. A value that no source set, or that was
// changed later, is the default or comes from the program.
func (c *Config) Source(key string) Source {
	if key == ListenKey && c.ListensInCluster() {
		return c.Source(ClusterKey)
	}
	s, _ := byKey(key)
	text := s.value(c).String()
	if set, ok := c.sources[key]; ok && set.Text == text {
		return set.Source
	}
	if text == s.Default {
		return Source{Kind: FromDefault}
	}
	return Source{Kind: FromProgram}
}
