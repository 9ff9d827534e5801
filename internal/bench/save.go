package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/tryst-rdma/tryst/internal/bench/plot"
	"github.com/tryst-rdma/tryst/status"
)

// Save writes the rows into NAME.jsonl in dir, one object a line, one file for
// each group of benchmarks, and returns the paths. A file of an earlier run is replaced.
func Save(dir string, rows []Row) ([]string, error) {
	files := make(map[string]*bytes.Buffer)
	for _, r := range rows {
		if files[r.file] == nil {
			files[r.file] = new(bytes.Buffer)
		}
		if err := json.NewEncoder(files[r.file]).Encode(r); err != nil {
			return nil, status.Errorf(status.Internal, "row %s: %w", r.Name, err)
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, status.Errorf(status.Unavailable, "cannot make the directory of the results: %w", err)
	}
	var paths []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name+".jsonl")
		if err := os.WriteFile(path, files[name].Bytes(), 0o644); err != nil {
			return nil, status.Errorf(status.Unavailable, "cannot save the results: %w", err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// Results is where the rows of a command go besides its output.
type Results struct {
	Dir  string // of the files of JSON lines; "" for none
	Plot bool   // also draw a picture of each
}

// Validate tells what is wrong.
func (s Results) Validate() error {
	if s.Plot && s.Dir == "" {
		return status.New(status.InvalidArgument, "--plot draws pictures beside the files of rows: set --json-dir")
	}
	return nil
}

// Save writes the rows, and draws them. Those of a run that was interrupted are kept, too: its end does not end this.
func (s Results) Save(ctx context.Context, rows []Row) error {
	if s.Dir == "" || len(rows) == 0 {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), plotTimeout)
	defer stop()
	paths, err := Save(s.Dir, rows)
	if err != nil || !s.Plot {
		return err
	}
	return plot.Draw(ctx, paths...)
}
