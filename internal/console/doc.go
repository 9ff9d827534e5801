// Package console fits what the commands print to the width of a terminal. What goes to a
// file or a pipe is never wrapped, so that programs can read it.
package console

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Width returns the width of a terminal in columns; 0 when w is none. A Writer that has a
// method Unwrap() io.Writer stands for the one that it returns.
func Width(w io.Writer) int {
	for {
		u, ok := w.(interface{ Unwrap() io.Writer })
		if !ok {
			break
		}
		w = u.Unwrap()
	}
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}
