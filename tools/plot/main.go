package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// The exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run executes a command line and returns its exit status.
func run(args []string, errs io.Writer) int {
	flags := flag.NewFlagSet("tryst-plot", flag.ContinueOnError)
	flags.SetOutput(errs)
	title := flags.String("title", "", "the title of the picture; default: that of the benchmark, or the file's name")
	check := flags.Bool("check", false, "change nothing, and fail if a picture is not what its rows give")
	flags.Usage = func() {
		fmt.Fprintln(errs, "Usage: tryst-plot [--title TEXT] [--check] FILE.jsonl...")
		flags.PrintDefaults()
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case err != nil:
		return exitUsage
	case flags.NArg() == 0:
		flags.Usage()
		return exitUsage
	}
	status := exitDone
	for _, file := range flags.Args() {
		if err := one(file, *title, *check); err != nil {
			fmt.Fprintln(errs, "tryst-plot:", err)
			status = exitFailed
		}
	}
	return status
}

// one draws, or checks, the picture of a file.
func one(file, title string, check bool) error {
	base, ok := strings.CutSuffix(file, ".jsonl")
	if !ok {
		return fmt.Errorf("%s: the name does not end with .jsonl", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if title == "" {
		title = titleOf(file)
	}
	svg, err := plotText(file, title, text)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(base+".svg", svg, 0o644)
	}
	if have, err := os.ReadFile(base + ".svg"); err != nil {
		return err
	} else if !bytes.Equal(have, svg) {
		return fmt.Errorf("%s.svg is not the picture of %s: draw it again", base, file)
	}
	return nil
}

// plotText returns the picture of JSON lines.
func plotText(file, title string, text []byte) ([]byte, error) {
	if err := checkText(title, maxTitle); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	rows, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	return render(title, rows)
}
