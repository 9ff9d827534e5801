package cluster

import "strconv"

// Device is the full name of a device of a task. Devices are compared with ==. The zero
// Device is no name.
type Device struct {
	Task  Task
	Type  string // "CPU", "GPU", or any other type; case counts
	Index int    // 0 to 2^31-1
}

// ParseDevice parses a full device name: job, replica, task, type and index,
// none missing and none a wildcard. The legacy forms "/cpu:0", "/CPU:0", "/gpu:0" and
// "/GPU:0" are accepted in place of "/device:CPU:0". All spellings of a device give equal
// values.
//
// Parsing a valid name does not allocate, since every rendezvous key has two. The Device's
// strings are parts of s and keep it alive.
func ParseDevice(s string) (Device, error) {
	const kind = "device name"
	var p Pattern
	if at, why := p.parse(s); why != "" {
		return Device{}, invalid(kind, s, "at byte %d: %s", at, why)
	}
	if missing := p.missing(); missing != "" {
		return Device{}, invalid(kind, s, "no %s; want /job:NAME/replica:NUMBER/task:NUMBER/device:TYPE:NUMBER", missing)
	}
	return p.device(), nil
}

// String returns the full name in its current form,
// "/job:worker/replica:0/task:3/device:CPU:0".
func (d Device) String() string {
	b := d.Task.appendTo(make([]byte, 0, 96))
	b = append(append(b, "/device:"...), d.Type...)
	return string(strconv.AppendInt(append(b, ':'), int64(d.Index), 10))
}

// SameAddressSpace reports whether two names of tasks or devices belong to one process: both
// have a job, a replica and a task, and these are equal. A name that does not parse, or lacks
// one of the three, is in no address space.
func SameAddressSpace(a, b string) bool {
	x, ok := addressSpace(a)
	if !ok {
		return false
	}
	y, ok := addressSpace(b)
	return ok && x == y
}

// addressSpace returns the task in a name; false if the name lacks a part of it.
func addressSpace(name string) (Task, bool) {
	var p Pattern
	_, why := p.parse(name)
	return p.device().Task, why == "" && p.HasJob && p.HasReplica && p.HasTask
}

// DeviceOf returns the device that each process has, CPU:0 of its task.
func DeviceOf(task Task) Device { return Device{Task: task, Type: "CPU"} }
