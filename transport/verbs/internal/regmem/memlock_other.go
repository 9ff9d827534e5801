//go:build !linux

package regmem

// ReadMemlock asks the system what this process may lock. No system but Linux has
// devices that lock memory.
func ReadMemlock() (Memlock, error) {
	return Memlock{Limit: NoMemlock, Hard: NoMemlock}, nil
}
