package command

import (
	"context"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
)

func (s streams) keysCommand() *cobra.Command {
	var (
		from          serverFlags
		tensors, json bool
	)
	cmd := &cobra.Command{
		Use:   "keys --from HOST[:PORT]|TASK [--tensors] [NAME]",
		Short: "List the publications of a server",
		Long: `Keys lists the publications of a server. With a NAME or --tensors it lists the
tensors of one publication. NAME may be omitted if the server has only one.`,
		Example: `  tryst keys --from 10.0.0.1:2222
  tryst keys --from 10.0.0.1:2222 --json gpt2`,
		DisableFlagsInUseLine: true,
		Args:                  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return from.with(cmd, s, s.err, func(ctx context.Context, c *server.Client) error {
				p := c.Puller()
				if tensors || len(args) > 0 {
					m, err := p.Describe(ctx, firstOf(args), "")
					if err != nil {
						return err
					}
					return s.writeTensors(m, json)
				}
				all, err := p.List(ctx)
				if err != nil {
					return err
				}
				return s.writePublications(all, json)
			})
		},
	}
	from.register(cmd, keysTimeout)
	cmd.Flags().BoolVar(&tensors, "tensors", false, "list the tensors of the publication")
	cmd.Flags().BoolVar(&json, "json", false, "write one line of JSON for each publication or tensor")
	return cmd
}

func (s streams) writePublications(all []checkpoint.Publication, json bool) error {
	rows := [][]string{{"NAME", "VERSION", "TENSORS", "BYTES", "PUBLISHED"}}
	for _, p := range all {
		published := p.Published.UTC().Format(time.RFC3339)
		if json {
			err := writeJSON(s.out, struct {
				Publication string `json:"publication"`
				Version     string `json:"version"`
				Tensors     int    `json:"tensors"`
				Bytes       int64  `json:"bytes"`
				Published   string `json:"published"`
			}{p.Name, p.Version, p.Tensors, p.Bytes, published})
			if err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{p.Name, p.Version, strconv.Itoa(p.Tensors), strconv.FormatInt(p.Bytes, 10), published})
	}
	if json {
		return nil
	}
	return writeTable(s.out, rows...)
}

func (s streams) writeTensors(m *checkpoint.Manifest, json bool) error {
	rows := [][]string{{"NAME", "DTYPE", "SHAPE", "BYTES", "DIGEST"}}
	for _, e := range m.Entries {
		dtype, shape := e.Elements()
		digest := m.Algorithm + ":" + hex.EncodeToString(e.Digest)
		if json {
			err := writeJSON(s.out, struct {
				Name   string  `json:"name"`
				DType  string  `json:"dtype"`
				Shape  []int64 `json:"shape"`
				Bytes  int64   `json:"bytes"`
				Digest string  `json:"digest"`
			}{e.Name, dtype, append([]int64{}, shape.Dims()...), e.Bytes, digest})
			if err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []string{e.Name, dtype, shape.String(), strconv.FormatInt(e.Bytes, 10), digest})
	}
	if json {
		return nil
	}
	return writeTable(s.out, rows...)
}
