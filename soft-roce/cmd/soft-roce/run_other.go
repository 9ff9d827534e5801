//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm"
)

func guestMain([]string) bool { return false }

// run supports only where and missing: the tests run on Linux alone.
func run(_ context.Context, args []string) (int, error) {
	reason := vm.Possible()
	if reason == nil {
		reason = errors.New("soft-roce needs Linux")
	}
	switch {
	case len(args) > 0 && args[0] == "where":
		fmt.Println("skip", reason)
		return 0, nil
	case len(args) > 0 && args[0] == "missing":
		return 0, nil
	}
	return failed, reason
}
