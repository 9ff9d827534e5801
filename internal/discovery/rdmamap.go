package discovery

import (
	"errors"
	"fmt"
	"io/fs"
)

// Map knows which devices there are, and which of their nodes are under /dev.
type Map interface {
	// Devices lists the RDMA devices. "None" is an empty list, "cannot be read"
	// an error.
	Devices() ([]string, error)
	// Nodes lists the character devices of a device, with their paths.
	Nodes(device string) ([]string, error)
}

// treeMap is a Map of a tree of sysfs.
type treeMap struct{ sysfs }

func (m treeMap) Devices() ([]string, error) {
	names, err := m.names(classRDMA)
	if errors.Is(err, fs.ErrNotExist) {
		// No class at all is a kernel without RDMA; no sysfs is a mistake.
		if _, err := m.names("."); err != nil {
			return nil, fmt.Errorf("sysfs cannot be read: %w", err)
		}
		return nil, nil
	}
	return names, err
}

func (m treeMap) Nodes(device string) ([]string, error) {
	names, err := m.names(classUverbs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // ib_uverbs is not loaded
	}
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, name := range names {
		of, err := m.text(classUverbs, name, "ibdev")
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNotDir): // abi_version lies beside the nodes
		case err != nil:
			return nil, err
		case of == device:
			nodes = append(nodes, nodeDir+name)
		}
	}
	return nodes, nil
}
