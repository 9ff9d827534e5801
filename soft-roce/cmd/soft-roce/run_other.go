//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tryst-rdma/tryst/soft-roce/vm"
)

func takenOver([]string) bool { return false }

// run knows where the tests run: not here.
func run(_ context.Context, args []string) (int, error) {
	why := vm.Possible()
	if why == nil {
		why = errors.New("it is for Linux")
	}
	switch {
	case len(args) > 0 && args[0] == "where":
		fmt.Println("skip", why)
		return 0, nil
	case len(args) > 0 && args[0] == "missing":
		return 0, nil // nothing to run
	}
	return failed, why
}
