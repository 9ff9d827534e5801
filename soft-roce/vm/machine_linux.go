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

	"github.com/tryst-rdma/tryst/soft-roce/vm/internal/frame"
	"github.com/tryst-rdma/tryst/soft-roce/vm/internal/layout"
)

// qemuProgram is the emulator; the host's programs run in the guest, so it is the host's kind of processor.
const qemuProgram = "qemu-system-x86_64"

// Config is what Boot needs. All paths are absolute.
type Config struct {
	// Cache is the directory for downloads and for the accelerator that works. It is created if
	// missing, and needs 90 MB.
	Cache string
	// Share is the directory that the guest may write to, at the same path.
	Share string
	// Program is a statically linked program that calls guest.Init when its first argument is layout.InitArg, and guest.Agent when it
	// is layout.AgentArg.
	Program string
	// Accelerator runs the guest's processors; "" is Auto.
	Accelerator Accelerator
	// Log gets a line for each slow operation.
	Log io.Writer
	// Console, if not nil, gets the output of the kernel and of QEMU.
	Console io.Writer

	host host // zero: this one; tests have their own
}

// host is what Boot uses of the machine that it runs on.
type host struct {
	qemu        string        // the emulator's path
	kvm         string        // the device
	kvmDeadline time.Duration // see the constant
}

// Machine is a guest that runs. Its methods are for one goroutine.
type Machine struct {
	// Accelerator is what it runs on: KVM or TCG.
	Accelerator Accelerator

	console *console
	port    net.Conn
	frames  chan received // closed when read has ended
	kill    func()        // ends QEMU, at any time, any number of times
	ended   chan struct{} // closed when QEMU has ended
}

type received struct {
	kind    frame.Kind
	payload []byte
	err     error
}

// Prepare does all of Boot that needs the network or the right to install packages, and nothing else: when it fails, no VM is possible
// here, and the error says why and what to do, in one line.
func Prepare(ctx context.Context, c Config) error {
	_, err := c.prepare(ctx)
	return err
}

// Missing is what Prepare would install and download, an entry each, in words.
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

// Boot prepares and boots a guest. It ends with Close, with the context, or with this process; Close also frees what is left of one that
// has ended.
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

// shared makes the shared directory when it is missing and returns its path without links: before the host's root is the guest's own, an
// absolute link would lead into the initial file system. By whatever path a command asks for it, the guest's links lead there then.
func shared(path string) (string, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// boot tries the accelerators.
func (c Config) boot(ctx context.Context, k kernel, initramfs *os.File) (*Machine, error) {
	switch c.Accelerator {
	case KVM:
		return c.start(ctx, KVM, c.host.kvmDeadline, k, initramfs)
	case TCG:
		return c.start(ctx, TCG, bootDeadline, k, initramfs)
	}
	memory := c.memory()
	kvm, err := os.OpenFile(c.host.kvm, os.O_RDWR, 0)
	if err != nil {
		return c.start(ctx, TCG, bootDeadline, k, initramfs)
	}
	_ = kvm.Close()
	if known, err := os.ReadFile(memory); err == nil && strings.HasPrefix(string(known), string(TCG)) {
		return c.start(ctx, TCG, bootDeadline, k, initramfs)
	}
	m, why := c.start(ctx, KVM, c.host.kvmDeadline, k, initramfs)
	if ctx.Err() != nil {
		return m, why
	}
	if why == nil {
		c.remember(memory, string(KVM))
		return m, nil
	}
	first, _, _ := strings.Cut(why.Error(), "\n")
	if _, ok := errors.AsType[silentError](why); ok {
		fmt.Fprintln(c.Log, "KVM does not work here, emulating from now on:", first)
		c.remember(memory, string(TCG)+"\n"+why.Error())
	} else { // A kernel that has spoken ran on KVM: the failure is the guest's.
		fmt.Fprintln(c.Log, "the guest failed under KVM, emulating this time:", first)
	}
	return c.start(ctx, TCG, bootDeadline, k, initramfs)
}

// silentError is why a guest's kernel never spoke.
type silentError struct{ error }

func (e silentError) Unwrap() error { return e.error }

// remember writes down which accelerator works. That it cannot is no failure: it is found out again next time.
func (c Config) remember(memory, found string) {
	if err := os.WriteFile(memory, []byte(found+"\n"), 0o644); err != nil {
		fmt.Fprintln(c.Log, "whether KVM works will be found out again next time:", err)
	}
}

// memory is the file that says which accelerator works on this machine with this QEMU.
func (c Config) memory() string {
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	version, _ := exec.Command(c.host.qemu, "--version").Output()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", uts.Release, uts.Version, version))
	return filepath.Join(c.Cache, "accelerator-"+hex.EncodeToString(sum[:4]))
}

// start starts QEMU and waits until the guest is ready. The guest's init must speak within the deadline.
func (c Config) start(ctx context.Context, accel Accelerator, deadline time.Duration, k kernel, initramfs *os.File) (*Machine, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "port"), os.NewFile(uintptr(pair[1]), "port")
	port, err := net.FileConn(ours)
	_ = ours.Close() // FileConn has its own.
	if err != nil {
		_ = theirs.Close()
		return nil, fmt.Errorf("port: %w", err)
	}

	m := &Machine{
		Accelerator: accel,
		console:     &console{also: c.Console},
		port:        port,
		frames:      make(chan received),
		ended:       make(chan struct{}),
	}
	cmd := exec.Command(c.host.qemu, c.args(accel, k)...)
	cmd.Stdout, cmd.Stderr = m.console, m.console
	cmd.ExtraFiles = []*os.File{theirs, initramfs} // Descriptors 3 and 4, see args.
	// A group of its own: the terminal's Ctrl-C is for us, and we end it. When we die, the kernel does.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	started := make(chan error)
	go func() {
		// Pdeathsig comes when the thread that started the child ends: this one lives as long as the child, and ends with it.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // How it ended is in its state.
			fmt.Fprintf(m.console, "\n%s ended: %v\n", filepath.Base(c.host.qemu), cmd.ProcessState)
		}
		close(m.ended)
	}()
	err = <-started
	_ = theirs.Close() // QEMU has its own, whose end is now the port's.
	if err != nil {
		_ = port.Close()
		return nil, fmt.Errorf("start QEMU: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	m.kill = func() {
		stop()
		_ = cmd.Process.Kill() // An error when it has ended.
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
				err = silentError{err}
			}
			return nil, fmt.Errorf("boot the VM (%s): %w\n%s", accel, err, m.console.tail())
		}
	}
	return m, nil
}

