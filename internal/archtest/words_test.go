//go:build !race

package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// oneSense are words that had several senses: each has the types that may have it in their names, with what it is there
// (docs/glossary.md). A type of another sense takes the term of its field.
var oneSense = map[string]map[string]string{
	"link": {
		"server.Link":                       "what a process has to one peer, for programs and /links",
		"server.LinkRoute":                  "likewise",
		"server.LinkState":                  "likewise",
		"..Link":                            "an alias of server.Link",
		"..LinkState":                       "an alias of server.LinkState",
		"transport/verbs.link":              "what a process has to one peer: this side's part of one channel",
		"transport/verbs.linkState":         "likewise",
		"transport/verbs.leftLink":          "likewise",
		"verbs.LinkLayer":                   "of a port, as the InfiniBand specification has it",
		"internal/config/sources.linkForm":  "the service links of Kubernetes",
		"proto/tensorflow.LocalLinks":       "generated",
		"proto/tensorflow.InterconnectLink": "generated",
	},
	"piece": {
		"internal/checkpoint.piece": "a range of a published tensor that is received alone",
	},
	"source": {
		"internal/channel.Source":            "the memory of the responder that a write reads",
		"internal/delivery.duoSource":        "likewise, in a search",
		"internal/config.Source":             "where the value of a setting comes from",
		"internal/config.SourceKind":         "likewise",
		"internal/config/sources.SourceKind": "likewise",
		"internal/config/sources.Source":     "an alias of config.Source",
	},
	"wire": {
		"verbs/verbstest.wire":  "what the fabric has between two ports",
		"verbs/verbstest.Wires": "likewise",
	},
	"way": {
		"internal/checkpoint.way": "how a tensor is made from another one",
	},
	"other": {},
}

// pieceful are the packages, without those below them, that may speak of pieces: ranges of published tensors. In others a piece would
// be a buffer, a chunk, a part of a message or a subgraph.
var pieceful = []string{".", "internal/archtest", "internal/bench", "internal/checkpoint", "internal/command", "server", "server/internal/metrics"}

// prepositions are no names of receivers.
var prepositions = []string{"to", "of", "from", "by", "with"}

// checkWords returns one line for each type that has a word of one sense in its name and is not listed, and for each that is listed
// and does not exist.
func checkWords(files []goFile, listed map[string]map[string]string) (complaints []string) {
	used := map[string]bool{}
	for _, f := range files {
		for n := range ast.Preorder(f.file) {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				continue
			}
			name := f.dir() + "." + spec.Name.Name
			for _, word := range wordsOf(spec.Name.Name) {
				word = strings.TrimSuffix(word, "s")
				types, ok := listed[word]
				switch {
				case !ok:
				case types[name] != "":
					used[name] = true
				default:
					complaints = append(complaints, fmt.Sprintf("%s: the type %s: %q has one sense (docs/glossary.md)", f.path, spec.Name.Name, word))
				}
			}
		}
	}
	for word, types := range listed {
		for name := range maps.Keys(types) {
			if !used[name] {
				complaints = append(complaints, fmt.Sprintf("oneSense lists %s for %q, which does not exist", name, word))
			}
		}
	}
	slices.Sort(complaints)
	return complaints
}

// wordsOf returns the words of an identifier or a text, in lower case: "leftLink" has "left" and "link".
func wordsOf(name string) []string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.FieldsFunc(b.String(), func(r rune) bool { return !unicode.IsLetter(r) })
}

func TestWordsHaveOneSense(t *testing.T) {
	for _, c := range checkWords(tree(t), oneSense) {
		t.Error(c)
	}
}

// checkPieces returns one line for each comment, identifier and text with the word in a package that has no pieces.
func checkPieces(files []goFile, packages []string) (complaints []string) {
	for _, f := range files {
		if f.isGenerated() || slices.Contains(packages, f.dir()) {
			continue
		}
		say := func(pos token.Pos, text string) {
			if slices.ContainsFunc(wordsOf(text), func(w string) bool { return w == "piece" || w == "pieces" }) {
				complaints = append(complaints, fmt.Sprintf("%s:%d: a piece is a range of a published tensor (docs/glossary.md)", f.path, f.set.Position(pos).Line))
			}
		}
		for _, group := range f.file.Comments {
			for _, c := range group.List {
				say(c.Pos(), c.Text)
			}
		}
		for n := range ast.Preorder(f.file) {
			switch n := n.(type) {
			case *ast.Ident:
				say(n.Pos(), n.Name)
			case *ast.BasicLit:
				say(n.Pos(), n.Value)
			}
		}
	}
	slices.Sort(complaints)
	return slices.Compact(complaints)
}

func TestPiecesAreOfPublishedTensors(t *testing.T) {
	for _, c := range checkPieces(tree(t), pieceful) {
		t.Error(c)
	}
}

func TestCheckPieces(t *testing.T) {
	const is = ": a piece is a range of a published tensor (docs/glossary.md)"
	same(t, checkPieces(made(t,
		"a/x.go", "package a\n\n// f takes a piece.\nfunc f() { firstPiece() }\n\nvar x = `two pieces`\n\nvar pieced = 1\n",
		"b/x.go", "package b\n\nvar piece int\n",
	), []string{"b"}), "a/x.go:3"+is, "a/x.go:4"+is, "a/x.go:6"+is)
}

// checkReceivers returns one line for each receiver whose name is a preposition.
func checkReceivers(files []goFile) (complaints []string) {
	for _, f := range files {
		for _, d := range f.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || len(fn.Recv.List[0].Names) == 0 {
				continue
			}
			if name := fn.Recv.List[0].Names[0].Name; slices.Contains(prepositions, name) {
				complaints = append(complaints, fmt.Sprintf("%s: the receiver of %s is named %q", f.path, fn.Name.Name, name))
			}
		}
	}
	return complaints
}

func TestReceiversAreNoPrepositions(t *testing.T) {
	for _, c := range checkReceivers(tree(t)) {
		t.Error(c)
	}
}

func TestCheckReceivers(t *testing.T) {
	same(t, checkReceivers(made(t, "a/x.go", "package a\n\nfunc (to *T) F() {}\n\nfunc (t T) G() {}\n\nfunc (T) H() {}\n\nfunc to() {}\n")),
		`a/x.go: the receiver of F is named "to"`)
}

func TestCheckWords(t *testing.T) {
	same(t, checkWords(made(t,
		"a/x.go", "package a\n\ntype link struct{}\n\ntype slowLinks struct{}\n\ntype blink struct{}\n\nvar linked, link1 int\n",
		"a/x_test.go", "package a\n\nfunc f() { type fakeLink struct{} }\n",
		"x.go", "package m\n\ntype Link = a.Link\n",
	), map[string]map[string]string{"link": {"a.link": "x", "..Link": "x", "b.link": "gone"}}),
		`a/x.go: the type slowLinks: "link" has one sense (docs/glossary.md)`,
		`a/x_test.go: the type fakeLink: "link" has one sense (docs/glossary.md)`,
		`oneSense lists b.link for "link", which does not exist`,
	)
}
