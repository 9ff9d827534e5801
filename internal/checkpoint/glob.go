package checkpoint

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tryst-rdma/tryst/status"
)

// choose returns the indexes of the tensors that match at least one pattern, in the order of the
// manifest; of all tensors if there is no pattern. A pattern that matches no tensor is NotFound,
// a malformed one InvalidArgument.
//
// Patterns are those of path.Match, except that * and ? match every character including the
// slash, since tensor names have no directories.
//
//   - any text, the empty one too
//     ?       one character
//     [a-z]   one character of the class; [^a-z] one that is not of it
//     \c      the character c
//
// A pattern that is equal to the name of a tensor means that tensor.
func (m *Manifest) choose(patterns []string) ([]int, error) {
	chosen := make([]int, 0, len(m.Entries))
	if len(patterns) == 0 {
		for i := range m.Entries {
			chosen = append(chosen, i)
		}
		return chosen, nil
	}
	byName := make(map[string]int, len(m.Entries))
	for i, e := range m.Entries {
		byName[e.Name] = i
	}
	taken := make([]bool, len(m.Entries))
	for _, pattern := range patterns {
		if i, ok := byName[pattern]; ok {
			taken[i] = true
			continue
		}
		re, err := compileGlob(pattern)
		if err != nil {
			return nil, err
		}
		matched := false
		for i := range m.Entries {
			if re.MatchString(m.Entries[i].Name) {
				taken[i], matched = true, true
			}
		}
		if !matched {
			return nil, status.Errorf(status.NotFound, "publication %s: no tensor matches %s; %s",
				quote(m.Name), quote(pattern), nearest(pattern, maps.Keys(byName)))
		}
	}
	for i := range m.Entries {
		if taken[i] {
			chosen = append(chosen, i)
		}
	}
	return slices.Clip(chosen), nil
}

// compileGlob returns the regular expression for a pattern: package regexp
// takes time linear in the text, whatever the pattern.
func compileGlob(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`) // s: a dot matches the newline, too
	for rest := pattern; rest != ""; {
		c, size := utf8.DecodeRuneInString(rest)
		rest = rest[size:]
		var err error
		switch c {
		case '*':
			b.WriteString(`.*`)
		case '?':
			b.WriteByte('.')
		case '[':
			rest, err = appendClass(&b, rest)
		case '\\':
			c, rest, err = globChar(`\` + rest)
			b.WriteString(regexp.QuoteMeta(string(c)))
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
		if err != nil {
			return nil, wrap("malformed pattern "+quote(pattern), err)
		}
	}
	b.WriteString(`\z`)
	re, err := regexp.Compile(b.String())
	if err != nil {
		return nil, status.Errorf(status.InvalidArgument, "malformed pattern %s: %w", quote(pattern), err)
	}
	return re, nil
}

// appendClass translates a class after its opening bracket, and returns the text behind it.
func appendClass(b *strings.Builder, rest string) (string, error) {
	b.WriteByte('[')
	if r, ok := strings.CutPrefix(rest, "^"); ok {
		rest = r
		b.WriteByte('^')
	}
	for n := 0; ; n++ {
		if r, ok := strings.CutPrefix(rest, "]"); ok && n > 0 {
			b.WriteByte(']')
			return r, nil
		}
		if rest == "" || rest[0] == ']' || rest[0] == '-' {
			return "", status.New(status.InvalidArgument, "a class [...] is empty, not closed, or has a - out of place")
		}
		lo, r, err := globChar(rest)
		if err != nil {
			return "", err
		}
		hi := lo
		if r, ok := strings.CutPrefix(r, "-"); ok {
			if hi, rest, err = globChar(r); err != nil {
				return "", err
			}
		} else {
			rest = r
		}
		if hi < lo {
			return "", status.Errorf(status.InvalidArgument, "the range %c-%c runs backwards", lo, hi)
		}
		appendClassChar(b, lo)
		b.WriteByte('-')
		appendClassChar(b, hi)
	}
}

func appendClassChar(b *strings.Builder, c rune) {
	if ' ' < c && c < utf8.RuneSelf && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
		b.WriteByte('\\') // regexp permits a backslash before any ASCII punctuation
	}
	b.WriteRune(c)
}

// globChar reads one character, which a backslash may precede.
func globChar(s string) (c rune, rest string, err error) {
	s, escaped := strings.CutPrefix(s, `\`)
	if s == "" {
		if escaped {
			return 0, "", status.New(status.InvalidArgument, `nothing follows the last \`)
		}
		return 0, "", status.New(status.InvalidArgument, "a class [...] is not closed")
	}
	c, size := utf8.DecodeRuneInString(s)
	return c, s[size:], nil
}
