//go:build interop

package tensorflow_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// touch runs a graph that uses a file on a task, and returns the code and the text of its error, or its value.
func touch(t *testing.T, chief *python, job, how, path string) (code status.Code, text string) {
	t.Helper()
	v, ok := chief.in(t).value("touch_file", args{"on": "/job:" + job + "/task:0/device:CPU:0", "path": path, "how": how}).([]any)
	if !ok || len(v) != 2 {
		t.Fatalf("the program returned %v", v)
	}
	n, _ := v[0].(float64)
	text, _ = v[1].(string)
	return status.Code(n), text
}

// TestGraphsUseNoFiles: a graph that reads or writes a file on the task is refused, in whatever function the op
// is. What stays in memory runs.
func TestGraphsUseNoFiles(t *testing.T) {
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	c.startTryst(t, serverTask{Job: "ps", Kernels: "tensorflow"})
	chief := c.startTask(t, "chief", 0)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"read", "function", "nested", "map", "write", "print", "cache"} {
		t.Run(how, func(t *testing.T) {
			code, text := touch(t, chief, "ps", how, secret)
			if code != status.PermissionDenied || !strings.Contains(text, "--tensorflow-files DIR") {
				t.Errorf("%v: %s\nwant PermissionDenied and what to do", code, text)
			}
		})
	}
	for _, how := range []string{"print to stderr", "cache in memory"} {
		t.Run(how, func(t *testing.T) {
			if code, text := touch(t, chief, "ps", how, secret); code != status.OK {
				t.Errorf("%v: %s", code, text)
			}
		})
	}
	if entries, err := os.ReadDir(filepath.Dir(secret)); err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	if text, err := os.ReadFile(secret); err != nil || string(text) != "secret" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// TestGraphsUseFilesBelow: with a directory for files graphs use those below it, and get the system's
// refusal for all others.
func TestGraphsUseFilesBelow(t *testing.T) {
	inside, outside := t.TempDir(), t.TempDir()
	c := newCluster(t, map[string]int{"chief": 1, "ps": 1})
	c.startTryst(t, serverTask{Job: "ps", Kernels: "process", Files: inside})
	chief := c.startTask(t, "chief", 0)
	for _, dir := range []string{inside, outside} {
		if err := os.WriteFile(filepath.Join(dir, "there"), []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, how := range []string{"read", "function", "nested", "map", "write", "print", "cache"} {
		t.Run(how, func(t *testing.T) {
			name := "there"
			if how == "write" || how == "print" || how == "cache" {
				name = how
			}
			if code, text := touch(t, chief, "ps", how, filepath.Join(inside, name)); code != status.OK {
				t.Errorf("below the directory: %v: %s", code, text)
			}
			code, text := touch(t, chief, "ps", how, filepath.Join(outside, name))
			if how == "print" { // PrintV2 logs that it cannot open the file
				return
			}
			if code != status.PermissionDenied || !strings.Contains(text, "Permission denied") {
				t.Errorf("outside: %v: %s", code, text)
			}
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("the directory outside has %v, %v", entries, err)
	}
}
