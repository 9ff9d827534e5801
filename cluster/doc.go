// Package cluster has the names and addresses of a cluster: tasks, devices, incarnations, the
// cluster spec, and TensorFlow's TF_CONFIG.
//
//	/job:worker/replica:0/task:3                a task: one process
//	/job:worker/replica:0/task:3/device:CPU:0   a device of that process
//	/job:worker/replica:0/task:3/cpu:0          the same in its legacy form
//	/job:worker/device:GPU:*                    a pattern: any GPU of the job
//
// A name is parsed once and then compared as a value with ==, never as text: /task:1 is a
// prefix of /task:10 but another task; /cpu:0 and /device:CPU:0 are different texts for the
// same device. The grammar is that of TensorFlow's DeviceNameUtils::ParseFullName:
//
//	name   = "/" | { part }
//	part   = "/job:" (job | "*") | "/replica:" number | "/task:" number
//	       | "/device:" (type | "*") [ ":" number ] | legacy
//	legacy = ("/cpu:" | "/CPU:" | "/gpu:" | "/GPU:") number
//	job    = letter { letter | digit | "_" }        (type likewise, ASCII)
//	number = digit { digit } | "*"
//
// Parts come in any order. Two things that TensorFlow accepts are errors here: a repeated
// part, and a number above 2^31-1, which overflows in TensorFlow.
//
// Everything in this package is a value or immutable, and safe for concurrent use. Errors are
// [*status.Error] with the code InvalidArgument unless documented otherwise.
package cluster

import (
	"fmt"
	"strconv"

	"github.com/tryst-rdma/tryst/status"
)

// invalid returns an InvalidArgument error about an input of the given kind.
func invalid(kind, input, format string, args ...any) *status.Error {
	return status.Errorf(status.InvalidArgument, "%s %s: %s", kind, quote(input), fmt.Sprintf(format, args...))
}

// quote returns s quoted, shortened to maxQuoted bytes.
func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "..."
	}
	return strconv.Quote(s)
}
