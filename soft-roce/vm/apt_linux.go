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

// apt asks Debian's package tools, and uses nothing that the machine has not been set up for: the lists that are there, updated
// only as root and only when they do not suffice.
type apt struct {
	log io.Writer
}

// need is something that the VM or the programs in it want of the host, with the package that has it.
type need struct {
	pkg string
	// any of these files is proof that it is there; one without a slash is a program.
	files []string
}

// needs are what is wanted of the host: the emulator, what programs in the guest use, and what builds those that use it.
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

// missing lists the packages of the needs that are not met.
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

// lookProgram is exec.LookPath, which also looks where an unprivileged user's PATH does not.
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

// install installs the packages that are missing, as root with apt-get. Where it cannot, the error says in one line what to do.
func (a apt) install(ctx context.Context, needs []need) error {
	pkgs := missing(needs)
	if len(pkgs) == 0 {
		return nil
	}
	list := strings.Join(pkgs, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("the VM needs what Debian has in %s, and there is no apt-get to install it: install it with this system's own tools", list)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the VM needs packages that are missing: as root, apt-get install %s", list)
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
		return fmt.Errorf("%s are installed and what the VM needs of them is not where it should be", strings.Join(pkgs, ", "))
	}
	return nil
}

// download puts the file of a kernel's package into dir and returns its path: the package that Debian's linux-image-amd64 depends on,
// that is the stock kernel of this release. (The flavour cloud-amd64 has no rdma_rxe.)
func (a apt) download(ctx context.Context, dir string) (string, error) {
	const meta = "linux-image-amd64"
	if _, err := exec.LookPath("apt-get"); err != nil {
		return "", fmt.Errorf("the VM boots the kernel of Debian's %s, and there is no apt-get to download it", meta)
	}
	find := func() (string, error) {
		cmd := exec.CommandContext(ctx, "apt-cache", "depends", meta)
		cmd.Env = append(cmd.Environ(), "LC_ALL=C") // It translates the words that are looked for.
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
	if err != nil && os.Geteuid() == 0 { // The lists are missing or old.
		if err := a.get(ctx, "", "update"); err != nil {
			return "", err
		}
		if pkg, err = find(); err == nil {
			err = a.get(ctx, dir, "download", pkg)
		}
	}
	if err != nil {
		return "", fmt.Errorf("download the kernel of %s: %w (are the package lists there? as root, apt-get update)", meta, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, pkg+"_*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("download the kernel: apt-get download %s left %d files", pkg, len(files))
	}
	return files[0], nil
}

// kernelPackage finds the kernel in what apt-cache depends says of the package that stands for the newest.
func kernelPackage(depends string) (string, error) {
	for line := range strings.Lines(depends) {
		if pkg, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: linux-image-"); ok {
			return "linux-image-" + pkg, nil
		}
	}
	return "", fmt.Errorf("it depends on no linux-image-*: this is not Debian, or its package lists are missing")
}

// get runs apt-get in dir; its words are shown only when it fails.
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

// lastLine is the last line that says something.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
