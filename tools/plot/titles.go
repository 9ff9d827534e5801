package main

import (
	"path/filepath"
	"strings"
)

// titleOf returns the title of a file's picture: what the commands of internal/bench write has one.
func titleOf(file string) string {
	name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
	known := map[string]string{
		"local":      "Within a process: the rendezvous beside a map under a lock",
		"grpc":       "Receives over gRPC beside bare gRPC calls",
		"verbs":      "Receives over verbs",
		"roce":       "Receives over the RoCEv2 endpoint in Go",
		"rxe":        "Receives over the kernel's Soft-RoCE beside perftest",
		"routes":     "Routes within a host beside copies, sockets and our own gRPC",
		"peers":      "Routes within a host beside UCX, NIXL and gloo",
		"allreduce":  "All-reduce among four processes, beside gloo",
		"pull":       "The whole job: tryst pull beside curl, cp and a copy in memory",
		"tensorflow": "Steps of a TensorFlow client, beside a task of TensorFlow",
		"versions":   "Versions of weights: updates of a publication",
	}
	if t, ok := known[name]; ok {
		return t
	}
	return name
}