// args is QEMU's command line.
func (c Config) args(accel Accelerator, k kernel) []string {
	how := string(accel)
	if accel == TCG {
		how += ",thread=multi"
	}
	// A fault in the kernel is the guest's end, not a hang. What protects the processor's users from one another is only slow here.
	kernelArgs := "console=ttyS0 panic=-1 oops=panic mitigations=off audit=0 rdinit=" + layout.InitFile + " -- " + layout.InitArg
	if c.Console == nil {
		kernelArgs = "quiet " + kernelArgs
	}
	if accel == TCG {
		// The emulated processor's cycle counter is the host's, though it does not say that it is steady: without this word each look
		// at the clock goes to an emulated device, which takes 10 µs.
		kernelArgs = "tsc=reliable " + kernelArgs
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", how, "-cpu", "max", "-m", fmt.Sprint(memoryMiB), "-smp", fmt.Sprint(processors),
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

// read passes the guest's frames on until the port ends: what QEMU said before its own end is still in there then. Close waits for it.
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
		err = fmt.Errorf("the guest says %q, not %q", f.kind, kind)
	}
	return err
}

// next is the next frame that is no error of the guest's.
func (m *Machine) next(ctx context.Context) (received, error) {
	select {
	case f, more := <-m.frames:
		switch {
		case !more || f.err != nil: // The guest is gone; wait for QEMU's last words.
			m.kill()
			<-m.ended
			return f, gone(ctx, f.err)
		case f.kind == frame.Failed:
			return f, fmt.Errorf("the guest gave up: %s", f.payload)
		}
		return f, nil
	case <-ctx.Done():
		return received{}, context.Cause(ctx)
	}
}

// gone says why nothing more comes from a guest, by the error with which reading ended; nil when that has been told.
func gone(ctx context.Context, err error) error {
	// The port's own errors are its end, too: a reset, when QEMU ended before it had read everything.
	_, ofPort := errors.AsType[*net.OpError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, ofPort, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the guest has stopped")
	}
	return fmt.Errorf("the guest does not keep to the language of frames: %w", err)
}

// Close ends the guest, at once: what commands wrote to the share before they ended is there.
func (m *Machine) Close() {
	m.kill()
	<-m.ended
	_ = m.port.Close()
	for range m.frames { // What nobody took, until read has ended.
		continue
	}
}
