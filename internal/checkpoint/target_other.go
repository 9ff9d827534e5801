//go:build !unix

package checkpoint

import "os"

const noFollow = 0

// lock does nothing: the standard library locks files on Unix only.
func lock(*os.File) error { return nil }
