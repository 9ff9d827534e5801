package ops

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops/internal/bundle"
)

// files are the directories below which graphs may read and write checkpoints. Paths come from anybody who reaches
// the port: os.Root keeps each below its directory, whatever links there are.
type files struct {
	directories []directory
	// running has a token for each kernel that uses files.
	running chan struct{}
}

// directory is one of the directories, open.
type directory struct {
	root *os.Root
	// names are absolute paths of the directory, in components: as it was given, and without links.
	names [][]string
}

// AllowFiles lets graphs read and write checkpoints below directories, which must exist, and no other files. Without it
// the ops for checkpoints are refused when a graph is registered. It must not be called when the registry is in use.
func (r *Registry) AllowFiles(directories ...string) error {
	f := &files{running: make(chan struct{}, maxFileKernels)}
	for _, dir := range directories {
		path, err := filepath.Abs(dir)
		if err != nil {
			return status.Errorf(status.InvalidArgument, "--tensorflow-files %s: %v", dir, err)
		}
		root, err := os.OpenRoot(path)
		if err != nil {
			return status.Errorf(status.FailedPrecondition, "--tensorflow-files %s: %v; make the directory first", dir, err)
		}
		d := directory{root: root, names: [][]string{components(path)}}
		if target, err := filepath.EvalSymlinks(path); err == nil && target != path {
			d.names = append(d.names, components(target))
		}
		f.directories = append(f.directories, d)
	}
	r.files = f
	if len(f.directories) == 0 {
		r.files = nil
	}
	return nil
}

// components are the names in a path, without those that lead nowhere.
func components(path string) []string {
	return strings.FieldsFunc(filepath.ToSlash(path), func(r rune) bool { return r == '/' })
}

// prefix returns where the files of a checkpoint are, whose name a graph has given. PermissionDenied says that it is not
// below a directory.
func (f *files) prefix(name string) (bundle.Prefix, error) {
	path := strings.TrimPrefix(name, "file://")
	if scheme, _, ok := strings.Cut(path, "://"); ok {
		return bundle.Prefix{}, status.Errorf(status.Unimplemented, "File system scheme '%s' not implemented (file: '%s')", scheme, name)
	}
	if !filepath.IsAbs(path) {
		here, err := os.Getwd()
		if err != nil {
			return bundle.Prefix{}, status.Errorf(status.FailedPrecondition, "%s: a relative path, and this process has no directory: %v", name, err)
		}
		path = here + "/" + path
	}
	best, length := bundle.Prefix{Name: name}, 0
	for _, d := range f.directories {
		for _, own := range d.names {
			if rest, ok := below(own, path); ok && (best.Root == nil || len(own) > length) {
				best.Root, best.Path, length = d.root, rest, len(own)
			}
		}
	}
	if best.Root == nil {
		return bundle.Prefix{}, status.Errorf(status.PermissionDenied,
			"%s; Permission denied: it is not below a directory of --tensorflow-files of this server", name)
	}
	return best, nil
}

// below returns the rest of a path that begins with the components of a directory and a slash.
func below(dir []string, path string) (rest string, ok bool) {
	rest = filepath.ToSlash(path)
	for _, name := range dir {
		rest = skip(rest)
		if rest, ok = strings.CutPrefix(rest, name); !ok || !strings.HasPrefix(rest, "/") {
			return "", false
		}
	}
	return skip(rest), true
}

// skip cuts slashes, and names of the directory itself.
func skip(path string) string {
	for {
		rest, ok := strings.CutPrefix(path, "/")
		if !ok {
			rest, ok = strings.CutPrefix(path, "./")
		}
		if !ok {
			return path
		}
		path = rest
	}
}

// newFileKernel returns the kernel of a node that uses files. compute may take long: it does not count among the kernels
// that compute, and a few run at once.
func newFileKernel(n *graph.Node, s *State, compute func(c *graph.Context, f *files) error) (graph.Kernel, error) {
	f := s.registry.files
	if f == nil {
		return nil, status.Errorf(status.PermissionDenied,
			"node %q: op %s reads or writes files of this server, which allows none; start it with --tensorflow-files DIR, and name files below DIR, or place the node on another task", n.Name, n.Op)
	}
	return waitingKernel(func(c *graph.Context, done func(error)) {
		held, err := tensor.Reserve(c.Step.Allocator, waitBytes)
		if err != nil {
			done(err)
			return
		}
		go func() { // belongs to the step, which waits for done
			select {
			case <-c.Ctx.Done():
				err = status.From(c.Ctx.Err())
			case f.running <- struct{}{}:
				err = f.run(n.Op, func() error { return compute(c, f) })
			}
			held.Release()
			done(err)
		}()
	}), nil
}

// run runs a kernel that has a token, on a goroutine whose panic nobody else recovers.
func (f *files) run(op string, compute func() error) (err error) {
	defer func() { <-f.running }()
	defer recovered("the kernel of op "+op, &err)
	return compute()
}
