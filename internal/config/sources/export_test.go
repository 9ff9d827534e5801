package sources

import (
	"slices"

	"github.com/tryst-rdma/tryst/internal/config"
)

// Short names for the tests.
type (
	Setting    = config.Setting
	Source     = config.Source
	SourceKind = config.SourceKind
	Use        = config.Use
)

const (
	FromDefault    = config.FromDefault
	FromTFConfig   = config.FromTFConfig
	FromTensorFlow = config.FromTensorFlow
	FromFile       = config.FromFile
	FromEnv        = config.FromEnv
	FromFlag       = config.FromFlag
	ForServer      = config.ForServer
	ForClient      = config.ForClient
	both           = config.ForServer | config.ForClient
)

func byKey(key string) Setting {
	all := config.Settings()
	return all[slices.IndexFunc(all, func(s Setting) bool { return s.Key == key })]
}
