package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/layout"
)

// qemuProgram is the emulator for the host's kind of processor, since the host's programs run in the
// guest.
const qemuProgram = "qemu-system-x86_64"

// Config is what Boot needs. All paths are absolute.
type Config struct {
	// Cache is the directory for downloads and for the accelerator that works. It is created if
	// missing, and needs 90 MB.
	Cache string
	// Share is the directory that the guest may write to, at the same path.
	Share string
	// Program is a statically linked program that calls guest.Main.
	Program string
	// Accelerator runs the guest's processors; "" is Auto.
	Accelerator Accelerator
	// Log gets a line for each slow operation.
	Log io.Writer
	// Console, if not nil, gets the output of the kernel and of QEMU.
	Console io.Writer

	host host // set by Boot; tests replace it
}

// host is what Boot uses of this machine.
type host struct {
	qemu        string        // path of the emulator
	kvm         string        // path of the device
	kvmDeadline time.Duration // see the constant
}

// Machine is a running guest. It is not safe for concurrent use.
type Machine struct {
	// Accelerator is KVM or TCG.
	Accelerator Accelerator

	console *console
	port    net.Conn
	frames  chan received // closed when read returns
	kill    func()        // ends QEMU; may be called at any time, and again
	ended   chan struct{} // closed when QEMU has ended
}

type received struct {
	kind    frame.Kind
	payload []byte
	err     error
}

// Prepare does the part of Boot that needs the network or the right to install packages. If it
// fails, no VM is possible here. Its error says in one line why and what to do.
func Prepare(ctx context.Context, c Config) error {
	_, err := c.prepare(ctx)
	return err
}

// Missing returns a text for each thing that Prepare would install or download.
func Missing(c Config) ([]string, error) {
	var all []string
	if pkgs := missing(needs()); len(pkgs) > 0 {
		all = append(all, "as root, Debian's packages "+strings.Join(pkgs, " "))
	}
	found, err := cachedKernels(c.Cache)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		all = append(all, "a Linux kernel (70 MB), into "+c.Cache)
	}
	return all, nil
}

func (c Config) prepare(ctx context.Context) (kernel, error) {
	if err := Possible(); err != nil {
		return kernel{}, err
	}
	if err := (apt{c.Log}).install(ctx, needs()); err != nil {
		return kernel{}, err
	}
	return fetchKernel(ctx, c.Cache, c.Log)
}

// Boot prepares and boots a guest. The guest ends with Close, with the context, or with this process.
// The caller must call Close in any case, to release its resources.
func Boot(ctx context.Context, c Config) (*Machine, error) {
	k, err := c.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if c.Share, err = shared(c.Share); err != nil {
		return nil, err
	}
	qemu, err := lookProgram(qemuProgram)
	if err != nil {
		return nil, err
	}
	c.host = host{qemu: qemu, kvm: "/dev/kvm", kvmDeadline: kvmDeadline}
	initramfs, err := k.initramfs(c.Program, c.Share)
	if err != nil {
		return nil, fmt.Errorf("initial file system: %w", err)
	}
	defer initramfs.Close()
	return c.boot(ctx, k, initramfs)
}

