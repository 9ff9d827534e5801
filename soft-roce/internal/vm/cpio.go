package vm

import (
	"fmt"
	"io"
)

// archive writes the initial file system in the format that the kernel unpacks: cpio's "newc"
// (Documentation/driver-api/early-userspace/buffer-format.rst). Each entry is a header of
// hexadecimal fields, the name with a zero byte, and the data. Name and data are padded with zeros
// to a multiple of 4.
type archive struct {
	w     io.Writer
	inode uint32
	err   error // the first
}

// The types in st_mode (inode(7)).
const (
	modeDir    = 0o040000
	modeDevice = 0o020000 // a character device
	modeFile   = 0o100000
)

// The numbers of /dev/console (Documentation/admin-guide/devices.txt).
const (
	consoleMajor = 5
	consoleMinor = 1
)

func (a *archive) dir(name string) { a.entry(entry{name: name, mode: modeDir | 0o755}) }

func (a *archive) device(name string, major, minor uint32) {
	a.entry(entry{name: name, mode: modeDevice | 0o600, major: major, minor: minor})
}

func (a *archive) file(name string, mode uint32, data []byte) {
	a.entry(entry{name: name, mode: modeFile | mode, data: data})
}

// close ends the archive and returns the first error of all writes.
func (a *archive) close() error {
	a.entry(entry{name: "TRAILER!!!"})
	return a.err
}

type entry struct {
	name         string // without a leading slash
	mode         uint32
	major, minor uint32 // of a device
	data         []byte
}

func (a *archive) entry(e entry) {
	a.inode++
	const links, zero = 1, 0
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor, rdevmajor, rdevminor, namesize, check
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, e.mode, zero, zero, links, zero, len(e.data), zero, zero, e.major, e.minor, len(e.name)+1, zero, e.name)
	a.padded([]byte(head))
	a.padded(e.data)
}

func (a *archive) padded(p []byte) {
	for _, part := range [][]byte{p, make([]byte, -len(p)&3)} {
		if a.err == nil && len(part) > 0 {
			_, a.err = a.w.Write(part)
		}
	}
}
