package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is a kernel module that the guest loads.
type module struct {
	name string
	// optional is true for a module that some kernels have built in or do not need.
	optional bool
}

// modules returns the modules in load order, without those that they depend on.
func modules() []module {
	return []module{
		// The virtio bus and its devices.
		{name: "virtio_pci"}, {name: "virtio_console"}, {name: "9pnet_virtio"}, {name: "9p"}, {name: "overlay"},
		// Without crc32 in the crypto API, adding a link fails with ENOENT.
		{name: "crc32_generic", optional: true}, {name: "crc32_pclmul", optional: true},
		{name: "rdma_rxe"}, {name: "rdma_ucm"},
		// Network interfaces for tests, and netem, which drops packets.
		{name: "veth"}, {name: "dummy"}, {name: "bonding"}, {name: "sch_netem"}, {name: "tun"},
	}
}

// loadOrder returns the files of the wanted modules and of all that they depend on, in load order.
// tree is the directory of a kernel's modules.
func loadOrder(tree fs.FS, wanted []module) ([]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if base, _, ok := strings.Cut(d.Name(), ".ko"); ok {
			files[canonical(base)] = path
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var order []string
	seen := map[string]bool{}
	var visit func(name, neededBy string) error
	visit = func(name, neededBy string) error {
		name = canonical(name)
		if seen[name] {
			return nil
		}
		seen[name] = true
		path, ok := files[name]
		if !ok {
			return fmt.Errorf("the kernel package has no module %s%s", name, neededBy)
		}
		text, err := readModule(tree, path)
		if err != nil {
			return err
		}
		deps, err := depends(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, d := range deps {
			if err := visit(d, ", which "+name+" needs"); err != nil {
				return err
			}
		}
		order = append(order, path)
		return nil
	}
	for _, m := range wanted {
		if _, ok := files[canonical(m.name)]; !ok && m.optional {
			continue
		}
		if err := visit(m.name, ""); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// readModule reads a module's file, and decompresses it: newer Debian kernels have .ko.xz.
func readModule(tree fs.FS, path string) ([]byte, error) {
	text, err := fs.ReadFile(tree, path)
	if err != nil || filepath.Ext(path) == ".ko" {
		return text, err
	}
	if filepath.Ext(path) != ".xz" {
		return nil, fmt.Errorf("module %s: must be .ko or .ko.xz", path)
	}
	xz := exec.Command("xz", "--decompress", "--stdout")
	xz.Stdin = bytes.NewReader(text)
	if text, err = xz.Output(); err != nil {
		return nil, fmt.Errorf("module %s: xz (package xz-utils): %w", path, err)
	}
	return text, nil
}

// canonical returns a module's name as the kernel writes it, with underscores for the hyphens that
// file names may have.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// depends returns the names of the modules that a module depends on, from its section .modinfo: a
// sequence of key=value, each ended by a zero byte.
func depends(text []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(info), "\x00") {
		if names, ok := strings.CutPrefix(entry, "depends="); ok && names != "" {
			return strings.Split(names, ","), nil
		}
	}
	return nil, nil
}
