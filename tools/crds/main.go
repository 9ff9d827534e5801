// Command crds checks the objects of other projects' kinds in Kubernetes manifests, as kustomize writes them, for which
// kubernetes-validate has no schema:
//
//	crds build/deploy/tls.yaml build/deploy/monitoring.yaml
//
// Each is read strictly into the type of its project, in the version of go.mod: a field that the type does not have, a value of
// another type, a field that is there twice, and a required one that is missing are faults. Kinds of Kubernetes itself are left to
// kubernetes-validate; a kind that neither knows is a fault, so that none goes unchecked.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run checks files and returns the exit status: 1 for faults, 2 for wrong usage.
func run(files []string, out, errs io.Writer) int {
	if len(files) == 0 {
		fmt.Fprintln(errs, "Usage: crds MANIFEST.yaml...")
		return 2
	}
	status := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(errs, "crds:", err)
			status = 1
			continue
		}
		checked, faults := check(text)
		for _, f := range faults {
			fmt.Fprintf(errs, "%s: %v\n", file, f)
			status = 1
		}
		fmt.Fprintf(out, "%s: %d objects of other projects' kinds\n", file, checked)
	}
	return status
}
