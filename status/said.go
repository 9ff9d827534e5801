package status

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Said is a sentence that a peer has sent. Its text names the peer and quotes the sentence, so that
// it is not taken for a judgement of this process. Wrap it in an Error, which has the code.
type Said struct {
	Peer string // its task name or address
	Text string
}

// Error returns `PEER says: "TEXT"`. A text that has quotes itself is in backquotes instead, if it
// can be.
func (s *Said) Error() string {
	quoted := strconv.Quote(s.Text)
	if strings.Contains(s.Text, `"`) && !strings.ContainsFunc(s.Text, raw) && utf8.ValidString(s.Text) {
		quoted = "`" + s.Text + "`"
	}
	return s.Peer + " says: " + quoted
}

// raw reports whether a character needs an escape: those that terminals obey, or that change the
// direction of the text. strconv.CanBackquote lets some of them pass.
func raw(r rune) bool { return r == '`' || !unicode.IsPrint(r) }
