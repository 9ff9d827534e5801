// Command tryst-tensorflow is tryst with TensorFlow's kernels: its serve runs the graphs that
// TensorFlow masters register with the kernels of a TensorFlow library, which it opens when it
// starts.
//
//	tryst-tensorflow serve --tensorflow-library DIR
//
// Graphs come from everybody who reaches the port. Those that read or write files are refused unless
// --tensorflow-files allows it, and beyond loopback serve wants mutual TLS or
// --allow-anyone-to-run-graphs.
//
// All other commands are those of tryst. The program is linked dynamically, which tryst is not.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/command"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/library"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// logLevel is the variable that keeps TensorFlow's library from writing more than errors to stderr,
// which it does for each step that ends with an error otherwise.
const logLevel = "TF_CPP_MIN_LOG_LEVEL"

// kernelProcess is the first argument of the child that --kernel-process starts. No command has the
// name.
const kernelProcess = "kernel-process"

func main() {
	if len(os.Args) >= 3 && os.Args[1] == kernelProcess {
		if err := library.ServeProcess(os.Args[2], os.Args[3:]...); err != nil {
			fmt.Fprintln(os.Stderr, "tryst-tensorflow: "+err.Error())
			os.Exit(1)
		}
		return
	}
	var f flags
	os.Exit(command.Main(command.Options{Name: "tryst-tensorflow", ServeFlags: f.register, Kernels: f.kernels, FilesUsage: filesUsage}))
}

// flags are those that this serve has beside the ones of tryst.
type flags struct {
	library  string
	process  bool
	allFiles bool
}

// filesUsage is the help of --tensorflow-files.
const filesUsage = "let graphs read and write files below `directory`, and no others, by Landlock; may be repeated; implies --kernel-process. With --kernels go: checkpoints, and no Landlock"

func (f *flags) register(set *pflag.FlagSet) {
	set.StringVar(&f.library, "tensorflow-library", "", "`directory` of libtensorflow_cc.so.2 (default that of the python3 on PATH)")
	set.BoolVar(&f.process, "kernel-process", false, "run TensorFlow's kernels in a child process, which a failed check of TensorFlow may end without the server")
	set.BoolVar(&f.allFiles, "tensorflow-all-files", false, "let graphs read and write every file that the user of this process can, also where the system has no Landlock")
}

// kernels opens TensorFlow's library. files are the directories below which graphs may use files.
func (f *flags) kernels(log *slog.Logger, files []string) (graph.KernelSet, func(), error) {
	if err := sources.SetForLibrary(logLevel, "2"); err != nil {
		return nil, nil, err
	}
	inGo := ops.New()
	if err := inGo.AddCollectives(); err != nil {
		return nil, nil, err
	}
	o := library.Options{Directory: f.library, Go: inGo}
	switch {
	case f.allFiles && len(files) > 0:
		return nil, nil, status.New(status.InvalidArgument, "--tensorflow-files and --tensorflow-all-files are both set; leave out the second to allow only files below the directories")
	case f.allFiles:
		o.Files = library.AllFiles
		log.Warn("graphs may use every file that the user of this process can; --tensorflow-files DIR allows files below DIR only")
	case len(files) > 0:
		o.Files, o.Directories = library.FilesBelow, files
	}
	if f.process || len(files) > 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, nil, err
		}
		o.Process = []string{self, kernelProcess}
	}
	set, err := library.Open(o)
	if err != nil {
		return nil, nil, err
	}
	log.Info("graphs run with TensorFlow's kernels", "version", set.Version(), "library", set.Directory(), "child", len(o.Process) > 0, "files", o.Files.String(), "below", files)
	return set, set.Close, nil
}
