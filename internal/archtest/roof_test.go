//go:build !race

package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// tensorflowUsers are the directories whose code may import what is below tensorflow/ and internal/tensorflow/ (what importers do not
// need of it). A reader of all others leaves these two closed. The messages of TensorFlow, in proto/tensorflow, are the wire of all.
var tensorflowUsers = []string{
	".",                // WithKernels takes the kernels of graphs
	"server",           // serves the worker
	"cmd",              // tryst-tensorflow opens TensorFlow's library
	"internal/command", // tryst serve --kernels
	"internal/bench",
	"examples",
	"tensorflow",
	"internal/tensorflow",
}

// checkRoof returns one line for each import of TensorFlow's folder by code that is not of the users. Tests are apart.
func checkRoof(files []goFile, users []string) (complaints []string) {
	for _, s := range files {
		if s.isTest() || slices.ContainsFunc(users, func(u string) bool { return s.dir() == u || strings.HasPrefix(s.dir(), u+"/") && u != "." }) {
			continue
		}
		for _, imp := range s.file.Imports {
			p := strings.Trim(imp.Path.Value, `"`)
			if strings.HasPrefix(p, module+"/tensorflow/") || strings.HasPrefix(p, module+"/internal/tensorflow/") {
				complaints = append(complaints, fmt.Sprintf("%s imports %s: only %s may import what is below tensorflow/", s.path, p, strings.Join(users, ", ")))
			}
		}
	}
	return complaints
}

func TestTensorFlowIsUnderOneRoof(t *testing.T) {
	for _, c := range checkRoof(tree(t), tensorflowUsers) {
		t.Error(c)
	}
}

func TestCheckRoof(t *testing.T) {
	const imports = "\n\nimport _ \"" + module + "/tensorflow/graph\"\n"
	same(t, checkRoof(made(t,
		"x.go", "package m"+imports,
		"server/x.go", "package server"+imports,
		"server/room/x.go", "package room"+imports,
		"serverless/x.go", "package serverless"+imports,
		"transport/x.go", "package transport"+imports,
		"transport/x_test.go", "package transport"+imports,
		"transport/z.go", "package transport\n\nimport _ \""+module+"/internal/tensorflow/worker\"\n",
		"transport/y.go", "package transport\n\nimport _ \""+module+"/proto/tensorflow\"\n",
	), []string{".", "server"}),
		"serverless/x.go imports "+module+"/tensorflow/graph: only ., server may import what is below tensorflow/",
		"transport/x.go imports "+module+"/tensorflow/graph: only ., server may import what is below tensorflow/",
		"transport/z.go imports "+module+"/internal/tensorflow/worker: only ., server may import what is below tensorflow/",
	)
}
