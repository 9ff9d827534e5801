package support

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// Archive writes files into a compressed archive. What it writes is scrubbed and bounded.
type Archive struct {
	scrubber *Scrubber
	folder   string
	now      time.Time
	zip      *gzip.Writer
	tar      *tar.Writer
	most     int // of a file
	left     int // of all files
}

// NewArchive returns an Archive that writes to w. All files are below folder.
func NewArchive(w io.Writer, folder string, now time.Time, s *Scrubber) *Archive {
	z := gzip.NewWriter(w)
	return &Archive{scrubber: s, folder: folder, now: now, zip: z, tar: tar.NewWriter(z), most: MaxFile, left: maxAll}
}

// Add adds a file.
func (a *Archive) Add(name, text string) error {
	text = a.scrubber.Scrub(text)
	if most := max(0, min(a.most, a.left)); len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + fmt.Sprintf("\n[cut off after %d of %d bytes]\n", most, len(text))
	}
	a.left -= len(text)
	head := &tar.Header{Name: path.Join(a.folder, name), Mode: 0o600, Size: int64(len(text)), ModTime: a.now, Typeflag: tar.TypeReg}
	if err := a.tar.WriteHeader(head); err != nil {
		return err
	}
	_, err := io.WriteString(a.tar, text)
	return err
}

// Close completes the archive. It does not close the writer below.
func (a *Archive) Close() error {
	if err := a.tar.Close(); err != nil {
		return err
	}
	return a.zip.Close()
}
