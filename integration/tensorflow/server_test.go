//go:build interop

package tensorflow_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/library"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// serverVariable is the environment variable that makes the test's binary a Tryst server: it has
// the task as JSON.
const serverVariable = "TRYST_INTEROP_SERVER"

// serverTask is the task of a Tryst server in a process of its own.
type serverTask struct {
	Cluster tasks
	Job     string
	Task    int
	Kernels string
	// Files is the directory below which graphs may use files; for the kernel sets process and go.
	Files string
	// Provider moves values between Tryst tasks over verbs, by one of the providers. Empty: over gRPC.
	Provider string
}

// sets is the kernel sets of the tests. A test with both has a task of each, in a job with the name
// of the set.
var sets = []string{"go", "tensorflow"}

// kernels returns the kernel set of the task.
func (s serverTask) kernels() (graph.KernelSet, error) {
	switch s.Kernels {
	case "go":
		k, err := goKernels()
		if err == nil && s.Files != "" {
			err = k.AllowFiles(s.Files)
		}
		return k, err
	case "tensorflow":
		return openTensorFlow()
	case "all files":
		return openLibrary(library.Options{Files: library.AllFiles})
	case "process": // in a child process of its own
		o := library.Options{Process: []string{os.Args[0], kernelProcess}}
		if s.Files != "" {
			o.Files, o.Directories = library.FilesBelow, []string{s.Files}
		}
		return openLibrary(o)
	}
	return nil, fmt.Errorf("kernel set %q: must be one of %v, all files or process", s.Kernels, sets)
}

// goKernels returns the kernels in Go, those of collectives included.
func goKernels() (*ops.Registry, error) {
	k := ops.New()
	return k, k.AddCollectives()
}

// libraryDirectory returns the directory of the TensorFlow that the tests run against.
func libraryDirectory() (string, error) {
	find := "import importlib.util, os; print(os.path.dirname(importlib.util.find_spec('tensorflow').origin))"
	directory, err := exec.Command(os.Getenv("TENSORFLOW_PYTHON"), "-c", find).Output()
	if err != nil {
		return "", fmt.Errorf("find TensorFlow by TENSORFLOW_PYTHON: %w", err)
	}
	return strings.TrimSpace(string(directory)), nil
}

// openTensorFlow opens the library of that TensorFlow, once for the process.
var openTensorFlow = sync.OnceValues(func() (graph.KernelSet, error) { return openLibrary(library.Options{}) })

// kernelProcess is the first argument of the test's binary as a kernel process.
const kernelProcess = "kernel-process"

func openLibrary(o library.Options) (graph.KernelSet, error) {
	directory, err := libraryDirectory()
	if err != nil {
		return nil, err
	}
	own, err := goKernels()
	if err != nil {
		return nil, err
	}
	o.Directory, o.Go = directory, own
	return library.Open(o)
}

// settings returns the settings of a Tryst server of a task.
func (s serverTask) settings() server.Config {
	c := server.Config{}
	c.Listen = s.Cluster[s.Job][s.Task]
	c.Task = cluster.Task{Job: s.Job, Index: s.Task}.String()
	if s.Provider != "" {
		c.Transport, c.Provider = "verbs", s.Provider
		c.RDMA.Arena, c.RDMA.ArenaLimit = 4<<20, 64<<20
	}
	c.Cluster = s.Cluster
	return c
}

// serve is the main function of a Tryst server in a process of its own. It ends with its standard
// input.
func serve() {
	var task serverTask
	err := json.Unmarshal([]byte(os.Getenv(serverVariable)), &task)
	if err == nil {
		err = task.serve()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (s serverTask) serve() error {
	k, err := s.kernels()
	if err != nil {
		return err
	}
	srv, err := server.Start(context.Background(), s.settings(), server.Options{Kernels: k})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return srv.Close(context.Background())
}

// trystProcess is a Tryst server in a process of its own, which a test can kill and stop.
type trystProcess struct {
	t     testing.TB
	task  serverTask
	cmd   *exec.Cmd
	stdin io.Closer
	ended sync.Once
}

// startTrystProcess starts a Tryst server for a task. It ends with the test.
func (c tasks) startTrystProcess(t testing.TB, task serverTask) *trystProcess {
	t.Helper()
	task.Cluster = c
	p := &trystProcess{t: t, task: task}
	p.start()
	t.Cleanup(func() { p.end() })
	return p
}

func (p *trystProcess) start() {
	p.t.Helper()
	task, err := json.Marshal(p.task)
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.ended = exec.Command(os.Args[0]), sync.Once{}
	p.cmd.Env = append(os.Environ(), serverVariable+"="+string(task))
	p.cmd.Stderr = p.t.Output()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ready := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		ready <- strings.TrimSpace(line)
	}()
	if line := await(p.t, ready, "the start of a Tryst server"); line != "ready" {
		p.t.Fatalf("the Tryst server printed %q, want ready", line)
	}
}

func (p *trystProcess) end() {
	p.ended.Do(func() {
		p.stdin.Close()
		_ = p.cmd.Wait()
	})
}

func (p *trystProcess) kill() {
	_ = p.cmd.Process.Kill()
	p.end()
}

// restart starts the server again after a kill.
func (p *trystProcess) restart() {
	p.t.Helper()
	p.kill()
	p.start()
}

func (p *trystProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if s == syscall.SIGSTOP {
		p.t.Cleanup(func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }) // so that it can end when the test has failed
	}
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}
