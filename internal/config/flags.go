package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// RegisterFlags adds the flags of the settings that affect a use. A flag accepts any text;
// [Load] checks it together with the other sources.
func RegisterFlags(fs *pflag.FlagSet, use Use) {
	for _, s := range settings {
		if s.Use&use == 0 {
			continue
		}
		help := s.Help
		if limits := s.Limits(); limits != "" {
			help += " [" + limits + "]"
		}
		if s.Default == "0" { // pflag does not show a default of 0
			help += " (default 0)"
		}
		f := fs.VarPF(&rawFlag{text: s.Default, kind: s.Type()}, s.Flag(), "", help)
		if s.Type() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// rawFlag stores the text of a flag for Load.
type rawFlag struct{ text, kind string }

func (f *rawFlag) String() string     { return f.text }
func (f *rawFlag) Type() string       { return f.kind }
func (f *rawFlag) Set(s string) error { f.text = s; return nil }

// flagValue returns the key and value of a flag for koanf; "" for a flag that is not a setting.
func flagValue(f *pflag.Flag) (string, any) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Flag() == f.Name })
	if _, ours := f.Value.(*rawFlag); i < 0 || !ours {
		return "", nil
	}
	return settings[i].Key, given{f.Value.String(), Source{Kind: FromFlag, Name: "--" + f.Name}}
}
