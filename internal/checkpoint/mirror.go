package checkpoint

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// A mirror keeps the files of a publication at its newest version. A file is replaced by a rename, as any pull does with
// Force. The files of a directory get their names as a set:
//
//	DIR ─ symbolic link ─► .DIR.VERSION/   the files of a version
//	                       .DIR.OLDER/     those of the version before, which a reader may have open
//
// A version is pulled into its directory, and then the link is replaced by a rename. A reader that opens several files
// resolves the link once. What a pull has left of the newest version is used again; directories of other versions are
// removed.

// Mirrored is a version whose files are there.
type Mirrored struct {
	Publication Publication
	// Path is the file, or the directory of this version. The directory stays until the version after the next one is there.
	Path    string
	Summary *Summary
	// Untidy says why a directory of an older version could not be removed; nil if there is none.
	Untidy error
}

// Mirror writes the files of the newest version of a publication, and then of each newer one, as Save does, and calls each when
// they have their names. It pulls nothing while each runs. It ends with ctx, with an error of each, and with one
// that does not pass: failures of the connection and the server do. o.Out is a file, or, with a slash at its end, the symbolic
// link to the directory of the present version; it may be missing. AlreadyExists for a directory that is no such link, and
// for a file without Force when the first version comes.
func (p *Puller) Mirror(ctx context.Context, req PullRequest, o SaveOptions, each func(context.Context, Mirrored) error) error {
	m, err := newMirror(p, o)
	if err != nil {
		return err
	}
	if len(req.Into) > 0 {
		return status.New(status.InvalidArgument, "a pull into files has no use for memory (Into): Watch receives into it")
	}
	req.Version = ""
	f := p.follow(ctx, req)
	defer f.close()
	for {
		var sum *Summary
		err := f.until(ctx, func(pub Publication) (got *Summary, err error) {
			req, came := f.request(), new(shelf)
			req.Publication, req.Version, req.shelf = pub.Name, pub.Version, came
			if sum, err = m.save(ctx, req); err != nil {
				return nil, err
			}
			f.base = came
			f.measured(sum)
			return sum, nil
		}, func() {})
		if err != nil {
			return err
		}
		one, err := m.show(sum)
		if err != nil {
			return err
		}
		if err := each(ctx, one); err != nil {
			return err
		}
	}
}

// mirror is where the files are.
type mirror struct {
	p     *Puller
	o     SaveOptions
	link  string   // to the directory of the present version; empty for a file
	shown []string // the names of the directories that stay: the present one, and the one before; none at first
}

func newMirror(p *Puller, o SaveOptions) (*mirror, error) {
	dir, err := isDir(o.Out)
	if err != nil {
		return nil, err
	}
	m := &mirror{p: p, o: o}
	m.o.older = true
	if !dir {
		return m, nil
	}
	m.o.Force = true // of files in a directory of the mirror
	m.link = filepath.Clean(o.Out)
	switch info, err := os.Lstat(m.link); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, wrap(m.link, bare(err))
	case info.Mode().Type() != fs.ModeSymlink:
		return nil, status.Errorf(status.AlreadyExists, "%s is there, and no symbolic link: the files of a version get their names together by a link of this name, so remove it, or name another path", m.link)
	}
	return m, nil
}

// directory returns the directory of a version. The server chose its name, so it is checked.
func (m *mirror) directory(version string) (string, error) {
	if !isVersion(version) {
		return "", status.Errorf(status.InvalidArgument, "%s says that the version is %s, which is no name for a directory", m.p.server(), quote(version))
	}
	return m.prefix() + version, nil
}

// prefix begins the paths of the directories of all versions.
func (m *mirror) prefix() string {
	return filepath.Join(filepath.Dir(m.link), "."+filepath.Base(m.link)+".")
}

// save pulls a version.
func (m *mirror) save(ctx context.Context, req PullRequest) (*Summary, error) {
	o := m.o
	if m.link != "" {
		dir, err := m.directory(req.Version)
		if err != nil {
			return nil, err
		}
		if m.shown != nil { // what was left of versions between
			_ = m.tidy(filepath.Base(dir)) // show reports it
		}
		o.Out = dir + string(filepath.Separator)
	}
	return m.p.Save(ctx, req, o)
}

// show lets the link lead to the directory of the version that came, and removes those of other versions, but for the last one.
func (m *mirror) show(sum *Summary) (Mirrored, error) {
	one := Mirrored{Publication: sum.Publication, Path: m.o.Out, Summary: sum}
	if m.link == "" {
		m.o.Force = true // the file is the mirror's own
		return one, nil
	}
	dir, err := m.directory(sum.Publication.Version)
	if err != nil {
		return one, err
	}
	name := filepath.Base(dir)
	before, _ := os.Readlink(m.link) // none the first time
	if before != name {
		if err := m.switchTo(name); err != nil {
			return one, err
		}
		m.shown = []string{name, before}
	} else if m.shown == nil {
		m.shown = []string{name}
	}
	one.Path, one.Untidy = dir, m.tidy()
	return one, nil
}

// switchTo replaces the link.
func (m *mirror) switchTo(name string) error {
	anew := m.prefix() + "link"
	_ = os.Remove(anew) // of a process that was killed
	if err := os.Symlink(name, anew); err != nil {
		return wrap("linking "+anew, bare(err))
	}
	if err := os.Rename(anew, m.link); err != nil {
		return wrap("renaming "+anew, bare(err))
	}
	_ = syncDir(filepath.Dir(m.link)) // without it the link leads to a whole version, too
	return nil
}

// tidy removes the directories of versions, but for those that stay and the given ones.
func (m *mirror) tidy(keep ...string) error {
	all, err := os.ReadDir(filepath.Dir(m.link))
	if err != nil {
		return wrap(filepath.Dir(m.link), bare(err))
	}
	for _, e := range all {
		version, ours := strings.CutPrefix(e.Name(), filepath.Base(m.prefix()))
		if !ours || !e.IsDir() || !isVersion(version) || slices.Contains(keep, e.Name()) || slices.Contains(m.shown, e.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(filepath.Dir(m.link), e.Name())); err != nil {
			return wrap("removing "+e.Name(), bare(err))
		}
	}
	return nil
}

// isVersion reports whether a directory may have this version in its name.
func isVersion(s string) bool {
	return len(s) >= minVersionName && len(s) <= maxVersionName && strings.Trim(s, "0123456789abcdef") == ""
}
