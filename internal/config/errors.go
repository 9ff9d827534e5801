package config

import (
	"strconv"

	"github.com/tryst-rdma/tryst/status"
)

// Quote returns s in quotes, truncated to maxQuoted bytes.
func Quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "..."
	}
	return strconv.Quote(s)
}

// subject names a setting in the form of its source.
func subject(source Source, key string) string {
	switch source.Kind {
	case FromFlag, FromEnv:
		return source.Name
	case FromFile, FromTFConfig, FromTensorFlow:
		return source.Place() + ": " + key
	default:
		return key
	}
}

// ValueError is the error of one value.
func ValueError(source Source, key, text string, why error) error {
	return status.Errorf(status.InvalidArgument, "%s %s: %w", subject(source, key), Quote(text), why)
}
