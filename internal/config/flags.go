package config

import (
	"slices"

	"github.com/spf13/pflag"
)

// RegisterFlags adds the flags of the settings that matter to a use. A flag
// takes any text; [Load] judges it, with all else.
func RegisterFlags(fs *pflag.FlagSet, use Use) {
	for _, s := range settings {
		if s.Use&use == 0 {
			continue
		}
		help := s.Help
		if limits := s.Limits(); limits != "" {
			help += " [" + limits + "]"
		}
		if s.Default == "0" { // pflag tells no default that looks like none
			help += " (default 0)"
		}
		f := fs.VarPF(&rawFlag{text: s.Default, kind: s.Type()}, s.Flag(), "", help)
		if s.Type() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// rawFlag keeps a flag's text for Load.
type rawFlag struct{ text, kind string }

func (f *rawFlag) String() string     { return f.text }
func (f *rawFlag) Type() string       { return f.kind }
func (f *rawFlag) Set(s string) error { f.text = s; return nil }

// flagValue gives koanf the setting of a flag; "" for a flag that is none.
func flagValue(f *pflag.Flag) (string, any) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Flag() == f.Name })
	if _, ours := f.Value.(*rawFlag); i < 0 || !ours {
		return "", nil
	}
	return settings[i].Key, given{f.Value.String(), Source{Kind: FromFlag, Name: "--" + f.Name}}
}
