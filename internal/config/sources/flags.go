package sources

import (
	"slices"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/config"
)

// RegisterFlags adds the flags of the settings that affect a use. A flag accepts any text;
// [Load] checks it together with the other sources.
func RegisterFlags(fs *pflag.FlagSet, use config.Use) {
	for _, s := range config.Settings() {
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
	all := config.Settings()
	i := slices.IndexFunc(all, func(s config.Setting) bool { return s.Flag() == f.Name })
	if _, ours := f.Value.(*rawFlag); i < 0 || !ours {
		return "", nil
	}
	return all[i].Key, config.Given{Text: f.Value.String(), Source: config.Source{Kind: config.FromFlag, Name: "--" + f.Name}}
}
