package status

import "strconv"

// Said is a sentence that a peer has sent. Its text names the peer and quotes the sentence, so that
// it is not taken for a judgement of this process. Wrap it in an Error, which has the code.
type Said struct {
	Peer string // its task name or address
	Text string
}

// Error returns `PEER says: "TEXT"`.
func (s *Said) Error() string { return s.Peer + " says: " + strconv.Quote(s.Text) }
