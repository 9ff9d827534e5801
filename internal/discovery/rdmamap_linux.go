package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/Mellanox/rdmamap"
)

// hostMap is the Map of this host, through rdmamap. That answers nil both for
// "none" and for "cannot be read"; which it is, is looked up first.
type hostMap struct{}

// readable is an error when a directory is there and cannot be listed.
func readable(dir string) (exists bool, err error) {
	_, err = os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (hostMap) Devices() ([]string, error) {
	if _, err := os.ReadDir("/sys/class"); err != nil {
		return nil, fmt.Errorf("sysfs cannot be read: %w", err)
	}
	exists, err := readable(rdmamap.RdmaClassDir)
	if !exists {
		return nil, err
	}
	names := rdmamap.GetRdmaDeviceList()
	slices.SortFunc(names, natural)
	return names, nil
}

func (hostMap) Nodes(device string) ([]string, error) {
	for _, dir := range []string{rdmamap.RdmaUverbsDir, rdmamap.RdmaUmadDir, rdmamap.RdmaIbUcmDir} {
		if _, err := readable(dir); err != nil {
			return nil, err
		}
	}
	nodes := rdmamap.GetRdmaCharDevices(device)
	slices.SortFunc(nodes, natural)
	return nodes, nil
}
