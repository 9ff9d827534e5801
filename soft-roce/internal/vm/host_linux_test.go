package vm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKernelPackage(t *testing.T) {
	got, err := kernelPackage("linux-image-amd64\n  Depends: linux-image-6.1.0-56-amd64\n  Suggests: x\n")
	if got != "linux-image-6.1.0-56-amd64" || err != nil {
		t.Errorf("got %q, error %v, want the package of the dependency", got, err)
	}
	for _, other := range []string{"", "<linux-image-amd64>\n", "linux-image-amd64\n  Depends: something\n"} {
		if got, err := kernelPackage(other); err == nil {
			t.Errorf("kernelPackage(%q) = %q, want an error", other, got)
		}
	}
}

// apt-cache translates its output. download makes it print English.
func TestKernelIsFoundInAnyLocale(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"apt-cache": "[ \"$LC_ALL\" = C ] && echo '  Depends: linux-image-6.1.0-56-amd64' || echo '  Hängt ab von: linux-image-6.1.0-56-amd64'",
		"apt-get":   "case \"$*\" in *download*) : >linux-image-6.1.0-56-amd64_1_amd64.deb ;; esac",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	if _, err := (apt{io.Discard}).download(t.Context(), t.TempDir()); err != nil {
		t.Error(err)
	}
}

// The path of the share has no symbolic links, since the guest's initial file system lacks their
// targets.
func TestSharePathHasNoLinks(t *testing.T) {
	target, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "home")
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	got, err := shared(filepath.Join(link, "tryst", "build"))
	if want := filepath.Join(target, "tryst", "build"); got != want || err != nil {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
	if info, err := os.Stat(got); err != nil || !info.IsDir() {
		t.Errorf("the directory was not created: %v", err)
	}
}

func TestMissingNamesPackages(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there")
	if err := os.WriteFile(there, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	got := missing([]need{
		{"a", []string{there}}, {"b", []string{filepath.Join(dir, "none"), there}}, {"c", []string{filepath.Join(dir, "none")}},
		{"d", []string{"there"}}, {"e", []string{"no-such-program"}},
	})
	if !slices.Equal(got, []string{"c", "e"}) {
		t.Errorf("got %v, want c and e", got)
	}
}

// Missing lists the packages that Prepare would install, and the kernel unless the cache has it.
func TestMissingListsPackagesAndKernel(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := Config{Cache: t.TempDir()}
	lines, err := Missing(c)
	if err != nil || len(lines) != 2 || !strings.HasPrefix(lines[0], "as root, Debian's packages ") || !strings.HasPrefix(lines[1], "a Linux kernel (70 MB), into "+c.Cache) {
		t.Errorf("with an empty cache: got %q, %v, want packages and a kernel", lines, err)
	}
	if err := os.Mkdir(filepath.Join(c.Cache, "kernel-6.1"+kernelSuffix()), 0o755); err != nil {
		t.Fatal(err)
	}
	if lines, err := Missing(c); err != nil || len(lines) != 1 {
		t.Errorf("with a kernel: got %q, %v, want packages only", lines, err)
	}
}

// If install cannot install packages, its error says in one line what to do.
func TestInstallSaysWhatToDo(t *testing.T) {
	needs := []need{{"qemu-system-x86", []string{"/nonexistent/qemu"}}, {"perftest", []string{"/nonexistent/perftest"}}}
	t.Setenv("PATH", t.TempDir()) // without apt-get
	err := apt{io.Discard}.install(t.Context(), needs)
	wantError(t, err, "the VM needs the content of Debian's packages qemu-system-x86 perftest, and this system has no apt-get")
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q has several lines, want one", err)
	}
	if err := (apt{io.Discard}).install(t.Context(), nil); err != nil {
		t.Errorf("without needs: error %v", err)
	}
}

// As root, install runs apt-get, and again after an update of the lists if the first run fails. As
// another user it does not run apt-get.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	program := filepath.Join(dir, "program")
	// This apt-get fails until the lists are updated, as on a machine without lists.
	script := "#!/bin/sh\necho \"$*\" >>" + calls + "\ncase \"$*\" in\n*update*) : >" + dir + "/lists ;;\n" +
		"*) [ -e " + dir + "/lists ] || { echo 'E: Unable to locate package'; exit 100; }; : >" + program + " ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	var log bytes.Buffer
	err := apt{&log}.install(t.Context(), []need{{"package", []string{program}}})
	called, _ := os.ReadFile(calls)
	if os.Geteuid() != 0 {
		wantError(t, err, "the VM needs missing packages: as root, apt-get install package")
		if len(called) > 0 {
			t.Errorf("apt-get was called with %s, want no call", called)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	const install = "--quiet install --yes --no-install-recommends package\n"
	if string(called) != install+"--quiet update\n"+install {
		t.Errorf("calls of apt-get:\n%s\nwant install, update, install", called)
	}
	if log.String() != "installing package\n" {
		t.Errorf("log %q, want one line", &log)
	}
}

// fetchKernel uses the kernel of the cache without running apt-get.
func TestCachedKernelIsUsed(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, "kernel-6.1.0-1-amd64-"+modulesKey(modules()))
	if err := os.MkdirAll(filepath.Join(dir, "modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir())
	k, err := fetchKernel(t.Context(), cache, io.Discard)
	if err != nil || k.dir != dir {
		t.Errorf("kernel %v, error %v, want %s", k, err, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	_, err = fetchKernel(t.Context(), cache, io.Discard)
	wantError(t, err, "the VM boots the kernel of Debian's linux-image-amd64, and this system has no apt-get to download it")
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || len(left) != 1 {
		t.Errorf("the cache has %v (%v), want only the lock", left, err)
	}
}

// While another process has the lock, fetchKernel logs that it waits, and its context can interrupt
// it. It continues when the lock is free.
func TestFetchKernelWaitsForTheLock(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("PATH", t.TempDir()) // without apt-get
	other, err := os.Create(filepath.Join(cache, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	lines := 0
	_, err = fetchKernel(ctx, cache, writer(func(p []byte) {
		if bytes.HasPrefix(p, []byte("waiting for another process that downloads a kernel and has locked "+cache)) {
			lines++
		}
		cancel(errors.New("killed after 30m0s"))
	}))
	wantError(t, err, "lock "+other.Name()+": killed after 30m0s")
	_, err = fetchKernel(t.Context(), cache, writer(func(p []byte) {
		if lines++; lines == 2 {
			other.Close()
		}
	}))
	wantError(t, err, "this system has no apt-get to download it")
	if lines != 3 { // the last one is about the download
		t.Errorf("%d lines were logged, want one for each wait and one for the download", lines)
	}
}

func TestModulesKeyDependsOnTheList(t *testing.T) {
	if modulesKey(modules()) == modulesKey(modules()[1:]) {
		t.Error("two lists have the same key")
	}
}

func TestInitramfsContent(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "modules"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"order": "b.ko\na.ko\n", "modules/a.ko": "module a", "modules/b.ko": "module b", "program": "the program"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := kernel{dir}.initramfs(filepath.Join(dir, "program"), "/work/build")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"init\x00", "the program", "modules/b.ko\x00", "module b", "modules/a.ko\x00", "module a", "dev/console\x00",
		`{"modules":["b.ko","a.ko"],"share":"/work/build"}`, "TRAILER!!!",
	} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("the archive lacks %q", part)
		}
	}
	if _, err := (kernel{dir}).initramfs(filepath.Join(dir, "none"), "/x"); err == nil {
		t.Error("without the program: got no error")
	}
}
