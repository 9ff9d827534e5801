package config

// Given is the value of a setting in one source. Its fields are exported for koanf, which copies
// exported fields only.
type Given struct {
	Text   string
	Source Source
}
