package vm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestConsoleKeepsTheLastLines(t *testing.T) {
	var all bytes.Buffer
	c := &console{tee: &all}
	if got := c.tail(); got != "the console is empty" {
		t.Errorf("before any output: got %q", got)
	}
	for i := range consoleLines + 10 {
		fmt.Fprintf(c, "line %d\r\n", i)
	}
	fmt.Fprint(c, "\x1bc\x1b[?7l\x1b[2J\r\n\r\nhalf a li")
	fmt.Fprint(c, "ne")
	lines := strings.Split(c.tail(), "\n")
	if len(lines) != 1+consoleLines+1 || lines[1] != "    line 10" || lines[len(lines)-1] != "    half a line" {
		t.Errorf("got %d lines from %q to %q, want %d from line 10 to half a line", len(lines), lines[1], lines[len(lines)-1], 1+consoleLines+1)
	}
	if !strings.HasPrefix(all.String(), "line 0\r\n") || !strings.HasSuffix(all.String(), "half a line") {
		t.Errorf("the second writer has %q, want all output", &all)
	}
}

// The line that reports a fault is kept, however long the trace after it.
func TestConsoleKeepsTheFirstFault(t *testing.T) {
	c := &console{}
	fmt.Fprintln(c, "[ 7.2] Kernel panic - not syncing: sysrq triggered crash")
	if got := c.tail(); strings.Count(got, "Kernel panic") != 1 {
		t.Errorf("while it is among the last lines: got %s, want it once", got)
	}
	for range 2 * consoleLines {
		fmt.Fprintln(c, "[ 7.3]  panic+0x118/0x2f4")
	}
	fmt.Fprintln(c, "[ 7.4] BUG: a second one")
	if got := c.tail(); !strings.HasPrefix(got, "the kernel's first fault:\n    [ 7.2] Kernel panic - not syncing: sysrq triggered crash\nthe console's last lines:\n") {
		t.Errorf("after the trace: got %s, want the first fault at the beginning", got)
	}
}

func TestConsoleLimitsItsMemory(t *testing.T) {
	c := &console{}
	for range 100 {
		fmt.Fprint(c, strings.Repeat("x", 10*consoleLine))
	}
	if len(c.last) > consoleLine {
		t.Errorf("it keeps %d bytes of an incomplete line, want at most %d", len(c.last), consoleLine)
	}
	fmt.Fprintln(c, strings.Repeat("y", 10*consoleLine)+"\xff")
	if n := len(c.tail()); n > 2*consoleLine {
		t.Errorf("the tail has %d bytes, want at most %d", n, 2*consoleLine)
	}
}

