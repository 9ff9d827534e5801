//go:build interop

package tensorflow_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// command is a running tryst-tensorflow serve.
type command struct {
	t    testing.TB
	path string // of the binary
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and all that it wrote has been read

	mu  sync.Mutex // guards log
	log bytes.Buffer
}

// documented returns the arguments of the command tryst in a document, with the addresses of a
// cluster.
func documented(t testing.TB, c tasks, document string) []string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^tryst (serve --task \S+ --cluster) '(ps=)\S+?(;chief=)\S+'$`).FindSubmatch(text)
	if line == nil {
		t.Fatalf("%s has no line that starts a ps", document)
	}
	return append(strings.Fields(string(line[1])), string(line[2])+c["ps"][0]+string(line[3])+c["chief"][0])
}

// startCommand builds tryst-tensorflow and starts it with some arguments. It ends with the test.
func startCommand(t testing.TB, arguments ...string) *command {
	t.Helper()
	s := &command{t: t, path: filepath.Join(t.TempDir(), "tryst-tensorflow"), done: make(chan struct{})}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", s.path, "../../cmd/tryst-tensorflow")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	s.cmd = exec.Command(s.path, arguments...)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serving := make(chan struct{})
	go s.read(bufio.NewScanner(stderr), serving)
	t.Cleanup(func() {
		s.stop()
		if t.Failed() {
			t.Logf("tryst-tensorflow wrote:\n%s", s.text())
		}
	})
	select {
	case <-serving:
	case <-s.done:
		t.Fatalf("tryst-tensorflow ended: %s", s.text())
	}
	return s
}

// read collects the log, and closes serving at the line that reports the address.
func (s *command) read(lines *bufio.Scanner, serving chan struct{}) {
	defer close(s.done)
	for lines.Scan() {
		s.mu.Lock()
		fmt.Fprintln(&s.log, lines.Text())
		s.mu.Unlock()
		if serving != nil && strings.Contains(lines.Text(), "msg=serving address=") {
			close(serving)
			serving = nil
		}
	}
}

func (s *command) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// stop ends the server as an operator does, and checks that it ends well and takes its kernel
// process along.
func (s *command) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	<-s.done
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("tryst-tensorflow: %v", err)
	}
	if left := s.children(); len(left) > 0 {
		s.t.Errorf("tryst-tensorflow has left the processes %v", left)
	}
}

// children returns the process ids of the kernel processes.
func (s *command) children() (ids []int) {
	s.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		line, _ := os.ReadFile(f) // an error says that the process has ended
		if words := strings.Split(string(line), "\x00"); slices.Equal(words[:min(2, len(words))], []string{s.path, "kernel-process"}) {
			id, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			if err != nil {
				s.t.Fatal(err)
			}
			ids = append(ids, id)
		}
	}
	return ids
}

// TestCommand: tryst-tensorflow is the ps of a training, by the command of the documents. Its kernel process is killed in a
// step, then ends in another one by a failed check of TensorFlow. The steps fail in words, the
// server goes on, and new sessions train and compute.
func TestCommand(t *testing.T) {
	directory, err := libraryDirectory()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	arguments := documented(t, c, "../../docs/tensorflow.md")
	if other := documented(t, c, "../../examples/tensorflow-ps/README.md"); !slices.Equal(other, arguments) {
		t.Errorf("the documents name the commands %v and %v", arguments, other)
	}
	chief := c.beginTask(t, "chief", 0)
	s := startCommand(t, append(arguments, "--tensorflow-library", directory, "--kernel-process")...)
	chief.ready()

	wantError := func(t *testing.T, v any, words ...string) {
		t.Helper()
		const unavailable = 14.0
		e, _ := v.([]any)
		if len(e) != 2 || e[0] != unavailable {
			t.Fatalf("the step ended with %v, want Unavailable", v)
		}
		text, _ := e[1].(string)
		for _, w := range append(words, "TensorFlow's kernel process was killed by ", ", and the variables of its sessions are lost; the next session gets a new one.") {
			if !strings.Contains(text, w) {
				t.Errorf("the error is %s\nwant %q in it", text, w)
			}
		}
	}
	t.Run("killed", func(t *testing.T) {
		chief := chief.in(t)
		chief.begin("kernel_process_killed", args{"ps": "/job:ps"})
		chief.event("in a step")
		ids := s.children()
		if len(ids) != 1 {
			t.Fatalf("tryst-tensorflow has the kernel processes %v, want one", ids)
		}
		if err := syscall.Kill(ids[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		chief.reply("")
		v, _ := chief.result().Value.(map[string]any)
		errs, _ := v["error"].([]any)
		if len(errs) != 1 {
			t.Fatalf("the step ended with %v, want one error", errs)
		}
		wantError(t, errs[0], `the signal "killed"`, "node")
		wantNear(t, "the losses", v["second"], v["first"], 1e-6)
	})
	t.Run("failed check", func(t *testing.T) {
		v, _ := chief.in(t).value("failed_check", args{"on": "/job:ps/task:0/device:CPU:0"}).(map[string]any)
		wantError(t, v["error"], "abort", "Check failed: 1 == NumElements() (1 vs. 2)")
		wantNear(t, "the value of another session", v["after"], []any{2.0}, 0)
	})
}
