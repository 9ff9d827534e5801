package library

import (
	"os"
	"path/filepath"

	"github.com/tryst-rdma/tryst/status"
)

// directories returns the directories below which graphs may use files, as absolute paths; none unless
// Files is FilesBelow.
func (o Options) directories() ([]string, error) {
	switch {
	case o.Files != FilesBelow && len(o.Directories) == 0:
		return nil, nil
	case o.Files != FilesBelow:
		return nil, status.New(status.InvalidArgument, "library: Options.Directories is set, and Options.Files is not FilesBelow")
	case len(o.Directories) == 0 || len(o.Process) == 0:
		return nil, status.New(status.InvalidArgument, "library: FilesBelow needs Options.Directories and Options.Process")
	}
	if err := landlockReady(); err != nil {
		return nil, err
	}
	all := make([]string, len(o.Directories))
	for i, dir := range o.Directories {
		path, err := filepath.Abs(dir)
		if err != nil {
			return nil, status.Errorf(status.InvalidArgument, "--tensorflow-files %s: %v", dir, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, status.Errorf(status.FailedPrecondition, "--tensorflow-files %s: %v; make the directory first", dir, err)
		}
		if !info.IsDir() {
			return nil, status.Errorf(status.FailedPrecondition, "--tensorflow-files %s is not a directory", dir)
		}
		all[i] = path
	}
	return all, nil
}
