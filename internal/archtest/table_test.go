//go:build !race

package archtest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// entry is what the table of ARCHITECTURE.md section 2 states about one package: the code in a directory, and in the
// directories below it that have no entry of their own. A path is relative to the module's root; "." is the root package alone.
type entry struct {
	path     string
	row      int
	packages map[string]bool // the paths of the entries that it may import
	modules  []string        // the outside modules that it may import, as import path prefixes
}

// modulesByWord maps the short names in the table to modules.
var modulesByWord = map[string]string{
	"automemlimit":  "github.com/KimMachineGun/automemlimit",
	"client_golang": "github.com/prometheus/client_golang",
	"ansi":          "github.com/charmbracelet/x/ansi",
	"bubbletea":     "charm.land/bubbletea/v2",
	"cobra":         "github.com/spf13/cobra",
	"compress":      "github.com/klauspost/compress",
	"lipgloss":      "charm.land/lipgloss/v2",
	"gonum":         "gonum.org/v1/gonum",
	"grpc":          "google.golang.org/grpc",
	"koanf":         "github.com/knadh/koanf",
	"go-farm":       "github.com/dgryski/go-farm",
	"go-landlock":   "github.com/landlock-lsm/go-landlock",
	"netlink":       "github.com/vishvananda/netlink",
	"otel":          "go.opentelemetry.io",
	"pflag":         "github.com/spf13/pflag",
	"purego":        "github.com/ebitengine/purego",
	"protobuf":      "google.golang.org/protobuf",
	"rdmamap":       "github.com/Mellanox/rdmamap",
	"x/net":         "golang.org/x/net",
	"x/sync":        "golang.org/x/sync",
	"x/sys":         "golang.org/x/sys",
	"x/term":        "golang.org/x/term",
	"xxhash":        "github.com/cespare/xxhash",
	"yaml":          "go.yaml.in/yaml/v3",
}

// packagesByPhrase maps the phrases of the table that are not paths to entries.
var packagesByPhrase = map[string][]string{
	"–":                           {},
	"":                            {},
	"proto":                       {"proto/tensorflow", "proto/tryst"},
	"proto and services":          {"proto/tensorflow", "proto/tryst", "proto/tensorflowgrpc", "proto/trystgrpc"},
	"proto/tryst and its service": {"proto/tryst", "proto/trystgrpc"},
	"tensor and its files":        {"tensor", "tensor/safetensors", "tensor/npy"},
}

// heading is the heading of the section with the table.
const heading = "## 2. Packages and imports"

var (
	backticked = regexp.MustCompile("`([^`]+)`")
	// exception is "(tensorproto: proto)": what one package of a row may import beyond the others.
	exception = regexp.MustCompile(`\((\S+): ([^)]*)\)`)
)

// parseTable reads the table in the text of ARCHITECTURE.md. The result is keyed by path.
func parseTable(doc string) (map[string]*entry, error) {
	_, section, ok := strings.Cut(doc, "\n"+heading+"\n")
	if !ok {
		return nil, fmt.Errorf("no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")

	entries := map[string]*entry{}
	type row struct {
		entries []*entry
		imports string // the third column
	}
	var rows []row
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || cells[0] != "" || cells[4] != "" {
			continue // Not a line of the table. A malformed line shows later as a missing package.
		}
		r := row{imports: strings.TrimSpace(cells[3])}
		for _, m := range backticked.FindAllStringSubmatch(cells[1], -1) {
			e := &entry{path: path.Clean(m[1]), row: len(rows), packages: map[string]bool{}}
			if entries[e.path] != nil {
				return nil, fmt.Errorf("package %s is listed twice", e.path)
			}
			entries[e.path] = e
			r.entries = append(r.entries, e)
		}
		if len(r.entries) > 0 { // Not the heading.
			rows = append(rows, r)
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("no table in section 2")
	}

	for _, r := range rows {
		common := r.imports
		if m := exception.FindStringSubmatch(common); m != nil {
			e, err := findEntry(entries, m[1])
			if err != nil {
				return nil, err
			}
			if err := e.allow(entries, m[2]); err != nil {
				return nil, err
			}
			common = strings.Replace(common, m[0], "", 1)
		}
		for _, e := range r.entries {
			// The packages of one row may import one another.
			for _, other := range r.entries {
				e.packages[other.path] = true
			}
			if err := e.allow(entries, common); err != nil {
				return nil, err
			}
		}
	}
	return entries, nil
}

// allow adds the imports that a cell of the third column allows.
func (e *entry) allow(entries map[string]*entry, cell string) error {
	ours, outside, _ := strings.Cut(strings.ReplaceAll(cell, "`", ""), ";")
	for phrase := range strings.SplitSeq(ours, ",") {
		paths, err := e.pathsOf(entries, strings.TrimSpace(phrase))
		if err != nil {
			return fmt.Errorf("%s may import: %w", e.path, err)
		}
		for _, p := range paths {
			e.packages[p] = true
			if strings.HasPrefix(p, "proto/") { // Generated messages need their runtime.
				e.modules = append(e.modules, modulesByWord["protobuf"])
			}
		}
	}
	for word := range strings.SplitSeq(outside, ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		prefix, ok := modulesByWord[word]
		if !ok {
			return fmt.Errorf("%s may import: which module is %q? add it to modulesByWord", e.path, word)
		}
		e.modules = append(e.modules, prefix)
	}
	return nil
}

// pathsOf returns the paths of the entries that a phrase in the row of e means.
func (e *entry) pathsOf(entries map[string]*entry, phrase string) ([]string, error) {
	words, fixed := packagesByPhrase[phrase]
	switch {
	case fixed:
	case phrase == "everything":
		return slices.Collect(maps.Keys(entries)), nil
	case phrase == "all above but .":
		return above(entries, e.row), nil
	case phrase == "server and below":
		words = []string{"server"}
	default:
		words = []string{phrase}
	}
	var paths []string
	for _, word := range words {
		other, err := findEntry(entries, word)
		if err != nil {
			return nil, err
		}
		paths = append(paths, other.path)
		if phrase == "server and below" {
			paths = append(paths, above(entries, other.row)...)
		}
	}
	return paths, nil
}

// findEntry finds an entry by its path, or by the last elements of its path when no other path ends in them.
func findEntry(entries map[string]*entry, word string) (*entry, error) {
	if e := entries[word]; e != nil {
		return e, nil
	}
	var found *entry
	for p, e := range entries {
		if strings.HasSuffix(p, "/"+word) {
			if found != nil {
				return nil, fmt.Errorf("%q may be %s or %s", word, found.path, p)
			}
			found = e
		}
	}
	if found == nil {
		return nil, fmt.Errorf("package %q is not in the table", word)
	}
	return found, nil
}

// above lists the entries of the rows above the given one, without the root package.
func above(entries map[string]*entry, row int) []string {
	var paths []string
	for p, e := range entries {
		if e.row < row && p != "." {
			paths = append(paths, p)
		}
	}
	return paths
}
