// Package config defines the settings: the table of them, their defaults, and the rules for their
// values. It reads no source, so that importers of package tryst do not depend on the readers of
// flags and files, which are in package sources.
//
// A setting has one name, its key, from which its other names follow:
//
//	key           log.level             in the YAML file, nested or dotted
//	flag          --log-level           dots become dashes
//	environment   TRYST_LOG_LEVEL       upper case, dots and dashes become _
//
// [Settings] is the table of all settings. The flags, the variables, the keys of the file, the
// output of tryst config and the table in docs/settings.md are derived from it. The values are in the
// structs that [Bind] takes: server.Config, server.GraphLimits and [Own].
package config
