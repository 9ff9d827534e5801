package bench

import (
	"bufio"
	"bytes"
	"os"
	"runtime/debug"
	"strconv"

	"github.com/tryst-rdma/tryst/status"
)

// resident returns the memory of this process in bytes: its part of each page that it shares
// with others, after what Go's heap does not need has gone back (proc_pid_smaps(5)).
func resident() (int64, error) {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		return 0, status.Errorf(status.Unavailable, "the memory of this process: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) == 3 && string(fields[0]) == "Pss:" {
			kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
			return kib << 10, err
		}
	}
	return 0, status.New(status.Unavailable, "the memory of this process: /proc/self/smaps_rollup has no Pss")
}

// owned returns the memory of this process in bytes, without that of other processes that it has mapped: shared memory
// counts where it can be written. Over verbs/shm a peer's memory is mapped read-only.
func owned() (n int64, err error) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, status.Errorf(status.Unavailable, "the memory of this process: %w", err)
	}
	counted := ""
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		switch {
		case len(fields) >= 5 && len(fields[1]) == 4: // address, perms, offset, device, inode
			switch shared, writable := fields[1][3] == 's', fields[1][1] == 'w'; {
			case shared && writable:
				counted = "Rss:"
			case shared:
				counted = ""
			default:
				counted = "Pss:"
			}
		case len(fields) == 3 && string(fields[0]) == counted:
			kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
			if err != nil {
				return 0, status.Errorf(status.Unavailable, "the memory of this process: %w", err)
			}
			n += kib << 10
		}
	}
	return n, nil
}