func TestArchive(t *testing.T) {
	var w bytes.Buffer
	a := &archive{w: &w}
	a.dir("dev")
	a.device("dev/console", 5, 1)
	a.file("init", 0o755, []byte("12345"))
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	const zero = "00000000"
	header := func(inode, mode, size, major, minor, name string) string {
		return "070701" + inode + mode + zero + zero + "00000001" + zero + size + zero + zero + major + minor + name + zero
	}
	want := header("00000001", "000041ed", zero, zero, zero, "00000004") + "dev\x00\x00\x00" +
		header("00000002", "00002180", zero, "00000005", "00000001", "0000000c") + "dev/console\x00\x00\x00" +
		header("00000003", "000081ed", "00000005", zero, zero, "00000005") + "init\x00\x00" + "12345\x00\x00\x00" +
		header("00000004", zero, zero, zero, zero, "0000000b") + "TRAILER!!!\x00\x00\x00\x00"
	if got := w.String(); got != want {
		t.Errorf("archive\n%q, want\n%q", got, want)
	}
	broken := &archive{w: failing{}}
	broken.file("init", 0o755, nil)
	if err := broken.close(); err == nil {
		t.Error("close after a failed write: got no error")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, fmt.Errorf("no space") }

func TestLoadOrder(t *testing.T) {
	tree := fstest.MapFS{
		"kernel/net/9p/9pnet.ko":                    {Data: moduleWith("name=9pnet")},
		"kernel/net/9p/9pnet_virtio.ko":             {Data: moduleWith("depends=9pnet,virtio_ring", "name=9pnet_virtio")},
		"kernel/drivers/virtio/virtio_ring.ko":      {Data: moduleWith("depends=virtio")},
		"kernel/drivers/virtio/virtio.ko":           {Data: moduleWith("depends=")},
		"kernel/arch/x86/crypto/crc32-pclmul.ko":    {Data: moduleWith("depends=")},
		"kernel/drivers/other/broken.ko":            {Data: moduleWith("depends=missing")},
		"kernel/drivers/other/text.ko":              {Data: []byte("not a module")},
		"kernel/drivers/other/packed.ko.zst":        {Data: []byte("x")},
		"modules.builtin":                           {Data: []byte("kernel/lib/crc32.ko\n")},
		"kernel/drivers/other/without-a-section.ko": {Data: object(nil)},
	}
	got, err := loadOrder(tree, []module{{name: "9pnet_virtio"}, {name: "virtio"}, {name: "crc32_generic", optional: true}, {name: "crc32_pclmul"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kernel/net/9p/9pnet.ko", "kernel/drivers/virtio/virtio.ko", "kernel/drivers/virtio/virtio_ring.ko", "kernel/net/9p/9pnet_virtio.ko",
		"kernel/arch/x86/crypto/crc32-pclmul.ko",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got order %v, want %v", got, want)
	}
	for name, want := range map[string]string{
		"rdma_rxe":          "the kernel package has no module rdma_rxe",
		"broken":            "no module missing, which broken needs",
		"text":              "text.ko: ",
		"packed":            "packed.ko.zst: must be .ko or .ko.xz",
		"without_a_section": "no section .modinfo",
	} {
		if _, err := loadOrder(tree, []module{{name: name}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
	}
}

// moduleWith returns a module with these entries in .modinfo.
func moduleWith(entries ...string) []byte {
	return object([]byte(strings.Join(entries, "\x00") + "\x00"))
}

// object returns a small ELF file (elf(5)): header, section names, .modinfo unless it is nil, and the
// section headers.
func object(modinfo []byte) []byte {
	names := []byte("\x00.shstrtab\x00.modinfo\x00")
	const headerSize, sectionSize = 64, 64
	sections := []elf.Section64{{}, {
		Name: 1, Type: uint32(elf.SHT_STRTAB), Off: headerSize, Size: uint64(len(names)),
	}}
	if modinfo != nil {
		sections = append(sections, elf.Section64{
			Name: 11, Type: uint32(elf.SHT_PROGBITS), Off: headerSize + uint64(len(names)), Size: uint64(len(modinfo)),
		})
	}
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: uint64(headerSize + len(names) + len(modinfo)), Ehsize: headerSize, Shentsize: sectionSize,
		Shnum: uint16(len(sections)), Shstrndx: 1,
	}
	var w bytes.Buffer
	for _, part := range []any{head, names, modinfo, sections} {
		if err := binary.Write(&w, binary.LittleEndian, part); err != nil {
			return nil
		}
	}
	return w.Bytes()
}

func FuzzDepends(f *testing.F) {
	f.Add(moduleWith("depends=a,b", "name=c"))
	f.Add(moduleWith("depends="))
	f.Add(object(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		names, err := depends(text)
		if err != nil && names != nil {
			t.Errorf("got names %v with error %v, want none", names, err)
		}
	})
}

func TestParseAccelerator(t *testing.T) {
	for name, want := range map[string]Accelerator{"": Auto, "auto": Auto, "kvm": KVM, "tcg": TCG} {
		if got, err := ParseAccelerator(name); got != want || err != nil {
			t.Errorf("ParseAccelerator(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := ParseAccelerator("hvf"); err == nil || !strings.Contains(err.Error(), "auto, kvm or tcg") {
		t.Errorf("ParseAccelerator(hvf): error %v, want one that lists the names", err)
	}
}

func TestPossibleOnLinuxAMD64Only(t *testing.T) {
	if err := possible("linux", "amd64"); err != nil {
		t.Error(err)
	}
	for _, other := range [][2]string{{"linux", "arm64"}, {"darwin", "amd64"}, {"windows", "amd64"}} {
		if err := possible(other[0], other[1]); err == nil || !strings.HasSuffix(err.Error(), "this is "+other[0]+"/"+other[1]) {
			t.Errorf("%v: error %v, want one that names the system", other, err)
		}
	}
}
