package verbs

import "regexp"

var numbers = regexp.MustCompile(`(QP|queue pair) 0x[0-9a-f]{6}\b`)

// WithoutQPNs is a text without the numbers of queue pairs. Who is not on the path has
// to guess them, so they are told to the log, and to the peer that they are for, and
// nobody else.
func WithoutQPNs(text string) string { return numbers.ReplaceAllString(text, "$1") }
