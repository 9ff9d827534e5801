//go:build linux

package storm_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// kind is what a record says. A node writes the kinds of the first group, the test the others.
type kind string

const (
	kindSend  kind = "send"  // Send will be called with a value
	kindSent  kind = "sent"  // it has returned
	kindTold  kind = "told"  // the outcome of a value sent by SendWait is known
	kindRecv  kind = "recv"  // a receive will begin
	kindGot   kind = "got"   // it has ended, with a value or a code
	kindEnds  kind = "ends"  // this process will end the step, by End or Abort
	kindMem   kind = "mem"   // memory of a receive that failed is not as promised
	kindDone  kind = "done"  // the process has done its part of the step
	kindLeave kind = "leave" // the process has been asked to stop
	kindPull  kind = "pull"  // a pull will begin
	kindHas   kind = "has"   // it has ended

	kindUpdate    kind = "update"    // Update will be called with a version
	kindUpdated   kind = "updated"   // it has returned
	kindWithdraw  kind = "withdraw"  // Withdraw will be called
	kindWithdrawn kind = "withdrawn" // it has returned
	kindStill     kind = "still"     // the process makes no version of a name any more
	kindWatch     kind = "watch"     // a watch will begin
	kindYield     kind = "yield"     // it has yielded a version
	kindApplied   kind = "applied"   // Apply has returned
	kindKept      kind = "kept"      // the memory of a version will be given back, or written in place by the next one
	kindUnwatch   kind = "unwatch"   // a watch has ended
	kindCluster   kind = "cluster"   // SetCluster will be called
	kindSet       kind = "set"       // it has returned; or the process has started with this cluster

	kindUp    kind = "up"    // the process is up and its task's proxy leads to it
	kindDown  kind = "down"  // the process will be killed or asked to stop
	kindGone  kind = "gone"  // it has exited
	kindFault kind = "fault" // a fault begins
	kindHeal  kind = "heal"  // it has ended
	kindClose kind = "close" // all participants have done their part of the step
	kindOver  kind = "over"  // all is repaired and has had time to end

	kindQuiet kind = "quiet" // no process makes versions any more, and watchers have had time for the newest
)

// record is one line of a log. Which fields are set depends on the kind.
type record struct {
	At   int64 `json:"at"` // nanoseconds of the clock that all processes share
	Kind kind  `json:"k"`
	Task int   `json:"t"`           // of the process that writes or that is meant
	Life int   `json:"l"`           // counts the processes of the task, from 1
	Step int64 `json:"s,omitempty"` // the rest is 0 or "" where it has no meaning
	Edge int   `json:"e,omitempty"` // index of the edge in the step
	Peer int   `json:"p,omitempty"` // the task at the other end, of a pull the server
	Seq  int   `json:"q,omitempty"` // of the value within its edge, from 1
	Recv int64 `json:"r,omitempty"` // number of the receive or pull in this process, or of the fault

	Content *content `json:"v,omitempty"`
	Into    int64    `json:"into,omitempty"`   // of a receive into memory: 1 and its size
	Code    string   `json:"c,omitempty"`      // of the error; "" for success
	Text    string   `json:"x,omitempty"`      // of the error, or what a fault is
	Ctx     string   `json:"ctx,omitempty"`    // the error of the receive's context
	Over    int64    `json:"over,omitempty"`   // when that context ended; 0 if just now
	Again   bool     `json:"again,omitempty"`  // the life takes up a step in which an earlier life was
	Blocks  bool     `json:"blocks,omitempty"` // no call reaches the task during the fault
	Route   string   `json:"w,omitempty"`      // that brought the value: a device of its receiver, or grpc

	// Of versions and clusters.
	Name   string `json:"name,omitempty"`   // of the publication
	Gen    int    `json:"gen,omitempty"`    // of an update, as in its stamp
	Number uint64 `json:"number,omitempty"` // of the version; of an update that has not returned the one that it gets
	Epoch  uint64 `json:"epoch,omitempty"`  // of the version
	Stamp  *stamp `json:"stamp,omitempty"`  // of the content
	Torn   string `json:"torn,omitempty"`   // what is wrong with the content
	Held   int    `json:"held,omitempty"`   // how many versions of the name have not given their memory back
	Place  bool   `json:"place,omitempty"`  // of a watch: in place
	Tasks  []int  `json:"tasks,omitempty"`  // those of the cluster
	Sort   string `json:"kind,omitempty"`   // of the error, if it is one of Aborted
}

// now reads the clock that all processes of a machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0 // never, on Linux
	}
	return t.Nano()
}

// logFile appends records to a file. One write call has one whole line.
type logFile struct {
	f          *os.File
	task, life int
}

func newLog(dir string, task, life int) (*logFile, error) {
	name := fmt.Sprintf("%s-%02d-%04d.jsonl", logOf(task), task, life)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return &logFile{f, task, life}, err
}

// logOf is the beginning of a log's name.
func logOf(task int) string {
	switch task {
	case master:
		return "test"
	case puller:
		return "puller"
	case watcher:
		return "watcher"
	}
	return "task"
}

// write adds the time and the writer, unless it is the test that writes of others.
func (l *logFile) write(r record) {
	r.At = now()
	if l.task != master {
		r.Task, r.Life = l.task, l.life
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = l.f.Write(append(b, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the log:", err)
		os.Exit(exitLog) // without its log the run proves nothing
	}
}

// readLogs reads all logs of a directory, in the order of time. A line that a kill has cut short
// is not there.
func readLogs(dir string) ([]record, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var all []record
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r record
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				f.Close()
				return nil, fmt.Errorf("%s: %w: %s", name, err, lines.Text())
			}
			all = append(all, r)
		}
		f.Close()
		if err := lines.Err(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b record) int { return int(a.At - b.At) })
	return all, nil
}

// String is a line of a history.
func (r record) String() string {
	s := fmt.Sprintf("%12v  task %d life %d  %-5s", time.Duration(r.At).Round(10*time.Microsecond), r.Task, r.Life, r.Kind)
	if r.Step != 0 {
		s += fmt.Sprintf(" step %d edge %d peer %d", r.Step, r.Edge, r.Peer)
	}
	if r.Seq != 0 {
		s += fmt.Sprintf(" value %d", r.Seq)
	}
	if r.Recv != 0 && r.Kind != kindFault && r.Kind != kindHeal {
		s += fmt.Sprintf(" receive %d", r.Recv)
	}
	if r.Into != 0 {
		s += fmt.Sprintf(" into %d bytes", r.Into-1)
	}
	if r.Content != nil {
		s += " " + r.Content.String()
	}
	if r.Again {
		s += " again"
	}
	if r.Name != "" {
		s += fmt.Sprintf(" %s of task %d number %d epoch %x", r.Name, r.Peer, r.Number, r.Epoch)
	}
	if r.Stamp != nil {
		s += " content: " + r.Stamp.String()
	}
	if r.Torn != "" {
		s += " TORN: " + r.Torn
	}
	if r.Tasks != nil {
		s += fmt.Sprintf(" tasks %v", r.Tasks)
	}
	for _, t := range []string{r.Route, r.Code, r.Sort, r.Ctx, r.Text} {
		if t != "" {
			s += " " + t
		}
	}
	return s
}
