package checkpoint

import (
	"io/fs"
	"syscall"
	"time"
)

// changeTime returns when a file was last changed, which includes when it was last renamed. It
// returns false where that is not known.
func changeTime(info fs.FileInfo) (time.Time, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(st.Ctim.Unix()), true
}
