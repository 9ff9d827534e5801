// Command man writes the man pages of tryst, one for each command, into a directory.
//
//	go -C tools/man run . DIR
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/tryst-rdma/tryst/internal/command"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

// run writes the pages into the directory that is its only argument. Their date is that of SOURCE_DATE_EPOCH, or today.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: man DIR")
	}
	if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everybody may read man pages
		return err
	}
	root := command.Tree(command.Options{})
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Tryst", Manual: "Tryst"}, args[0])
}
