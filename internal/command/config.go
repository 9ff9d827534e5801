package command

import (
	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
)

func (s streams) configCommand() *cobra.Command {
	var json bool
	cmd := &cobra.Command{
		Use:   "config [flags]",
		Short: "Show each setting and where it comes from",
		Long: `Config shows the settings that the other commands would use. The first of these
sources that sets a value counts: flags, TRYST_ variables, the YAML file,
TF_CONFIG, the defaults.`,
		Example: `  tryst config
  TRYST_LISTEN=:2222 tryst config --config tryst.yaml --json`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// ForClient, so that settings for clients only do not fail here.
			// serve itself checks what a server needs in addition.
			cfg, err := s.load(cmd, config.ForClient)
			if err != nil {
				return err
			}
			rows := [][]string{{"SETTING", "VALUE", "SOURCE"}}
			for _, e := range cfg.Describe() {
				if json {
					err := writeJSON(s.out, struct {
						Key    string `json:"key"`
						Value  string `json:"value"`
						Source string `json:"source"`
					}{e.Key, e.Value, e.Source.String()})
					if err != nil {
						return err
					}
					continue
				}
				rows = append(rows, []string{e.Key, e.Value, e.Source.String()})
			}
			if json {
				return nil
			}
			return writeTable(s.out, rows...)
		},
	}
	cmd.Flags().BoolVar(&json, "json", false, "write one line of JSON for each setting")
	sources.RegisterFlags(cmd.Flags(), config.ForServer|config.ForClient)
	return cmd
}
