package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// text reads a small file.
func text(tree fs.FS, name string) (string, error) {
	f, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile))
	return strings.TrimSpace(string(b)), err
}

// hugePages reads the pools of huge pages and the mode of transparent ones
// (Documentation/admin-guide/mm of the kernel).
func hugePages(sys fs.FS) HugePages {
	const pools, transparent = "kernel/mm/hugepages", "kernel/mm/transparent_hugepage/enabled"
	var h HugePages
	var errs []error
	entries, err := fs.ReadDir(sys, pools)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	number := func(name string) uint64 {
		s, err := text(sys, name)
		n, err2 := strconv.ParseUint(s, 10, 64)
		if err := errors.Join(err, err2); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		return n
	}
	for _, e := range entries {
		size, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kib, err := strconv.ParseUint(strings.TrimSuffix(size, "kB"), 10, 32)
		if !ok || err != nil {
			continue
		}
		h.Pools = append(h.Pools, HugePool{
			Size: kib << 10, Total: number(pools + "/" + e.Name() + "/nr_hugepages"), Free: number(pools + "/" + e.Name() + "/free_hugepages"),
		})
	}
	mode, err := text(sys, transparent)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	if _, rest, ok := strings.Cut(mode, "["); ok { // "always [madvise] never"
		h.Transparent, _, _ = strings.Cut(rest, "]")
	}
	h.Err = errors.Join(errs...)
	return h
}

// ecn reads for each priority whether the NIC reacts to ECN marks. Only some drivers report it
// (mlx5 of MLNX_OFED).
func ecn(sys fs.FS, netdev string) map[int]bool {
	if netdev == "" {
		return nil
	}
	var on map[int]bool
	for prio := range 8 {
		s, err := text(sys, fmt.Sprintf("class/net/%s/ecn/roce_np/enable/%d", netdev, prio))
		if err != nil {
			continue
		}
		if on == nil {
			on = make(map[int]bool)
		}
		on[prio] = s == "1"
	}
	return on
}
