// Package plot draws the results of benchmarks. The program that does it, tools/plot, is a module of its own with a drawing
// library, which is so no requirement of those who import Tryst. Commands run it; the Makefile puts it beside them.
package plot

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// program is the name of tools/plot when it is built.
const program = "tryst-plot"

// Draw writes a picture, NAME.svg, beside each NAME.jsonl. tools/plot has the fields that are drawn: those of bench.Row. A file
// may have rows of other benchmarks, if they have these fields.
func Draw(ctx context.Context, files ...string) error {
	path, err := find()
	if err != nil {
		return err
	}
	return draw(ctx, path, files)
}

// find returns the program: beside this one, or on PATH.
func find() (string, error) {
	self, err := os.Executable()
	if err == nil {
		if path := filepath.Join(filepath.Dir(self), program); executable(path) {
			return path, nil
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", status.Errorf(status.FailedPrecondition, "cannot draw pictures: there is no %s beside %s or on PATH; make build/%s builds it", program, self, program)
	}
	return path, nil
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

func draw(ctx context.Context, path string, files []string) error {
	out, err := exec.CommandContext(ctx, path, append([]string{"--"}, files...)...).CombinedOutput()
	if err != nil {
		return status.Errorf(status.Internal, "cannot draw pictures: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
