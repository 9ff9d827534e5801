package console

import (
	"strings"
	"unicode/utf8"
)

// Wrap cuts a text into lines of at most width characters; 0 = no bound. It prefers to cut
// after a blank or a separator of names and lists, and drops blanks at the cut.
func Wrap(s string, width int) (lines []string) {
	for width > 0 && utf8.RuneCountInString(s) > width {
		end, soft := 0, 0 // bytes: of the width, and after the last blank or separator in it
		for n := range width {
			r, size := utf8.DecodeRuneInString(s[end:])
			end += size
			if strings.ContainsRune(" ,;:./_-=@", r) && n >= width/3 {
				soft = end
			}
		}
		if s[end] == ' ' {
			soft = end
		}
		if soft > 0 {
			end = soft
		}
		lines = append(lines, strings.TrimRight(s[:end], " "))
		s = strings.TrimLeft(s[end:], " ")
	}
	return append(lines, s)
}