// shared creates the shared directory if it is missing, and returns its path without symbolic links.
// The guest mounts it before it changes its root, when an absolute link would point into the initial
// file system. Later the links of the host's root lead to it, so commands may use any of its paths.
func shared(path string) (string, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// boot starts the guest with the configured accelerator, or with the first that works.
func (c Config) boot(ctx context.Context, k kernel, initramfs *os.File) (*Machine, error) {
	switch c.Accelerator {
	case KVM:
		return c.start(ctx, KVM, c.host.kvmDeadline, k, initramfs)
	case TCG:
		return c.start(ctx, TCG, bootDeadline, k, initramfs)
	}
	result := c.acceleratorFile()
	kvm, err := os.OpenFile(c.host.kvm, os.O_RDWR, 0)
	if err != nil {
		return c.start(ctx, TCG, bootDeadline, k, initramfs)
	}
	_ = kvm.Close()
	if known, err := os.ReadFile(result); err == nil && strings.HasPrefix(string(known), string(TCG)) {
		return c.start(ctx, TCG, bootDeadline, k, initramfs)
	}
	m, err := c.start(ctx, KVM, c.host.kvmDeadline, k, initramfs)
	if ctx.Err() != nil {
		return m, err
	}
	if err == nil {
		c.storeAccelerator(result, string(KVM))
		return m, nil
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	if _, ok := errors.AsType[noStartError](err); ok {
		fmt.Fprintln(c.Log, "KVM does not work here, emulating from now on:", first)
		c.storeAccelerator(result, string(TCG)+"\n"+err.Error())
	} else { // The kernel started, so KVM works, and the guest failed for another reason.
		fmt.Fprintln(c.Log, "the guest failed under KVM, emulating this time:", first)
	}
	return c.start(ctx, TCG, bootDeadline, k, initramfs)
}

// noStartError is the error of a guest whose kernel did not start.
type noStartError struct{ error }

func (e noStartError) Unwrap() error { return e.error }

// storeAccelerator writes the accelerator that works to a file. If that fails, it only logs: the
// next boot tries KVM again.
func (c Config) storeAccelerator(file, text string) {
	if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
		fmt.Fprintln(c.Log, "the next boot will try KVM again:", err)
	}
}

// acceleratorFile returns the path of the file that has the accelerator that works on this machine
// with this QEMU.
func (c Config) acceleratorFile() string {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	version, _ := exec.Command(c.host.qemu, "--version").Output()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", uts.Release, uts.Version, version))
	return filepath.Join(c.Cache, "accelerator-"+hex.EncodeToString(sum[:4]))
}

// start starts QEMU and waits until the guest is ready. The guest's init must send its first frame
// within the deadline.
func (c Config) start(ctx context.Context, accel Accelerator, deadline time.Duration, k kernel, initramfs *os.File) (*Machine, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "port"), os.NewFile(uintptr(pair[1]), "port")
	port, err := net.FileConn(ours)
	_ = ours.Close() // FileConn has a duplicate
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("port: %w", err)
	}

	m := &Machine{
		Accelerator: accel,
		console:     &console{tee: c.Console},
		port:        port,
		frames:      make(chan received),
		ended:       make(chan struct{}),
	}
	cmd := exec.Command(c.host.qemu, c.args(accel, k)...)
	cmd.Stdout, cmd.Stderr = m.console, m.console
	cmd.ExtraFiles = []*os.File{theirs, initramfs} // descriptors 3 and 4, see args
	// In its own process group, the terminal's Ctrl-C does not reach QEMU: this process ends it. If
	// this process dies, the kernel kills QEMU.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	started := make(chan error)
	go func() {
		// Pdeathsig is sent when the thread that started the child ends, so this thread must live as
		// long as the child.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ProcessState has the result
			fmt.Fprintf(m.console, "\n%s ended: %v\n", filepath.Base(c.host.qemu), cmd.ProcessState)
		}
		close(m.ended)
	}()
	err = <-started
	_ = theirs.Close() // only QEMU has it open now, so the port ends with QEMU
	if err != nil {
		_ = port.Close()
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	m.kill = func() {
		stop()
		_ = cmd.Process.Kill() // an error if it has ended
	}
	go m.read()

	for _, step := range []struct {
		kind frame.Kind
		what string
		in   time.Duration
	}{
		{frame.Alive, "the kernel has not started", deadline},
		{frame.Ready, "the guest is not ready", readyDeadline},
	} {
		if err := m.expect(ctx, step.kind, step.what, step.in); err != nil {
			m.Close()
			if step.kind == frame.Alive {
				err = noStartError{err}
			}
			return nil, fmt.Errorf("boot the VM (%s): %w\n%s", accel, err, m.console.tail())
		}
	}
	return m, nil
}

