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

// setup returns a Config whose emulator has the given behaviour, see runQEMU.
func setup(t *testing.T, behaviour string) (Config, kernel, *os.File, *observer) {
	t.Helper()
	o := newObserver(t, behaviour)
	c, k, initramfs, err := fakeConfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { initramfs.Close() })
	return c, k, initramfs, o
}

// bootFake boots a machine whose guest runs commands.
func bootFake(t *testing.T) (*Machine, *observer) { return bootWith(t, "boots") }

func bootWith(t *testing.T, behaviour string) (*Machine, *observer) {
	t.Helper()
	c, k, initramfs, o := setup(t, "tcg="+behaviour)
	c.Accelerator = TCG
	m, err := c.boot(t.Context(), k, initramfs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, o
}

func TestRunReturnsOutputAndStatus(t *testing.T) {
	m, _ := bootFake(t)
	for range 2 { // a machine runs several commands
		var out, errs bytes.Buffer
		status, err := m.Run(t.Context(), Command{Args: []string{"say", "a b", "c"}, Dir: "/d", Env: []string{"X=1"}, Stdout: &out, Stderr: &errs})
		if err != nil {
			t.Fatal(err)
		}
		if status != 3 || out.String() != "out a b,c /d\n" || errs.String() != "err X=1\n" {
			t.Errorf("status %d, output %q, errors %q; want 3 and what the command wrote", status, &out, &errs)
		}
	}
}

func TestRunReportsACommandThatDidNotStart(t *testing.T) {
	m, _ := bootFake(t)
	var out, errs bytes.Buffer
	status, err := m.Run(t.Context(), Command{Args: []string{"missing"}, Stdout: &out, Stderr: &errs})
	if err != nil || status != 127 || errs.String() != "missing: not found\n" {
		t.Errorf("status %d, error %v, errors %q; want 127 and the reason", status, err, &errs)
	}
}

func TestPanicDuringACommand(t *testing.T) {
	m, o := bootFake(t)
	_, ended := o.started()
	_, err := m.Run(t.Context(), Command{Args: []string{"panic"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	wantError(t, err, "panic in the VM: the guest has stopped\nthe console's last lines:\n", "Kernel panic - not syncing: Fatal exception")
	ended()
}

// A guest that ended before it read the command gives the same error as one that ends during it.
func TestPanicBeforeACommand(t *testing.T) {
	m, _ := bootWith(t, "panics")
	<-m.ended
	_, err := m.Run(t.Context(), Command{Args: []string{"say"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	wantError(t, err, "say in the VM: the guest has stopped\nthe console's last lines:\n", "Kernel panic - not syncing: Fatal exception")
}

// Output that the guest sent before it ended is not lost, also if the caller reads it slowly.
func TestOutputBeforeThePanicArrives(t *testing.T) {
	m, _ := bootFake(t)
	var out strings.Builder
	slow := writer(func(p []byte) {
		<-m.ended
		out.Write(p)
	})
	_, err := m.Run(t.Context(), Command{Args: []string{"print and end"}, Stdout: slow, Stderr: slow})
	wantError(t, err, "print and end in the VM: the guest has stopped\n")
	if n := strings.Count(out.String(), "\n"); n != 100 || !strings.HasSuffix(out.String(), "line 99\n") {
		t.Errorf("got %d lines, want 100:\n%s", n, &out)
	}
}

func TestHangingGuestIsKilledWithTheContext(t *testing.T) {
	m, o := bootFake(t)
	_, ended := o.started()
	ctx, cancel := context.WithCancelCause(t.Context())
	m.console.mu.Lock()
	m.console.tee = writer(func(p []byte) { // when the guest hangs, as a deadline would
		if bytes.Contains(p, []byte("stalls")) {
			cancel(errors.New("killed after 20m0s"))
		}
	})
	m.console.mu.Unlock()
	_, err := m.Run(ctx, Command{Args: []string{"hang"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	wantError(t, err, "hang in the VM: killed after 20m0s\nthe console's last lines:\n", "Booting from ROM...", "rcu_preempt detected stalls")
	m.Close()
	ended()
}

func TestUnexpectedFrameIsAnError(t *testing.T) {
	m, _ := bootFake(t)
	_, err := m.Run(t.Context(), Command{Args: []string{"alive"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	wantError(t, err, `the guest sent frame 'A' while a command runs`)
}

func TestFailedWriteOfOutputIsAnError(t *testing.T) {
	m, _ := bootFake(t)
	_, err := m.Run(t.Context(), Command{Args: []string{"say"}, Stdout: broken{}, Stderr: broken{}})
	wantError(t, err, "the write failed")
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the write failed") }

func TestBootErrors(t *testing.T) {
	tests := []struct {
		behaviour string
		want      []string
	}{
		{"aborts", []string{"boot the VM (kvm): the guest has stopped", "failed to set MSR 0x10a", "exit status 134"}},
		{"hangs", []string{"boot the VM (kvm): the kernel has not started after 5s", "Booting from ROM..."}},
		{"fails", []string{"boot the VM (kvm): the guest failed: mount tryst.root (9p): no such device"}},
		{"fails-and-ends", []string{"boot the VM (kvm): the guest failed: mount tryst.root (9p): no such device"}},
		{"garbage", []string{"boot the VM (kvm): the guest sent an invalid frame: frame of unknown kind 'G'"}},
	}
	for _, tt := range tests {
		t.Run(tt.behaviour, func(t *testing.T) {
			c, k, initramfs, o := setup(t, "kvm="+tt.behaviour)
			c.Accelerator = KVM
			if tt.behaviour == "hangs" {
				c.host.kvmDeadline = 5 * time.Second // the emulator starts within it, on a busy machine, too
			}
			_, err := c.boot(t.Context(), k, initramfs)
			wantError(t, err, tt.want...)
			if tt.behaviour == "hangs" && strings.Contains(err.Error(), "\x1b") {
				t.Errorf("error %q has terminal controls", err)
			}
			_, ended := o.started()
			ended()
		})
	}
}

func TestInterruptedBootLeavesNoEmulator(t *testing.T) {
	c, k, initramfs, o := setup(t, "tcg=slow")
	c.Accelerator = TCG
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.boot(ctx, k, initramfs)
		done <- err
	}()
	_, ended := o.started()
	cancel(errors.New("interrupt"))
	wantError(t, <-done, "boot the VM (tcg): interrupt")
	ended()
}

// A machine ends with the context of Boot, without Close.
func TestMachineEndsWithItsContext(t *testing.T) {
	c, k, initramfs, o := setup(t, "tcg=boots")
	c.Accelerator = TCG
	ctx, cancel := context.WithCancel(t.Context())
	m, err := c.boot(ctx, k, initramfs)
	if err != nil {
		t.Fatal(err)
	}
	_, ended := o.started()
	cancel()
	ended()
	_, err = m.Run(t.Context(), Command{Args: []string{"say"}, Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
	if err == nil {
		t.Error("Run after the end of the machine: got no error")
	}
	m.Close()
}

// Auto tries KVM once if the device exists, and stores the result for later boots.
func TestAutoChoosesTheAccelerator(t *testing.T) {
	tests := []struct {
		name, behaviour string
		noDevice        bool
		first, second   []string // the accelerators tried in two boots
	}{
		{"KVM works", "kvm=boots", false, []string{"kvm"}, []string{"kvm"}},
		{"KVM aborts", "kvm=aborts tcg=boots", false, []string{"kvm", "tcg"}, []string{"tcg"}},
		{"KVM hangs", "kvm=hangs tcg=boots", false, []string{"kvm", "tcg"}, []string{"tcg"}},
		{"no KVM", "tcg=boots", true, []string{"tcg"}, []string{"tcg"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, k, initramfs, o := setup(t, tt.behaviour)
			if strings.Contains(tt.behaviour, "kvm=hangs") {
				c.host.kvmDeadline = 5 * time.Second
			}
			if tt.noDevice {
				c.host.kvm = filepath.Join(t.TempDir(), "none")
			}
			for _, want := range [][]string{tt.first, tt.second} {
				m, err := c.boot(t.Context(), k, initramfs)
				if err != nil {
					t.Fatal(err)
				}
				if last := want[len(want)-1]; string(m.Accelerator) != last {
					t.Errorf("the machine runs on %s, want %s", m.Accelerator, last)
				}
				m.Close()
				var tried []string
				for range want {
					accel, ended := o.started()
					ended()
					tried = append(tried, accel)
				}
				if !slices.Equal(tried, want) {
					t.Errorf("it tried %v, want %v", tried, want)
				}
			}
			if log := fmt.Sprint(c.Log); len(tt.first) > 1 && strings.Count(log, "KVM does not work here, emulating from now on: boot the VM (kvm): ") != 1 {
				t.Errorf("log %q, want one line on KVM", log)
			}
		})
	}
}

// If the guest's kernel started under KVM and the guest failed later, the next boot tries KVM again.
func TestGuestFailureDoesNotDisableKVM(t *testing.T) {
	c, k, initramfs, _ := setup(t, "kvm=fails tcg=boots")
	for range 2 {
		m, err := c.boot(t.Context(), k, initramfs)
		if err != nil {
			t.Fatal(err)
		}
		if m.Accelerator != TCG {
			t.Errorf("the machine runs on %s, want %s", m.Accelerator, TCG)
		}
		m.Close()
	}
	if n := strings.Count(fmt.Sprint(c.Log), "the guest failed under KVM, emulating this time: boot the VM (kvm): the guest failed: mount"); n != 2 {
		t.Errorf("KVM was tried %d times in two boots, want 2; log:\n%s", n, c.Log)
	}
}

// Boot succeeds also if it cannot store which accelerator works.
func TestBootWhenTheResultCannotBeStored(t *testing.T) {
	for behaviour, accel := range map[string]Accelerator{"kvm=boots": KVM, "kvm=aborts tcg=boots": TCG} {
		c, k, initramfs, _ := setup(t, behaviour)
		if err := os.Mkdir(c.acceleratorFile(), 0o755); err != nil { // then no file can be written there
			t.Fatal(err)
		}
		m, err := c.boot(t.Context(), k, initramfs)
		if err != nil {
			t.Fatal(err)
		}
		if m.Accelerator != accel {
			t.Errorf("%s: the machine runs on %s, want %s", behaviour, m.Accelerator, accel)
		}
		m.Close()
		if log := fmt.Sprint(c.Log); !strings.Contains(log, "the next boot will try KVM again: open ") {
			t.Errorf("log %q, want a line that the next boot tries KVM", log)
		}
	}
}

// An emulator that cannot be started is an error, not a hang.
func TestMissingEmulator(t *testing.T) {
	c, k, initramfs, _ := setup(t, "tcg=boots")
	c.Accelerator = TCG
	c.host.qemu = filepath.Join(t.TempDir(), "qemu")
	_, err := c.boot(t.Context(), k, initramfs)
	wantError(t, err, "start QEMU: ")
}

// The emulator ends with the process that started it, even if that is killed.
func TestEmulatorEndsWithItsParent(t *testing.T) {
	_, _, _, o := setup(t, "tcg=boots kvm=boots")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	parent := exec.Command(self)
	parent.Env = append(parent.Environ(), fakeParent+"="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "booted <nil>\n" {
		t.Errorf("the parent wrote %q (%v), want that it booted", line, err)
	}
	_, ended := o.started()
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	ended()
}

func TestQEMUPaths(t *testing.T) {
	c := Config{Share: "/a,b", host: host{qemu: "qemu"}}
	args := strings.Join(c.args(TCG, kernel{dir: "/k"}), " ")
	if !strings.Contains(args, "path=/a,,b,security_model=none") {
		t.Errorf("arguments %s, want the comma of the share doubled", args)
	}
	if !strings.Contains(args, "path=/,security_model=none,multidevs=remap,readonly=on") {
		t.Errorf("arguments %s, want the host's root read-only", args)
	}
}

// wantError checks that err is an error whose text contains all texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("got no error, want one with %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q\nlacks %q", err, text)
		}
	}
}
