package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// failed is the exit status if the tool itself failed, as in env(1) and timeout(1). All others are
// those of the command.
const failed = 125

func main() {
	if guestMain(os.Args) {
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
