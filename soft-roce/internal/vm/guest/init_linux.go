package guest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	softroce "github.com/tryst-rdma/tryst/internal/softroce"
	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/layout"
)

const (
	// portDeadline limits how long the serial port may take to appear after its driver is loaded,
	// since the kernel adds it from a work queue. portPeriod is the interval of the polls.
	portDeadline = 30 * time.Second
	portPeriod   = 5 * time.Millisecond

	// pairDeadline limits how long the RDMA devices may take to become active.
	pairDeadline = 60 * time.Second
)

// Init is the first process of the guest. It never returns: it powers the VM off when the agent has
// ended or something has failed. It reports a failure on the console, and to the host if the port is
// open.
func Init() {
	port, err := start()
	if err == nil {
		err = supervise(port)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, layout.GuestName+":", err)
		if port != nil {
			_ = frame.Write(port, frame.Failed, []byte(err.Error()))
		}
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, layout.GuestName+": power off:", err)
	}
	select {} // If process 1 ended before the power is off, the kernel would panic.
}

// start sets the guest up and returns the port to the host, also if it fails after it has opened the
// port.
func start() (*os.File, error) {
	for _, m := range []mount{
		{"proc", "/proc", "proc", 0, ""},
		{"sysfs", "/sys", "sysfs", 0, ""},
		{"devtmpfs", "/dev", "devtmpfs", 0, ""},
	} {
		if err := m.mount(); err != nil {
			return nil, err
		}
	}
	config, err := layout.ReadConfig(layout.ConfigFile)
	if err != nil {
		return nil, err
	}
	for _, m := range config.Modules {
		if err := load(filepath.Join(layout.ModulesDir, m)); err != nil {
			return nil, err
		}
	}
	port, err := openPort()
	if err != nil {
		return nil, err
	}
	if err := frame.Write(port, frame.Alive, nil); err != nil {
		return nil, fmt.Errorf("serial port: %w", err)
	}
	if err := enterRoot(config.Share); err != nil {
		return port, err
	}
	// The kernel's limit for process 1 is 4096. A login session has these.
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1024, Max: 524288}); err != nil {
		return port, fmt.Errorf("set the limit of open files: %w", err)
	}
	if err := unix.Sethostname([]byte(layout.GuestName)); err != nil {
		return port, fmt.Errorf("set the host name: %w", err)
	}
	if err := loopback(); err != nil {
		return port, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pairDeadline)
	defer cancel()
	return port, softroce.SetupPair(ctx, softroce.DefaultPair())
}

// load loads one module file (finit_module(2)). It is no error if the module is loaded already, or
// finds no device.
func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("module: %w", err)
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("load module %s: %w", filepath.Base(path), err)
	}
	return nil
}

// openPort finds the serial port by its name and opens it.
func openPort() (*os.File, error) {
	deadline := time.NewTimer(portDeadline)
	defer deadline.Stop()
	tick := time.NewTicker(portPeriod)
	defer tick.Stop()
	for {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			name, err := os.ReadFile(n)
			if err != nil || strings.TrimSpace(string(name)) != layout.PortName {
				continue
			}
			// The descriptor is in blocking mode, without Go's poller, since the agent inherits it.
			fd, err := unix.Open(filepath.Join("/dev", filepath.Base(filepath.Dir(n))), unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err == nil {
				return os.NewFile(uintptr(fd), layout.PortName), nil
			}
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return nil, fmt.Errorf("the serial port %s has not appeared within %s", layout.PortName, portDeadline)
		}
	}
}

// mount is one call of mount(2).
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
}

// mount mounts the file system, and creates the target directory if it is missing.
func (m mount) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return fmt.Errorf("mount %s: %w", m.target, err)
	}
	if err := unix.Mount(m.source, m.target, m.fstype, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s (%s) on %s: %w", m.source, m.fstype, m.target, err)
	}
	return nil
}

// Directories of the initial file system from which the new root is built.
const (
	hostDir    = "/host"    // the host's root, read-only
	scratchDir = "/scratch" // what the guest writes, in memory
	newRoot    = "/root"    // the overlay of both
)

// enterRoot changes the root of this process to the host's root, read-only under a layer in memory,
// with a writable share and with kernel file systems of the guest.
func enterRoot(share string) error {
	// With cache=loose the guest may see the host's later changes late. Nothing depends on them.
	const ninep = "trans=virtio,version=9p2000.L,msize=512000,cache="
	mounts := []mount{
		{layout.RootTag, hostDir, "9p", unix.MS_RDONLY, ninep + "loose"},
		{"tmpfs", scratchDir, "tmpfs", 0, "mode=755"},
	}
	for _, m := range mounts {
		if err := m.mount(); err != nil {
			return err
		}
	}
	upper, work := filepath.Join(scratchDir, "upper"), filepath.Join(scratchDir, "work")
	for _, dir := range []string{upper, work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	mounts = []mount{
		{"overlay", newRoot, "overlay", 0, "lowerdir=" + hostDir + ",upperdir=" + upper + ",workdir=" + work},
		{"proc", newRoot + "/proc", "proc", 0, ""},
		{"sysfs", newRoot + "/sys", "sysfs", 0, ""},
		{"devtmpfs", newRoot + "/dev", "devtmpfs", 0, ""},
		{"devpts", newRoot + "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666"},
		{"tmpfs", newRoot + "/dev/shm", "tmpfs", 0, "mode=1777"},
	}
	for _, dir := range emptyDirs(share) {
		mounts = append(mounts, mount{"tmpfs", newRoot + dir, "tmpfs", 0, "mode=1777"})
	}
	mounts = append(mounts, mount{layout.ShareTag, newRoot + share, "9p", 0, ninep + "mmap"})
	for _, m := range mounts {
		if err := m.mount(); err != nil {
			return err
		}
	}
	if err := unix.Chroot(newRoot); err != nil {
		return fmt.Errorf("chroot %s: %w", newRoot, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0", "/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

// emptyDirs returns the directories that are empty in the guest at first, in place of the host's. It
// excludes one that contains the share, and with it the repository.
func emptyDirs(share string) []string {
	var dirs []string
	for _, dir := range []string{"/run", "/tmp"} {
		if !strings.HasPrefix(share, dir+"/") {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// supervise runs the agent on the port until it ends, and reaps the guest's orphans.
func supervise(port *os.File) error {
	agent := exec.Command("/proc/self/exe", layout.AgentArg)
	agent.Env = []string{}
	agent.Stderr = os.Stderr
	agent.ExtraFiles = []*os.File{port}
	if err := agent.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("wait for the agent: %w", err)
		case pid == agent.Process.Pid && ws.ExitStatus() != 0:
			return fmt.Errorf("the agent ended with %v", ws)
		case pid == agent.Process.Pid:
			return nil
		}
	}
}
