package config

// Given is the value of a setting in one source. Its fields are exported for koanf, which copies
// exported fields only.
type Given struct {
	Text   string
	Source Source
}

// FromGiven returns the settings of which each is given once, by key. The errors are those of the
// values, and of the rules between settings for a use. passedOver has the names of variables that
// look like settings and are not.
func FromGiven(all map[string]Given, use Use, passedOver []string) (Config, []error) {
	var errs []error
	c := Config{sources: make(map[string]Given, len(settings)), passedOver: passedOver}
	failed := make(map[string]bool)
	for _, s := range settings {
		g, ok := all[s.Key]
		if !ok {
			g = Given{Text: s.Default}
		}
		if err := s.value(&c).Set(g.Text); err != nil {
			errs = append(errs, ValueError(g.Source, s.Key, g.Text, err))
			failed[s.Key] = true
			mustSet(s.value(&c), s.Default) // so that the rules between settings can be checked
		}
		c.sources[s.Key] = Given{s.value(&c).String(), g.Source}
	}
	if c.sources[ListenKey].Source.Kind == FromDefault && !failed[TaskKey] {
		c.takeOwnAddress(c.sources[TaskKey].Source.Kind != FromDefault)
	}
	return c, append(errs, c.broken(use, failed)...)
}
