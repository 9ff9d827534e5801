//go:build !linux

package checkpoint

import (
	"io/fs"
	"time"
)

// changeTime returns when a file was last changed. It is only known on Linux.
func changeTime(fs.FileInfo) (time.Time, bool) { return time.Time{}, false }
