package sources

import "os"

// SetForLibrary sets a variable of the process that a library in C reads when it is opened, unless the
// user has set it.
func SetForLibrary(name, value string) error {
	if _, ok := os.LookupEnv(name); ok {
		return nil
	}
	return os.Setenv(name, value)
}
