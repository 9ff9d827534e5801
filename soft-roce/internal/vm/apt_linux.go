package vm

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// apt runs Debian's package tools with the sources that the machine is configured for. It updates
// the package lists only as root, and only if they are missing or too old.
type apt struct {
	log io.Writer
}

// need is something that the host must have, and the package that contains it.
type need struct {
	pkg string
	// files are alternatives, each of which shows that the package is installed. A name without a
	// slash is a program.
	files []string
}

// needs returns what the host must have: the emulator, what programs in the guest use, and what
// builds these programs.
func needs() []need {
	return []need{
		{"qemu-system-x86", []string{qemuProgram}},
		{"libibverbs1", []string{"/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "/usr/lib64/libibverbs.so.1"}},
		{"ibverbs-providers", []string{"/etc/libibverbs.d/rxe.driver"}},
		{"libibverbs-dev", []string{"/usr/include/infiniband/verbs.h"}},
		{"ibverbs-utils", []string{"ibv_devinfo"}},
		{"perftest", []string{"ib_write_bw"}},
		{"iproute2", []string{"rdma"}},
		{"tshark", []string{"tshark"}}, // make check-capture
		{"gcc", []string{"gcc", "cc"}},
		{"libc6-dev", []string{"/usr/include/stdlib.h"}},
	}
}

// missing returns the packages that are not installed.
func missing(needs []need) []string {
	var pkgs []string
next:
	for _, n := range needs {
		for _, f := range n.files {
			if _, err := os.Stat(f); strings.Contains(f, "/") && err == nil {
				continue next
			}
			if _, err := lookProgram(f); !strings.Contains(f, "/") && err == nil {
				continue next
			}
		}
		pkgs = append(pkgs, n.pkg)
	}
	return pkgs
}

// lookProgram is exec.LookPath, extended by the sbin directories, which an unprivileged user's PATH
// may lack.
func lookProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", err
}

// install installs the missing packages with apt-get, as root. Otherwise its error says in one line
// what to do.
func (a apt) install(ctx context.Context, needs []need) error {
	pkgs := missing(needs)
	if len(pkgs) == 0 {
		return nil
	}
	list := strings.Join(pkgs, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("the VM needs the content of Debian's packages %s, and this system has no apt-get: install it by other means", list)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the VM needs missing packages: as root, apt-get install %s", list)
	}
	fmt.Fprintln(a.log, "installing", list)
	args := append([]string{"install", "--yes", "--no-install-recommends"}, pkgs...)
	if err := a.get(ctx, "", args...); err != nil {
		if err := a.get(ctx, "", "update"); err != nil {
			return fmt.Errorf("install %s: %w", list, err)
		}
		if err := a.get(ctx, "", args...); err != nil {
			return fmt.Errorf("install %s: %w", list, err)
		}
	}
	if pkgs := missing(needs); len(pkgs) > 0 {
		return fmt.Errorf("the packages %s are installed, but the files that the VM needs of them are missing", strings.Join(pkgs, ", "))
	}
	return nil
}

// download downloads a kernel package into dir and returns its path. It is the package that Debian's
// linux-image-amd64 depends on, the stock kernel of the release. (The flavour cloud-amd64 has no
// rdma_rxe.)
func (a apt) download(ctx context.Context, dir string) (string, error) {
	const meta = "linux-image-amd64"
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("the VM boots the kernel of Debian's %s, and this system has no apt-get to download it", meta)
	}
	find := func() (string, error) {
		cmd := exec.CommandContext(ctx, "apt-cache", "depends", meta)
		cmd.Env = append(cmd.Environ(), "LC_ALL=C") // apt-cache translates its output
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("apt-cache depends %s: %w", meta, err)
		}
		return kernelPackage(string(out))
	}
	pkg, err := find()
	if err == nil {
		err = a.get(ctx, dir, "download", pkg)
	}
	if err != nil && os.Geteuid() == 0 { // the lists are missing or too old
		if err := a.get(ctx, "", "update"); err != nil {
			return "", err
		}
		if pkg, err = find(); err == nil {
			err = a.get(ctx, dir, "download", pkg)
		}
	}
	if err != nil {
		return "", fmt.Errorf("download the kernel of %s: %w (if the package lists are missing: as root, apt-get update)", meta, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, pkg+"_*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("download the kernel: apt-get download %s left %d files", pkg, len(files))
	}
	return files[0], nil
}

// kernelPackage returns the kernel package in the output of apt-cache depends for linux-image-amd64.
func kernelPackage(depends string) (string, error) {
	for line := range strings.Lines(depends) {
		if pkg, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + pkg, nil
		}
	}
	return "", fmt.Errorf("apt-cache shows no dependency linux-image-*: this is not Debian, or its package lists are missing")
}

// get runs apt-get in dir. If it fails, the error has the last line of its output.
func (a apt) get(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--quiet"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, lastLine(out))
	}
	return nil
}

// lastLine returns the last line of out that is not blank.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
