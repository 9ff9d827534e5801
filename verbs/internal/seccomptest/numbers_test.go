package seccomptest

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the numbers of system calls anew")

// names are the calls that golang.org/x/sys does not call as the kernel does.
var names = map[string]map[string]string{"arm64": {"fstatat": "newfstatat"}}

// TestNumbers: the tables of system calls are those of golang.org/x/sys (go test -update writes them
// anew).
func TestNumbers(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`(?m)^\tSYS_(\w+) += (\d+)$`)
	for arch, audit := range map[string]string{"amd64": "AUDIT_ARCH_X86_64\nconst arch = 0xc000003e", "arm64": "AUDIT_ARCH_AARCH64\nconst arch = 0xc00000b7"} {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+arch+".go"))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		fmt.Fprintf(&text, "package seccomptest\n\n// arch is linux/audit.h's %s\n\n", audit)
		text.WriteString("// numbers are the system calls and their numbers. TestNumbers writes them.\nconst numbers = `")
		width := 1 << 10 // a new line first
		for _, m := range constant.FindAllStringSubmatch(string(source), -1) {
			name := strings.ToLower(m[1])
			word := cmp.Or(names[arch][name], name) + " " + m[2]
			if width += 1 + len(word); width > 120 {
				text.WriteByte('\n')
				width = len(word)
			} else {
				text.WriteByte(' ')
			}
			text.WriteString(word)
		}
		text.WriteString("\n`\n")
		file := "numbers_linux_" + arch + ".go"
		if *update {
			if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if present, err := os.ReadFile(file); err != nil || string(present) != text.String() {
			t.Errorf("%s is not current (%v): go test ./verbs/internal/seccomptest -run TestNumbers -update", file, err)
		}
	}
}
