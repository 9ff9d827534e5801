package checkpoint

// NewFile is a file that Create makes.
type NewFile struct {
	Path string
	Head []byte // its first bytes
	Size int64
}

// CreateOptions are the options of Create.
type CreateOptions struct {
	// Force replaces files that exist.
	Force bool
	// Progress, if not nil, is called a few times a second with the number of bytes that WriteAt has got, of
	// Total.
	Total    int64
	Progress func(done, total int64)
}

// NewFiles are files that get their names together, when all are complete. The caller commits or discards
// them.
type NewFiles struct {
	targets []*target
	count   counter
}

// Create begins files as PATH.part. It returns AlreadyExists for an existing PATH unless o.Force is set,
// FailedPrecondition for a .part that another process writes, and ResourceExhausted for a full disk.
func Create(files []NewFile, o CreateOptions) (*NewFiles, error) {
	n := &NewFiles{count: counter{total: o.Total, report: o.Progress}}
	for _, f := range files {
		t, err := createTarget(f.Path, f.Size, o.Force)
		if err == nil {
			n.targets = append(n.targets, t)
			err = t.writeAt(f.Head, 0)
		}
		if err != nil {
			n.Discard()
			return nil, err
		}
	}
	return n, nil
}

// WriteAt writes b into the file with an index, at an offset. It may be called by several goroutines.
func (n *NewFiles) WriteAt(file int, b []byte, offset int64) error {
	n.count.add(int64(len(b)))
	return n.targets[file].writeAt(b, offset)
}

// Commit gives the files their names, in order, when their content is on the disk. Then they are the result:
// unsynced says why their names may not be on the disk.
func (n *NewFiles) Commit() (unsynced, err error) { return commitAll(n.targets) }

// Discard removes the files that have no name yet.
func (n *NewFiles) Discard() {
	for _, t := range n.targets {
		t.discard()
	}
}

// MakeDir makes a directory and those above it. unsynced says why a name may not be on the disk.
func MakeDir(path string) (unsynced, err error) { return makeDir(path, syncDir) }

// IsDir reports whether a path to write to means a directory: it is one, or ends in a slash. An empty path is
// InvalidArgument.
func IsDir(path string) (bool, error) { return isDir(path) }
