package command

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/fakemodel"
	"github.com/tryst-rdma/tryst/status"
)

func (s streams) genCommand() *cobra.Command {
	var (
		o    fakemodel.Options
		out  string
		json bool
	)
	var models []string
	for _, m := range fakemodel.Models() {
		models = append(models, fmt.Sprintf("%s (%s)", m.Name, byteText(float64(m.Bytes))))
	}
	cmd := &cobra.Command{
		Use:   "gen --out PATH [--model MODEL]",
		Short: "Generate a checkpoint for trials",
		Long: `Gen writes a checkpoint with the names, types and shapes of a known model. The
content is generated from a seed: the same seed gives the same bytes everywhere.

If PATH is a directory or ends in a slash, gen writes files with the usual names
into it. With several shards PATH is always a directory. Otherwise PATH is the
file.

Models: ` + strings.Join(models, ", ") + ".",
		Example: `  tryst gen --out gpt2.safetensors
  tryst gen --model gpt2-xl --shards 4 --seed 7 --out gpt2-xl/`,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkGen(out, o.Model, models); err != nil {
				return err
			}
			bar := newProgress(s.err, "gen")
			defer bar.end()
			o.Progress = bar.update
			begin := time.Now()
			made, err := fakemodel.Generate(cmd.Context(), out, o)
			if status.CodeOf(err) == status.InvalidArgument {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			took := time.Since(begin)
			if made.Unsynced != nil {
				fmt.Fprintf(s.err, "%s: %s\n", cmd.CommandPath(), printable(unsyncedText(made.Unsynced)))
			}
			if json {
				return writeJSON(s.out, struct {
					Model   string   `json:"model"`
					Seed    uint64   `json:"seed"`
					Tensors int      `json:"tensors"`
					Bytes   int64    `json:"bytes"`
					Seconds float64  `json:"seconds"`
					Files   []string `json:"files"`
				}{made.Model, o.Seed, made.Tensors, made.Bytes, took.Seconds(), made.Files})
			}
			err = writeTable(s.out,
				[]string{"MODEL", "SEED", "TENSORS", "BYTES", "TIME"},
				[]string{
					made.Model, strconv.FormatUint(o.Seed, 10), strconv.Itoa(made.Tensors),
					strconv.FormatInt(made.Bytes, 10), secondsText(took),
				})
			if err != nil {
				return err
			}
			return s.writeFiles(made.Files)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&out, "out", "", "`PATH` of the file or directory to write")
	flags.StringVar(&o.Model, "model", fakemodel.Default, "`MODEL` whose layout the checkpoint has")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the content")
	flags.IntVar(&o.Shards, "shards", 0, "number of files; 0 = as many as the original")
	flags.BoolVar(&o.Force, "force", false, "replace files that exist")
	flags.BoolVar(&json, "json", false, "write the result as one line of JSON")
	return cmd
}

// checkGen returns all that is wrong with the flags of gen. models describes the known ones.
func checkGen(out, model string, models []string) error {
	var problems []error
	if out == "" {
		problems = append(problems, usagef("--out is missing: the file or directory to write"))
	}
	if !known(model) {
		problems = append(problems, usagef("--model %q: unknown model; the models are %s", model, strings.Join(models, ", ")))
	}
	return wrongUsage(problems...)
}

func known(model string) bool {
	for _, m := range fakemodel.Models() {
		if m.Name == model {
			return true
		}
	}
	return false
}

// writeFiles lists the files that were written.
func (s streams) writeFiles(files []string) error {
	for _, f := range files {
		if _, err := fmt.Fprintln(s.out, "wrote "+printable(f)); err != nil {
			return err
		}
	}
	return nil
}
