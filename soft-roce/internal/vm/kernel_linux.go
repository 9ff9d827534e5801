package vm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/layout"
)

// kernel is a directory of the cache with a kernel and the modules that the guest loads:
//
//	vmlinuz
//	modules/NAME.ko
//	order            the files of modules/, one a line, in load order
type kernel struct {
	dir string
}

// fetchKernel returns the kernel of the cache, and downloads it first if the cache has none. Several
// processes may call it at once.
func fetchKernel(ctx context.Context, cache string, log io.Writer) (kernel, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return kernel{}, err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return kernel{}, err
	}
	defer lock.Close() // unlocks
	if err := lockFile(ctx, lock, log); err != nil {
		return kernel{}, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	found, err := cachedKernels(cache)
	if err != nil {
		return kernel{}, err
	}
	if len(found) > 0 {
		return kernel{found[len(found)-1]}, nil
	}
	tmp, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return kernel{}, err
	}
	defer os.RemoveAll(tmp)

	// The package stays in the cache: it is unpacked again when the list of modules changes.
	debs, err := filepath.Glob(filepath.Join(cache, "linux-image-*.deb"))
	if err != nil {
		return kernel{}, err
	}
	if len(debs) == 0 {
		fmt.Fprintln(log, "downloading a kernel (70 MB, once)")
		deb, err := apt{log}.download(ctx, tmp)
		if err != nil {
			return kernel{}, err
		}
		kept := filepath.Join(cache, filepath.Base(deb))
		if err := os.Rename(deb, kept); err != nil {
			return kernel{}, err
		}
		debs = []string{kept}
	}
	fmt.Fprintln(log, "unpacking", filepath.Base(debs[len(debs)-1]))
	version, err := unpack(ctx, debs[len(debs)-1], tmp)
	if err != nil {
		return kernel{}, err
	}
	dir := filepath.Join(cache, "kernel-"+version+kernelSuffix())
	if err := os.Rename(filepath.Join(tmp, "kernel"), dir); err != nil {
		return kernel{}, err
	}
	return kernel{dir}, nil
}

// kernelSuffix is the end of the name of a kernel's directory. It differs for another list of
// modules.
func kernelSuffix() string { return "-" + modulesKey(modules()) }

func cachedKernels(cache string) ([]string, error) {
	return filepath.Glob(filepath.Join(cache, "kernel-*"+kernelSuffix()))
}

// lockFile locks the file until it is closed. Another process may hold the lock as long as a download
// takes. A context cannot interrupt flock(2), so lockFile polls.
func lockFile(ctx context.Context, lock *os.File, log io.Writer) error {
	tick := time.NewTicker(lockPeriod)
	defer tick.Stop()
	for logged := false; ; logged = true {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return err
		case !logged:
			fmt.Fprintln(log, "waiting for another process that downloads a kernel and has locked", lock.Name())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// modulesKey returns a hash of the list of modules.
func modulesKey(list []module) string {
	sum := sha256.Sum256(fmt.Append(nil, list))
	return hex.EncodeToString(sum[:4])
}

// unpack creates the directory tmp/kernel from the package and returns the kernel's version.
func unpack(ctx context.Context, deb, tmp string) (string, error) {
	all := filepath.Join(tmp, "all")
	if out, err := exec.CommandContext(ctx, "dpkg", "-x", deb, all).CombinedOutput(); err != nil {
		return "", fmt.Errorf("dpkg -x %s: %w: %s", deb, err, lastLine(out))
	}
	// Packages of releases in which /lib is a link have the modules below usr/lib.
	var trees []string
	for _, lib := range []string{"lib", "usr/lib"} {
		found, err := filepath.Glob(filepath.Join(all, lib, "modules", "*"))
		if err != nil {
			return "", err
		}
		trees = append(trees, found...)
	}
	if len(trees) != 1 {
		return "", fmt.Errorf("%s has the modules of %d kernels, want 1", deb, len(trees))
	}
	version := filepath.Base(trees[0])
	tree := os.DirFS(trees[0])
	order, err := loadOrder(tree, modules())
	if err != nil {
		return "", fmt.Errorf("%s: %w", deb, err)
	}
	dir := filepath.Join(tmp, "kernel")
	if err := os.MkdirAll(filepath.Join(dir, "modules"), 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(all, "boot", "vmlinuz-"+version), filepath.Join(dir, "vmlinuz")); err != nil {
		return "", err
	}
	var names strings.Builder
	for _, path := range order {
		text, err := readModule(tree, path)
		if err != nil {
			return "", err
		}
		base, _, _ := strings.Cut(filepath.Base(path), ".ko")
		name := base + ".ko"
		if err := os.WriteFile(filepath.Join(dir, "modules", name), text, 0o644); err != nil {
			return "", err
		}
		names.WriteString(name + "\n")
	}
	return version, os.WriteFile(filepath.Join(dir, "order"), []byte(names.String()), 0o644)
}

func (k kernel) image() string { return filepath.Join(k.dir, "vmlinuz") }

// initramfs returns the guest's initial file system, in memory: the program that is its init, the
// modules and a configuration. The caller closes the file.
func (k kernel) initramfs(program, share string) (_ *os.File, err error) {
	order, err := os.ReadFile(filepath.Join(k.dir, "order"))
	if err != nil {
		return nil, err
	}
	names := strings.Fields(string(order))
	config, err := json.Marshal(layout.Config{Modules: names, Share: share})
	if err != nil {
		return nil, err
	}
	init, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("initramfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "initramfs")
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	a := &archive{w: f}
	for _, dir := range slices.Sorted(slices.Values([]string{"dev", "proc", "sys", inArchive(layout.ModulesDir)})) {
		a.dir(dir)
	}
	// The kernel opens it for init's standard descriptors before devtmpfs is mounted.
	a.device("dev/console", consoleMajor, consoleMinor)
	a.file(inArchive(layout.InitFile), 0o755, init)
	a.file(inArchive(layout.ConfigFile), 0o644, config)
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(k.dir, "modules", name))
		if err != nil {
			return nil, err
		}
		a.file(inArchive(layout.ModulesDir)+"/"+name, 0o644, text)
	}
	return f, a.close()
}

// inArchive returns a path of the guest in the form of the archive.
func inArchive(path string) string { return strings.TrimPrefix(path, "/") }
