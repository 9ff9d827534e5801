//go:build !linux

package regmem

import "errors"

// mapShared has no counterpart here: devices that share memory exist on Linux only.
func mapShared(int) ([]byte, int, error) { return nil, -1, errors.ErrUnsupported }

func closeFile(int) {}