// args returns the arguments of QEMU.
func (c Config) args(accel Accelerator, k kernel) []string {
	accelArg, processor := string(accel), "max"
	if accel == TCG {
		accelArg += ",thread=multi"
		// QEMU emulates REP MOVSB byte by byte. Without these features the kernel copies and clears by eight bytes.
		processor += ",-erms,-fsrm"
	}
	// A kernel fault ends the guest instead of hanging it. Mitigations would only make it slower.
	kernelArgs := "console=ttyS0 panic=-1 oops=panic mitigations=off audit=0 rdinit=" + layout.InitFile + " -- " + layout.InitArg
	if c.Console == nil {
		kernelArgs = "quiet " + kernelArgs
	}
	if accel == TCG {
		// The emulated processor uses the host's cycle counter, but does not declare it invariant.
		// Without this option each read of the clock goes to an emulated device, which takes 10 µs.
		kernelArgs = "tsc=reliable " + kernelArgs
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", accelArg, "-cpu", processor, "-m", fmt.Sprint(memoryMiB), "-smp", fmt.Sprint(processors),
		"-kernel", k.image(), "-initrd", "/dev/fd/4", "-append", kernelArgs,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-chardev", "socket,id=port,fd=3", "-device", "virtio-serial-pci",
		"-device", "virtserialport,chardev=port,name=" + layout.PortName,
	}
	for _, fs := range []struct{ tag, path, options string }{
		{layout.RootTag, "/", ",readonly=on"},
		{layout.ShareTag, c.Share, ""},
	} {
		args = append(args,
			"-fsdev", "local,id="+fs.tag+",path="+escape(fs.path)+",security_model=none,multidevs=remap"+fs.options,
			"-device", "virtio-9p-pci,fsdev="+fs.tag+",mount_tag="+fs.tag)
	}
	return args
}

// escape doubles the commas of a path in a QEMU option.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// read forwards the guest's frames until the port ends. The port still has the guest's last frames
// when QEMU has ended. Close waits for read.
func (m *Machine) read() {
	defer close(m.frames)
	for {
		kind, payload, err := frame.Read(m.port)
		m.frames <- received{kind, payload, err}
		if err != nil {
			return
		}
	}
}

// expect waits for a frame of one kind.
func (m *Machine) expect(ctx context.Context, kind frame.Kind, what string, in time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, in, fmt.Errorf("%s after %s", what, in))
	defer cancel()
	f, err := m.next(ctx)
	if err == nil && f.kind != kind {
		err = fmt.Errorf("the guest sent frame %q, want %q", f.kind, kind)
	}
	return err
}

// next returns the next frame. A Failed frame and the end of the port are errors.
func (m *Machine) next(ctx context.Context) (received, error) {
	select {
	case f, more := <-m.frames:
		switch {
		case !more || f.err != nil: // wait for QEMU's last output on the console
			m.kill()
			<-m.ended
			return f, portError(ctx, f.err)
		case f.kind == frame.Failed:
			return f, fmt.Errorf("the guest failed: %s", f.payload)
		}
		return f, nil
	case <-ctx.Done():
		return received{}, context.Cause(ctx)
	}
}

// portError explains the error with which reading the port ended. err is nil if that error was
// returned before.
func portError(ctx context.Context, err error) error {
	// A network error is an end, too: the port is reset if QEMU ends before it has read everything.
	_, ofPort := errors.AsType[*net.OpError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, ofPort, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the guest has stopped")
	}
	return fmt.Errorf("the guest sent an invalid frame: %w", err)
}

// Close kills the guest. The share has everything that commands wrote to it before they ended.
func (m *Machine) Close() {
	m.kill()
	<-m.ended
	_ = m.port.Close()
	for range m.frames { // discards frames until read has returned
		continue
	}
}
