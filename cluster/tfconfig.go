package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tryst-rdma/tryst/status"
)

// TFConfig is the content of the environment variable TF_CONFIG.
type TFConfig struct {
	Spec        *Spec  // never nil; empty when there is no "cluster"
	Task        Task   // this process; only when HasTask
	HasTask     bool   // whether there is a "task" with its type and index
	Environment string // "environment", for example "cloud"; often ""
}

// evaluator is a job that need not be in the cluster: it only reads checkpoints, so no other
// task needs its address.
const evaluator = "evaluator"

// ParseTFConfig parses the text of TF_CONFIG:
//
//	{"cluster": {"chief": ["host0:2222"], "worker": {"0": "host1:2222", "5": "host2:2222"}},
//	 "task": {"type": "worker", "index": 5},
//	 "environment": "cloud"}
//
// A job's tasks are a list, or an object from task number to address. As in TensorFlow's
// TFConfigClusterResolver all keys are optional, unknown keys are ignored, and an empty text
// is an empty TFConfig. An index may be a decimal string, too. A value of the wrong type is an
// error with the path of its field. A task that is not in the cluster is an error, except an
// evaluator.
func ParseTFConfig(text string) (TFConfig, error) {
	config := TFConfig{Spec: new(Spec)}
	if strings.TrimSpace(text) == "" {
		return config, nil
	}
	root, err := members("", []byte(text))
	if err != nil {
		return TFConfig{}, err
	}
	if raw, ok := root["cluster"]; ok {
		if config.Spec, err = clusterMember(raw); err != nil {
			return TFConfig{}, err
		}
	}
	if raw, ok := root["task"]; ok {
		if config.Task, config.HasTask, err = taskMember(raw); err != nil {
			return TFConfig{}, err
		}
	}
	if raw, ok := root["environment"]; ok {
		if config.Environment, err = stringMember("environment", raw); err != nil {
			return TFConfig{}, err
		}
	}
	if config.HasTask && config.Spec.Len() > 0 {
		_, listed := config.Spec.Address(config.Task)
		beside := config.Task.Job == evaluator && !slices.Contains(config.Spec.Jobs(), evaluator)
		if !listed && !beside {
			return TFConfig{}, fieldError("task", "%s is not in the cluster", config.Task)
		}
	}
	return config, nil
}

func clusterMember(raw json.RawMessage) (*Spec, error) {
	cluster, err := members("cluster", raw)
	if err != nil {
		return nil, err
	}
	jobs := make(map[string]map[int]string, len(cluster))
	for _, job := range slices.Sorted(maps.Keys(cluster)) { // sorted, so that the error does not depend on the order of the map
		if !isWord(job) {
			return nil, fieldError("cluster", "job %s: %s", quote(job), whyJob)
		}
		if jobs[job], err = jobMember("cluster."+job, cluster[job]); err != nil {
			return nil, err
		}
	}
	return NewSpec(jobs)
}

// jobMember parses a job's tasks, a list or an object.
func jobMember(field string, raw json.RawMessage) (map[int]string, error) {
	tasks := make(map[int]string)
	switch typeOf(raw) {
	case "a list":
		var list []json.RawMessage
		if err := decode(field, raw, &list); err != nil {
			return nil, err
		}
		for i, element := range list {
			if err := addTask(tasks, field+"["+strconv.Itoa(i)+"]", i, element); err != nil {
				return nil, err
			}
		}
	case "an object":
		object, err := members(field, raw)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			index, ok := parseIndex(key)
			if !ok {
				return nil, fieldError(field, "key %s: want a task number of 0 to %d", quote(key), maxNumber)
			}
			if err := addTask(tasks, field+"["+key+"]", index, object[key]); err != nil {
				return nil, err
			}
		}
	default:
		return nil, fieldError(field, "want a list or an object of addresses, got %s", typeOf(raw))
	}
	return tasks, nil
}

func addTask(tasks map[int]string, field string, index int, raw json.RawMessage) error {
	address, err := stringMember(field, raw)
	if err != nil {
		return err
	}
	if _, again := tasks[index]; again { // "5" and "05"
		return fieldError(field, "task %d was given before", index)
	}
	if why := hostPortFault(address); why != "" {
		return fieldError(field, "address %s: %s", quote(address), why)
	}
	tasks[index] = address
	return nil
}

// taskMember parses {"type": "worker", "index": 0}. It ignores an object with neither.
func taskMember(raw json.RawMessage) (task Task, ok bool, err error) {
	object, err := members("task", raw)
	if err != nil {
		return Task{}, false, err
	}
	rawType, hasType := object["type"]
	rawIndex, hasIndex := object["index"]
	switch {
	case !hasType && !hasIndex:
		return Task{}, false, nil
	case !hasType:
		return Task{}, false, fieldError("task.type", "it is missing, and task.index is given")
	case !hasIndex:
		return Task{}, false, fieldError("task.index", "it is missing, and task.type is given")
	}
	if task.Job, err = stringMember("task.type", rawType); err != nil {
		return Task{}, false, err
	}
	if !isWord(task.Job) {
		return Task{}, false, fieldError("task.type", "%s: %s", quote(task.Job), whyJob)
	}
	number := string(rawIndex)
	if typeOf(rawIndex) == "a string" {
		if number, err = stringMember("task.index", rawIndex); err != nil {
			return Task{}, false, err
		}
	}
	if task.Index, ok = parseIndex(number); !ok {
		return Task{}, false, fieldError("task.index", "want a number of 0 to %d, got %s", maxNumber, quote(number))
	}
	return task, true, nil
}

// parseIndex parses a task number without any other characters.
func parseIndex(s string) (int, bool) {
	sc := scanner{s: s}
	n, why := sc.number()
	return n, why == "" && sc.pos == len(s)
}

func stringMember(field string, raw json.RawMessage) (s string, err error) {
	if got := typeOf(raw); got != "a string" {
		return "", fieldError(field, "want a string, got %s", got)
	}
	err = decode(field, raw, &s)
	return s, err
}

// members returns the members of a JSON object. Of a repeated name the last one counts, as in
// TensorFlow. The field is "" for the whole text.
func members(field string, raw json.RawMessage) (object map[string]json.RawMessage, err error) {
	if got := typeOf(raw); got != "an object" && json.Valid(raw) {
		return nil, fieldError(field, "want an object, got %s", got)
	}
	err = decode(field, raw, &object)
	return object, err
}

func decode(field string, raw json.RawMessage, into any) error {
	err := json.Unmarshal(raw, into)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fieldError(field, "after %d bytes: %s", syntax.Offset, syntax)
	}
	if err != nil {
		return fieldError(field, "%s", err)
	}
	return nil
}

// typeOf returns the type of a JSON value by its first character.
func typeOf(raw json.RawMessage) string {
	switch text := bytes.TrimLeft(raw, " \t\r\n"); {
	case len(text) == 0:
		return "nothing"
	case text[0] == '{':
		return "an object"
	case text[0] == '[':
		return "a list"
	case text[0] == '"':
		return "a string"
	case text[0] == 't', text[0] == 'f':
		return "a boolean"
	case text[0] == 'n':
		return "null"
	default:
		return "a number"
	}
}

func fieldError(field, format string, args ...any) error {
	prefix := "TF_CONFIG"
	if field != "" {
		prefix += ": " + field
	}
	return status.Errorf(status.InvalidArgument, format, args...).WithPrefix(prefix)
}
