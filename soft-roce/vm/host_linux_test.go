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
		t.Errorf("%q, error %v", got, err)
	}
	for _, other := range []string{"", "<linux-image-amd64>\n", "linux-image-amd64\n  Depends: something\n"} {
		if got, err := kernelPackage(other); err == nil {
			t.Errorf("%q gives %q", other, got)
		}
	}
}

// apt-cache speaks the language of whoever asks; ours is English.
func TestKernelIsFoundInEveryLanguage(t *testing.T) {
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

// The directory that a path through links leads to is mounted, not the path: in the guest's first root the links lead nowhere.
func TestSharedDirectoryIsNamedWithoutLinks(t *testing.T) {
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
		t.Errorf("%q, error %v, want %q", got, err, want)
	}
	if info, err := os.Stat(got); err != nil || !info.IsDir() {
		t.Errorf("it was not made: %v", err)
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
		t.Errorf("missing %v, want c and e", got)
	}
}

// What Prepare would do to this machine is told before it does it: packages, and the kernel until the cache has one.
func TestMissingIsToldBefore(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	c := Config{Cache: t.TempDir()}
	lines, err := Missing(c)
	if err != nil || len(lines) != 2 || !strings.HasPrefix(lines[0], "as root, Debian's packages ") || !strings.HasPrefix(lines[1], "a Linux kernel (70 MB), into "+c.Cache) {
		t.Errorf("without anything: %q, %v", lines, err)
	}
	if err := os.Mkdir(filepath.Join(c.Cache, "kernel-6.1"+kernelSuffix()), 0o755); err != nil {
		t.Fatal(err)
	}
	if lines, err := Missing(c); err != nil || len(lines) != 1 {
		t.Errorf("with a kernel: %q, %v", lines, err)
	}
}

// Where packages cannot be installed, one line says what to do.
func TestInstallSaysWhatToDo(t *testing.T) {
	needs := []need{{"qemu-system-x86", []string{"/nonexistent/qemu"}}, {"perftest", []string{"/nonexistent/perftest"}}}
	t.Setenv("PATH", t.TempDir()) // No apt-get.
	err := apt{io.Discard}.install(t.Context(), needs)
	want(t, err, "the VM needs what Debian has in qemu-system-x86 perftest, and there is no apt-get")
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than a line: %q", err)
	}
	if err := (apt{io.Discard}).install(t.Context(), nil); err != nil {
		t.Errorf("nothing is needed: %v", err)
	}
}

// As root apt-get installs, with new lists when the old ones do not do; elsewhere it is not asked.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	calls := filepath.Join(dir, "calls")
	made := filepath.Join(dir, "program")
	// It fails until the lists were updated, as on a machine without lists.
	script := "#!/bin/sh\necho \"$*\" >>" + calls + "\ncase \"$*\" in\n*update*) : >" + dir + "/lists ;;\n" +
		"*) [ -e " + dir + "/lists ] || { echo 'E: Unable to locate package'; exit 100; }; : >" + made + " ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	var log bytes.Buffer
	err := apt{&log}.install(t.Context(), []need{{"package", []string{made}}})
	said, _ := os.ReadFile(calls)
	if os.Geteuid() != 0 {
		want(t, err, "the VM needs packages that are missing: as root, apt-get install package")
		if len(said) > 0 {
			t.Errorf("apt-get was called: %s", said)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	const install = "--quiet install --yes --no-install-recommends package\n"
	if string(said) != install+"--quiet update\n"+install {
		t.Errorf("calls of apt-get:\n%s", said)
	}
	if log.String() != "installing package\n" {
		t.Errorf("log %q", &log)
	}
}

// The kernel that is in the cache is taken, without a question to anybody.
func TestCachedKernel(t *testing.T) {
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
	want(t, err, "the VM boots the kernel of Debian's linux-image-amd64, and there is no apt-get to download it")
	if left, err := filepath.Glob(filepath.Join(cache, "*")); err != nil || len(left) != 1 {
		t.Errorf("left in the cache: %v, %v; only the lock may be", left, err)
	}
}

// Who waits while another process downloads is told so, and can be interrupted; when the other is done it goes on.
func TestWaitForAnotherDownload(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("PATH", t.TempDir()) // No apt-get.
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
		if bytes.HasPrefix(p, []byte("waiting for another process that fetches a kernel: it holds "+cache)) {
			lines++
		}
		cancel(errors.New("killed after 30m0s"))
	}))
	want(t, err, "lock "+other.Name()+": killed after 30m0s")
	_, err = fetchKernel(t.Context(), cache, writer(func(p []byte) {
		if lines++; lines == 2 {
			other.Close()
		}
	}))
	want(t, err, "there is no apt-get to download it")
	if lines != 3 { // The last one is of the download.
		t.Errorf("%d lines, want one from each that waits and one of a download", lines)
	}
}

func TestModulesKeyFollowsTheList(t *testing.T) {
	if modulesKey(modules()) == modulesKey(modules()[1:]) {
		t.Error("another list has the same key")
	}
}

func TestInitramfsHasAllThatInitNeeds(t *testing.T) {
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
			t.Errorf("no %q in it", part)
		}
	}
	if _, err := (kernel{dir}).initramfs(filepath.Join(dir, "none"), "/x"); err == nil {
		t.Error("no error without a program")
	}
}
