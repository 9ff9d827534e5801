package sources

import (
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
)

// cluster converts a mapping from jobs to tasks into the text of a cluster spec. The tasks of a
// job are a list of addresses or a mapping from task numbers to addresses. Errors are reported
// at the line of the task, and ok is false.
func (f *file) cluster(jobs *yaml.Node) (text string, ok bool) {
	faults := f.faults
	spec := make(map[string]map[int]string)
	for _, job := range f.members(jobs) {
		if f.specFault(job.line, map[string]map[int]string{job.name: nil}) {
			continue
		}
		tasks := make(map[int]string)
		for _, task := range f.tasks(job) {
			index, err := strconv.Atoi(task.name)
			if err != nil {
				f.fail(task.line, "cluster: job %s: %s is not a task number", config.Quote(job.name), config.Quote(task.name))
				continue
			}
			if _, again := tasks[index]; again || task.value.ShortTag() != "!!str" {
				f.fail(task.line, "cluster: job %s: task %d: want one address, HOST:PORT", config.Quote(job.name), index)
				continue
			}
			tasks[index] = task.value.Value
			f.specFault(task.line, map[string]map[int]string{job.name: {index: tasks[index]}})
		}
		spec[job.name] = tasks
	}
	if f.faults > faults {
		return "", false
	}
	whole, err := cluster.NewSpec(spec)
	if err != nil { // unreachable: its parts are valid
		f.fail(jobs.Line, "cluster: %w", config.Reason(err, ""))
		return "", false
	}
	return whole.String(), true
}

// tasks lists the tasks of a job, with their numbers as names.
func (f *file) tasks(job member) []member {
	switch job.value.Kind {
	case yaml.MappingNode:
		return f.members(job.value)
	case yaml.SequenceNode:
		tasks := make([]member, len(job.value.Content))
		for i, address := range job.value.Content {
			tasks[i] = member{strconv.Itoa(i), address.Line, resolve(address)}
		}
		return tasks
	default:
		f.fail(job.line, "cluster: job %s: want a list of addresses, or task numbers with addresses", config.Quote(job.name))
		return nil
	}
}

// specFault checks a part of a cluster. It reports an error and returns true if it is invalid.
func (f *file) specFault(line int, part map[string]map[int]string) bool {
	_, err := cluster.NewSpec(part)
	if err != nil {
		f.fail(line, "cluster: %w", config.Reason(err, ""))
	}
	return err != nil
}
