package checkpoint

import (
	"io/fs"
	"time"
)

// ChangeTime is changeTime, for tests that order files by it.
func ChangeTime(info fs.FileInfo) time.Time {
	at, _ := changeTime(info)
	return at
}
