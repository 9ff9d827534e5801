package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// Spec has the tasks of a cluster and the address of each. Task numbers may have gaps, since
// a task need not know all others. The replica is always 0, as in every TensorFlow cluster. A
// Spec is immutable; the zero Spec and a nil one are empty.
type Spec struct {
	addresses map[Task]string
	tasks     []Task // the keys of addresses, sorted
}

// NewSpec returns a Spec of the jobs' task numbers and addresses, which it copies. It ignores
// jobs without tasks. The error names the job and the task whose name or number is not valid
// in TensorFlow, or whose address ValidateHostPort refuses.
func NewSpec(jobs map[string]map[int]string) (*Spec, error) {
	s := &Spec{addresses: make(map[Task]string)}
	for _, job := range slices.Sorted(maps.Keys(jobs)) { // sorted, so that the error does not depend on the order of the map
		if !isWord(job) {
			return nil, invalid("cluster job", job, "%s", whyJob)
		}
		for _, index := range slices.Sorted(maps.Keys(jobs[job])) {
			if index < 0 || index > maxNumber {
				return nil, invalid("cluster job", job, "task number %d is not within 0 to %d", index, maxNumber)
			}
			task, address := Task{Job: job, Index: index}, jobs[job][index]
			if why := hostPortFault(address); why != "" {
				return nil, invalid("cluster job", job, "task %d: address %s: %s", index, quote(address), why)
			}
			s.addresses[task] = address
			s.tasks = append(s.tasks, task)
		}
	}
	return s, nil
}

// SpecFromLists is NewSpec for jobs whose tasks are numbered 0, 1, 2 and so on.
func SpecFromLists(jobs map[string][]string) (*Spec, error) {
	sparse := make(map[string]map[int]string, len(jobs))
	for job, addresses := range jobs {
		sparse[job] = maps.Collect(slices.All(addresses))
	}
	return NewSpec(sparse)
}

// Address returns the address of a task; false for a task that is not in the spec, such as any
// with a replica other than 0.
func (s *Spec) Address(t Task) (string, bool) {
	if s == nil {
		return "", false
	}
	address, ok := s.addresses[t]
	return address, ok
}

// Tasks returns all tasks, sorted by job and number. The slice is the caller's.
func (s *Spec) Tasks() []Task {
	if s == nil {
		return nil
	}
	return slices.Clone(s.tasks)
}

// Jobs returns the names of all jobs, sorted. The slice is the caller's.
func (s *Spec) Jobs() []string {
	var jobs []string
	for _, t := range s.Tasks() {
		if len(jobs) == 0 || jobs[len(jobs)-1] != t.Job {
			jobs = append(jobs, t.Job)
		}
	}
	return jobs
}

// Len returns the number of tasks.
func (s *Spec) Len() int {
	if s == nil {
		return 0
	}
	return len(s.tasks)
}

// Equal reports whether both have the same tasks at the same addresses.
// Addresses are compared as text.
func (s *Spec) Equal(other *Spec) bool {
	if s.Len() != other.Len() {
		return false
	}
	return s.Len() == 0 || maps.Equal(s.addresses, other.addresses)
}

// String returns the spec in the form of ParseSpec. It writes a task number only after a gap.
func (s *Spec) String() string {
	var b strings.Builder
	job, next := "", 0
	for i, t := range s.Tasks() {
		switch {
		case i == 0:
			b.WriteString(t.Job + "=")
		case t.Job != job:
			b.WriteString(";" + t.Job + "=")
		default:
			b.WriteByte(',')
		}
		if t.Job != job {
			job, next = t.Job, 0
		}
		if t.Index != next {
			b.WriteString(strconv.Itoa(t.Index) + "@")
		}
		b.WriteString(s.addresses[t])
		next = t.Index + 1
	}
	return b.String()
}

// ResolveTarget returns the address to dial for a server that the user names by an address or
// a task name. A host without a port means DefaultPort. isTask reports whether s is a task
// name; task is then that task. A task that is not in the spec is NotFound; any other invalid
// s is InvalidArgument.
func ResolveTarget(spec *Spec, s string) (address string, task Task, isTask bool, err error) {
	if !strings.HasPrefix(s, "/") || strings.HasPrefix(s, bnsPrefix) {
		if _, err := strconv.ParseUint(s, 10, 16); err == nil {
			return "", Task{}, false, invalid("address", s, "the host is missing before the port; want HOST[:PORT]")
		}
		address = withPort(s)
		if why := hostPortFault(address); why != "" {
			return "", Task{}, false, invalid("address", s, "%s", why)
		}
		return address, Task{}, false, nil
	}
	task, err = ParseTask(s)
	if err != nil {
		return "", Task{}, true, err
	}
	address, ok := spec.Address(task)
	switch {
	case ok:
		return address, task, true, nil
	case spec.Len() == 0:
		err = status.Errorf(status.NotFound, "task %s: no cluster spec is configured; give HOST[:PORT] or a cluster spec", quote(s))
	default:
		err = status.Errorf(status.NotFound, "task %s: not in the cluster spec %s", quote(s), quote(spec.String()))
	}
	return "", task, true, err
}
