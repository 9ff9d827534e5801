package vm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// setup is a Config whose emulator behaves as said; see beQEMU.
func setup(t *testing.T, behaviour string) (Config, kernel, *os.File, *witness) {
	t.Helper()
	w := newWitness(t, behaviour)
	c, k, initramfs, err := fakeConfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { initramfs.Close() })
	return c, k, initramfs, w
}

func bootGood(t *testing.T) (*Machine, *witness) { return bootAs(t, "good") }

func bootAs(t *testing.T, behaviour string) (*Machine, *witness) {
	t.Helper()
	c, k, initramfs, w := setup(t, "tcg="+behaviour)
	c.Accelerator = TCG
	m, err := c.boot(t.Context(), k, initramfs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, w
}

func TestRunGivesOutputAndStatus(t *testing.T) {
	m, _ := bootGood(t)
	for range 2 { // One machine, many commands.
		var out, errs bytes.Buffer
		status, err := m.Run(t.Context(), Command{Args: []string{"say", "a b", "c"}, Dir: "/d", Env: []string{"X=1"}, Stdout: &out, Stderr: &errs})
		if err != nil {
			t.Fatal(err)
		}
		if status != 3 || out.String() != "out a b,c /d\n" || errs.String() != "err X=1\n" {
			t.Errorf("status %d, output %q, errors %q", status, &out, &errs)
		}
	}
}

func TestRunSaysWhyACommandDidNotStart(t *testing.T) {
	m, _ := bootGood(t)
	var out, errs bytes.Buffer
	status, err := m.Run(t.Context(), Command{Args: []string{"missing"}, Stdout: &out, Stderr: &errs})
	if err != nil || status != 127 || errs.String() != "missing: not found\n" {
		t.Errorf("status %d, error %v, errors %q", status, err, &errs)
	}
}

func TestGuestThatPanics(t *testing.T) {
	m, w := bootGood(t)
	_, ended := w.started()
	_, err := m.Run(t.Context(), Command{Args: []string{"panic"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	want(t, err, "panic in the VM: the guest has stopped\nthe console's last lines:\n", "Kernel panic - not syncing: Fatal exception")
	ended()
}

// A guest that is gone before it has the whole command is told as one that goes while it runs.
func TestGuestThatPanickedBefore(t *testing.T) {
	m, _ := bootAs(t, "leaves")
	<-m.ended
	_, err := m.Run(t.Context(), Command{Args: []string{"say"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	want(t, err, "say in the VM: the guest has stopped\nthe console's last lines:\n", "Kernel panic - not syncing: Fatal exception")
}

// Whoever takes the output may be slower than the guest: what it said before its end is what tells why.
func TestOutputBeforeTheEndArrives(t *testing.T) {
	m, _ := bootGood(t)
	var out strings.Builder
	slow := writer(func(p []byte) {
		<-m.ended
		out.Write(p)
	})
	_, err := m.Run(t.Context(), Command{Args: []string{"talk and end"}, Stdout: slow, Stderr: slow})
	want(t, err, "talk and end in the VM: the guest has stopped\n")
	if n := strings.Count(out.String(), "\n"); n != 100 || !strings.HasSuffix(out.String(), "line 99\n") {
		t.Errorf("%d lines of 100 came:\n%s", n, &out)
	}
}

func TestGuestThatHangsIsKilledAtTheDeadline(t *testing.T) {
	m, w := bootGood(t)
	_, ended := w.started()
	ctx, cancel := context.WithCancelCause(t.Context())
	m.console.mu.Lock()
	m.console.also = writer(func(p []byte) { // As a deadline would, when it hangs.
		if bytes.Contains(p, []byte("stalls")) {
			cancel(errors.New("killed after 20m0s"))
		}
	})
	m.console.mu.Unlock()
	_, err := m.Run(ctx, Command{Args: []string{"hang"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	want(t, err, "hang in the VM: killed after 20m0s\nthe console's last lines:\n", "Booting from ROM...", "rcu_preempt detected stalls")
	m.Close()
	ended()
}

func TestGuestThatSaysWhatItMayNot(t *testing.T) {
	m, _ := bootGood(t)
	_, err := m.Run(t.Context(), Command{Args: []string{"alive"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	want(t, err, `the guest says 'A' while a command runs`)
}

func TestOutputThatNobodyTakesEndsTheCommand(t *testing.T) {
	m, _ := bootGood(t)
	_, err := m.Run(t.Context(), Command{Args: []string{"say"}, Stdout: broken{}, Stderr: broken{}})
	want(t, err, "nobody reads")
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestBootThatFails(t *testing.T) {
	tests := []struct {
		behaviour string
		want      []string
	}{
		{"aborts", []string{"boot the VM (kvm): the guest has stopped", "failed to set MSR 0x10a", "exit status 134"}},
		{"hangs", []string{"boot the VM (kvm): the kernel has not started after 300ms", "Booting from ROM..."}},
		{"fails", []string{"boot the VM (kvm): the guest gave up: mount tryst.root (9p): no such device"}},
		{"gives-up", []string{"boot the VM (kvm): the guest gave up: mount tryst.root (9p): no such device"}},
		{"babbles", []string{"boot the VM (kvm): the guest does not keep to the language of frames: frame of unknown kind 'G'"}},
	}
	for _, tt := range tests {
		t.Run(tt.behaviour, func(t *testing.T) {
			c, k, initramfs, w := setup(t, "kvm="+tt.behaviour)
			c.Accelerator = KVM
			if tt.behaviour == "hangs" {
				c.host.kvmDeadline = 300 * time.Millisecond
			}
			_, err := c.boot(t.Context(), k, initramfs)
			want(t, err, tt.want...)
			if tt.behaviour == "hangs" && strings.Contains(err.Error(), "\x1b") {
				t.Errorf("the console's controls are in the error: %q", err)
			}
			_, ended := w.started()
			ended()
		})
	}
}

func TestInterruptedBootLeavesNoEmulator(t *testing.T) {
	c, k, initramfs, w := setup(t, "tcg=slow")
	c.Accelerator = TCG
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.boot(ctx, k, initramfs)
		done <- err
	}()
	_, ended := w.started()
	cancel(errors.New("interrupt"))
	want(t, <-done, "boot the VM (tcg): interrupt")
	ended()
}

// A machine that nobody closes ends with the context that it was booted with.
func TestMachineEndsWithItsContext(t *testing.T) {
	c, k, initramfs, w := setup(t, "tcg=good")
	c.Accelerator = TCG
	ctx, cancel := context.WithCancel(t.Context())
	m, err := c.boot(ctx, k, initramfs)
	if err != nil {
		t.Fatal(err)
	}
	_, ended := w.started()
	cancel()
	ended()
	_, err = m.Run(t.Context(), Command{Args: []string{"say"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	if err == nil {
		t.Error("a command ran after the end")
	}
	m.Close()
}

// KVM is tried once where it may work; what was found is remembered.
func TestAutoFindsTheAccelerator(t *testing.T) {
	tests := []struct {
		name, behaviour string
		noDevice        bool
		first, second   []string // the accelerators tried in two boots
	}{
		{"KVM works", "kvm=good", false, []string{"kvm"}, []string{"kvm"}},
		{"KVM aborts", "kvm=aborts tcg=good", false, []string{"kvm", "tcg"}, []string{"tcg"}},
		{"KVM hangs", "kvm=hangs tcg=good", false, []string{"kvm", "tcg"}, []string{"tcg"}},
		{"no KVM", "tcg=good", true, []string{"tcg"}, []string{"tcg"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, k, initramfs, w := setup(t, tt.behaviour)
			if tt.behaviour != "kvm=good" {
				c.host.kvmDeadline = 300 * time.Millisecond
			}
			if tt.noDevice {
				c.host.kvm = filepath.Join(t.TempDir(), "none")
			}
			for _, tries := range [][]string{tt.first, tt.second} {
				m, err := c.boot(t.Context(), k, initramfs)
				if err != nil {
					t.Fatal(err)
				}
				if last := tries[len(tries)-1]; string(m.Accelerator) != last {
					t.Errorf("runs on %s, want %s", m.Accelerator, last)
				}
				m.Close()
				var tried []string
				for range tries {
					accel, ended := w.started()
					ended()
					tried = append(tried, accel)
				}
				if !slices.Equal(tried, tries) {
					t.Errorf("tried %v, want %v", tried, tries)
				}
			}
			if said := fmt.Sprint(c.Log); len(tt.first) > 1 && strings.Count(said, "KVM does not work here, emulating from now on: boot the VM (kvm): ") != 1 {
				t.Errorf("log %q, want one line on KVM", said)
			}
		})
	}
}

// A guest that has spoken under KVM and then fails by itself says nothing about KVM.
func TestAGuestsOwnFailureIsNotKVMs(t *testing.T) {
	c, k, initramfs, _ := setup(t, "kvm=fails tcg=good")
	for range 2 {
		m, err := c.boot(t.Context(), k, initramfs)
		if err != nil {
			t.Fatal(err)
		}
		if m.Accelerator != TCG {
			t.Errorf("runs on %s", m.Accelerator)
		}
		m.Close()
	}
	if n := strings.Count(fmt.Sprint(c.Log), "the guest failed under KVM, emulating this time: boot the VM (kvm): the guest gave up: mount"); n != 2 {
		t.Errorf("KVM was tried %d times in two boots; log:\n%s", n, c.Log)
	}
}

// What was found out about KVM is for the next boot: this one has its machine also where nothing can be written.
func TestBootWithoutMemory(t *testing.T) {
	for behaviour, accel := range map[string]Accelerator{"kvm=good": KVM, "kvm=aborts tcg=good": TCG} {
		c, k, initramfs, _ := setup(t, behaviour)
		if err := os.Mkdir(c.memory(), 0o755); err != nil { // No file can be written in its place, as on a full disk.
			t.Fatal(err)
		}
		m, err := c.boot(t.Context(), k, initramfs)
		if err != nil {
			t.Fatal(err)
		}
		if m.Accelerator != accel {
			t.Errorf("%s: runs on %s", behaviour, m.Accelerator)
		}
		m.Close()
		if said := fmt.Sprint(c.Log); !strings.Contains(said, "whether KVM works will be found out again next time: open ") {
			t.Errorf("log %q", said)
		}
	}
}

// An emulator that cannot be started is an error, not a hang.
func TestNoEmulator(t *testing.T) {
	c, k, initramfs, _ := setup(t, "tcg=good")
	c.Accelerator = TCG
	c.host.qemu = filepath.Join(t.TempDir(), "qemu")
	_, err := c.boot(t.Context(), k, initramfs)
	want(t, err, "start QEMU: ")
}

// However this process ends, the emulator does not outlive it.
func TestEmulatorDiesWithItsParent(t *testing.T) {
	_, _, _, w := setup(t, "tcg=good kvm=good")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(parent.Environ(), playParent+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "booted <nil>\n" {
		t.Errorf("the parent says %q (%v)", line, err)
	}
	_, ended := w.started()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	ended()
}

func TestCommasInPathsReachQEMU(t *testing.T) {
	c := Config{Share: "/a,b", host: host{qemu: "qemu"}}
	args := strings.Join(c.args(TCG, kernel{dir: "/k"}), " ")
	if !strings.Contains(args, "path=/a,,b,security_model=none") {
		t.Errorf("arguments %s", args)
	}
	if !strings.Contains(args, "path=/,security_model=none,multidevs=remap,readonly=on") {
		t.Errorf("the host's root is not read-only: %s", args)
	}
}

func want(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q\nlacks %q", err, w)
		}
	}
}
