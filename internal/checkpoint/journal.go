package checkpoint

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/tryst-rdma/tryst/status"
)

// journalExt is the suffix of the journal of a .part, after the name of the .part.
const journalExt = ".journal"

// A journal says which bytes of a .part a pull has written. It is text. The first line is a plan
// as JSON; each other line is the offset and the length of what was written, in decimal, and its
// XXH64 in hexadecimal:
//
//	{"journal":1,"publication":"gpt2","version":"53f0…","size":548118077,"head":"9b1c…"}
//	14264 16777216 a88d85a6e1a3f7c5
//
// It is only a hint. What was written may have been lost with the power, so the next pull reads
// all of it again and compares it. The journal is under the lock of the .part.
type journal struct {
	mu      sync.Mutex
	file    *os.File // guarded by mu, as are the fields below; nil after close
	failed  bool     // nothing more is recorded
	records int
}

// plan identifies the file that a .part becomes.
type plan struct {
	Journal     int    `json:"journal"` // journalFormat
	Publication string `json:"publication"`
	Version     string `json:"version"`
	Size        int64  `json:"size"`
	Head        string `json:"head"` // SHA-256 of the bytes before the first tensor
}

const journalFormat = 1

// planOf returns the plan of an output.
func (m *Manifest) planOf(out *output) plan {
	sum := sha256.Sum256(out.head)
	return plan{journalFormat, m.Name, m.Version, out.size, hex.EncodeToString(sum[:])}
}

// differs says how the plan of a journal differs from p; "" if it does not.
func (p plan) differs(of plan) string {
	switch {
	case of.Publication != p.Publication:
		return fmt.Sprintf("it is of publication %s, not %s", quote(of.Publication), quote(p.Publication))
	case of.Version != p.Version:
		return fmt.Sprintf("it is of version %s; the present one is %s", quote(of.Version), quote(p.Version))
	case of != p:
		return "it is of a file with other tensors"
	}
	return ""
}

// claim is a record of a journal: a range of the file, and the hash of what was written there.
type claim struct {
	piece
	sum uint64
}

// parseJournal parses a journal of p. good is the length of its complete lines in bytes: the
// last line may be incomplete, since the process may have been killed. Lines from a damaged one on
// do not count. An error says why nothing of the journal can be used; it is FailedPrecondition if
// the journal has records of another plan.
func parseJournal(r io.Reader, p plan) (claims []claim, good int64, err error) {
	b := bufio.NewReaderSize(r, maxJournalLine)
	line, err := b.ReadSlice('\n')
	if err != nil {
		return nil, 0, status.New(status.DataLoss, "its journal has no first line")
	}
	var of plan
	if err := json.Unmarshal(line, &of); err != nil {
		return nil, 0, status.New(status.DataLoss, "the first line of its journal is damaged")
	}
	if of.Journal != p.Journal {
		return nil, 0, status.New(status.DataLoss, "its journal was written by another release")
	}
	good = int64(len(line))
	how := p.differs(of)
	for {
		line, err := b.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		c, ok := parseClaim(line, of.Size)
		if damaged := err != nil || !ok; damaged && len(claims) > 0 {
			break
		} else if damaged {
			return nil, 0, status.Errorf(status.DataLoss, "its journal is damaged at byte %d", good)
		}
		claims = append(claims, c)
		good += int64(len(line))
	}
	switch {
	case how == "":
		return claims, good, nil
	case len(claims) == 0: // nothing is lost
		return nil, 0, status.New(status.DataLoss, how)
	}
	return nil, 0, status.New(status.FailedPrecondition, how)
}

// parseClaim parses a line of a journal of a file with size bytes.
func parseClaim(line []byte, size int64) (c claim, ok bool) {
	n, err := fmt.Sscanf(string(line), "%d %d %x\n", &c.off, &c.n, &c.sum)
	return c, err == nil && n == 3 && bytes.Equal(c.append(nil), line) && c.off >= 0 && c.n > 0 && c.n <= size-c.off
}

func (c claim) append(b []byte) []byte { return fmt.Appendf(b, "%d %d %016x\n", c.off, c.n, c.sum) }

// readJournal reads the journal at path and opens it for more records.
func readJournal(path string, p plan) (*journal, []claim, error) {
	f, err := openJournal(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, status.New(status.NotFound, "it has no journal")
	}
	if err != nil {
		return nil, nil, wrap("its journal", bare(err))
	}
	claims, good, err := parseJournal(f, p)
	if err == nil {
		err = f.Truncate(good)
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, nil, err
	}
	return &journal{file: f, records: len(claims)}, claims, nil
}

// createJournal creates the journal at path, which must not exist.
func createJournal(path string, p plan) (*journal, error) {
	f, err := openJournal(path, os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, wrap("creating "+path, bare(err))
	}
	b, err := json.Marshal(p)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	if err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return nil, wrap("writing "+path, bare(err))
	}
	return &journal{file: f}, nil
}

func openJournal(path string, flags int) (*os.File, error) {
	if stat, err := os.Lstat(path); err == nil && !stat.Mode().IsRegular() {
		return nil, status.New(status.InvalidArgument, "not a regular file")
	}
	return os.OpenFile(path, os.O_RDWR|os.O_APPEND|noFollow|flags, 0o666)
}

// sum returns the XXH64 of a part with content b. That of a whole tensor is its digest, if that is
// XXH64, since the tensor has been checked.
func (pl *pull) sum(p part, b []byte) uint64 {
	if p.whole() && pl.newHash != nil && pl.manifest.Algorithm == XXH64 {
		return binary.BigEndian.Uint64(pl.manifest.Entries[p.i].Digest)
	}
	return xxhash.Sum64(b)
}

// record takes note of what was written. After a failure nothing more is recorded: the pull itself
// does not need the journal.
func (j *journal) record(c claim) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil || j.failed {
		return
	}
	if _, err := j.file.Write(c.append(nil)); err != nil {
		j.failed = true // the last line may be incomplete
		return
	}
	j.records++
}

// remove closes the journal and removes it from path, unless the journal of another pull is there.
func (j *journal) remove(path string) {
	j.mu.Lock()
	if j.file != nil {
		mine, err := j.file.Stat() // while it is open, no other file can be the same
		if now, gone := os.Lstat(path); err == nil && gone == nil && os.SameFile(mine, now) {
			_ = os.Remove(path) // one that is left is removed by the next pull
		}
	}
	j.mu.Unlock()
	j.close()
}

// close closes the journal. It returns the number of its records.
func (j *journal) close() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		_ = j.file.Close() // a record that is lost is sent again
		j.file = nil
	}
	return j.records
}
