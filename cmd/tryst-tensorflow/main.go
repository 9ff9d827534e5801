// Command tryst-tensorflow is tryst with TensorFlow's kernels: its serve runs the graphs that
// TensorFlow masters register with the kernels of a TensorFlow library, which it opens when it
// starts.
//
//	tryst-tensorflow serve --tensorflow-library DIR
//
// All other commands are those of tryst. The program is linked dynamically, which tryst is not.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/graph"
	"github.com/tryst-rdma/tryst/graph/ops"
	"github.com/tryst-rdma/tryst/graph/tfkernels"
	"github.com/tryst-rdma/tryst/internal/command"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/worker/collective"
)

// logLevel is the variable that keeps TensorFlow's library from writing more than errors to stderr,
// which it does for each step that ends with an error otherwise.
const logLevel = "TF_CPP_MIN_LOG_LEVEL"

// kernelProcess is the first argument of the child that --kernel-process starts. No command has the
// name.
const kernelProcess = "kernel-process"

func main() {
	if len(os.Args) == 3 && os.Args[1] == kernelProcess {
		if err := tfkernels.ServeProcess(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "tryst-tensorflow: "+err.Error())
			os.Exit(1)
		}
		return
	}
	var directory string
	var inChild bool
	os.Exit(command.Main(command.Options{
		Name: "tryst-tensorflow",
		ServeFlags: func(flags *pflag.FlagSet) {
			flags.StringVar(&directory, "tensorflow-library", "", "`directory` of libtensorflow_cc.so.2 (default that of the python3 on PATH)")
			flags.BoolVar(&inChild, "kernel-process", false, "run TensorFlow's kernels in a child process, which a failed check of TensorFlow may end without the server")
		},
		Kernels: func(log *slog.Logger) (graph.KernelSet, func(), error) {
			if err := sources.SetForLibrary(logLevel, "2"); err != nil {
				return nil, nil, err
			}
			inGo := ops.New()
			if err := collective.Register(inGo); err != nil {
				return nil, nil, err
			}
			o := tfkernels.Options{Directory: directory, Go: inGo}
			if inChild {
				self, err := os.Executable()
				if err != nil {
					return nil, nil, err
				}
				o.Process = []string{self, kernelProcess}
			}
			set, err := tfkernels.Open(o)
			if err != nil {
				return nil, nil, err
			}
			log.Info("graphs run with TensorFlow's kernels", "version", set.Version(), "library", set.Directory(), "child", inChild)
			return set, set.Close, nil
		},
	}))
}
