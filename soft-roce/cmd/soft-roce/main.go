package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// failed is the exit status when the tool itself failed, as env(1) and timeout(1) have it: a command has the others.
const failed = 125

func main() {
	if takenOver(os.Args) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	status, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soft-roce:", err)
		status = failed
	}
	os.Exit(status)
}
