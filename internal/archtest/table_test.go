package archtest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// room is what the table of ARCHITECTURE.md section 2 says of one room: the code in a directory and in those below it that
// are no rooms of their own. A path is relative to the module's root; "." is the root package alone.
type room struct {
	path    string
	row     int
	rooms   map[string]bool // the paths of the rooms that it may import
	modules []string        // the outside modules that it may import, as import path prefixes
}

// modulesByWord says which modules the table means by its short names.
var modulesByWord = map[string]string{
	"automemlimit":  "github.com/KimMachineGun/automemlimit",
	"client_golang": "github.com/prometheus/client_golang",
	"cobra":         "github.com/spf13/cobra",
	"gonum":         "gonum.org/v1/gonum",
	"grpc":          "google.golang.org/grpc",
	"koanf":         "github.com/knadh/koanf",
	"netlink":       "github.com/vishvananda/netlink",
	"otel":          "go.opentelemetry.io",
	"pflag":         "github.com/spf13/pflag",
	"progressbar":   "github.com/schollz/progressbar",
	"protobuf":      "google.golang.org/protobuf",
	"rdmamap":       "github.com/Mellanox/rdmamap",
	"x/net":         "golang.org/x/net",
	"x/sync":        "golang.org/x/sync",
	"x/sys":         "golang.org/x/sys",
	"x/term":        "golang.org/x/term",
	"xxhash":        "github.com/cespare/xxhash",
	"yaml":          "go.yaml.in/yaml/v3",
}

// roomsByPhrase says which rooms the table means where it does not give their paths.
var roomsByPhrase = map[string][]string{
	"–":                           {},
	"":                            {},
	"proto":                       {"proto/tensorflow", "proto/tryst"},
	"proto and services":          {"proto/tensorflow", "proto/tryst", "proto/tensorflowgrpc", "proto/trystgrpc"},
	"proto/tryst and its service": {"proto/tryst", "proto/trystgrpc"},
	"tensor and its files":        {"tensor", "tensor/safetensors", "tensor/npy"},
}

var (
	backticked = regexp.MustCompile("`([^`]+)`")
	// exception is "(tensorproto: proto)": what one room of a row may import beyond the others.
	exception = regexp.MustCompile(`\((\S+): ([^)]*)\)`)
)

// parseTable reads the rooms out of the text of ARCHITECTURE.md.
func parseTable(doc string) (map[string]*room, error) {
	_, section, ok := strings.Cut(doc, "\n## 2. Rooms and arrows\n")
	if !ok {
		return nil, fmt.Errorf("no section %q", "## 2. Rooms and arrows")
	}
	section, _, _ = strings.Cut(section, "\n## ")

	rooms := map[string]*room{}
	type cell struct {
		rooms []*room
		text  string
	}
	var rights []cell
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 5 || cells[0] != "" || cells[4] != "" {
			continue // not of the table, or its text would show below as a room that is missing
		}
		var row cell
		row.text = strings.TrimSpace(cells[3])
		for _, m := range backticked.FindAllStringSubmatch(cells[1], -1) {
			r := &room{path: path.Clean(m[1]), row: len(rights), rooms: map[string]bool{}}
			if rooms[r.path] != nil {
				return nil, fmt.Errorf("room %s stands twice", r.path)
			}
			rooms[r.path] = r
			row.rooms = append(row.rooms, r)
		}
		if len(row.rooms) > 0 { // Not the heading.
			rights = append(rights, row)
		}
	}
	if len(rooms) == 0 {
		return nil, fmt.Errorf("no table in section 2")
	}

	for _, row := range rights {
		common := row.text
		if m := exception.FindStringSubmatch(common); m != nil {
			r, err := roomByWord(rooms, m[1])
			if err != nil {
				return nil, err
			}
			if err := r.allow(rooms, m[2]); err != nil {
				return nil, err
			}
			common = strings.Replace(common, m[0], "", 1)
		}
		for _, r := range row.rooms {
			// The rooms of one row may import one another.
			for _, other := range row.rooms {
				r.rooms[other.path] = true
			}
			if err := r.allow(rooms, common); err != nil {
				return nil, err
			}
		}
	}
	return rooms, nil
}

// allow adds the rights that a cell of the third column gives.
func (r *room) allow(rooms map[string]*room, cell string) error {
	ours, outside, _ := strings.Cut(strings.ReplaceAll(cell, "`", ""), ";")
	for phrase := range strings.SplitSeq(ours, ",") {
		phrase = strings.TrimSpace(phrase)
		paths, known := roomsByPhrase[phrase]
		switch {
		case known:
		case phrase == "everything":
			paths = slices.Collect(maps.Keys(rooms))
		case phrase == "all above but .":
			paths = above(rooms, r.row)
		case phrase == "server and below":
			if rooms["server"] == nil {
				return fmt.Errorf("%s: there is no room server", r.path)
			}
			paths = append(above(rooms, rooms["server"].row), "server")
		default:
			other, err := roomByWord(rooms, phrase)
			if err != nil {
				return fmt.Errorf("%s may import: %w", r.path, err)
			}
			paths = []string{other.path}
		}
		for _, p := range paths {
			if rooms[p] == nil {
				return fmt.Errorf("%s may import %q: there is no room %s", r.path, phrase, p)
			}
			r.rooms[p] = true
			if strings.HasPrefix(p, "proto/") { // A message is of little use without its runtime.
				r.modules = append(r.modules, modulesByWord["protobuf"])
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
			return fmt.Errorf("%s may import: which module is %q? add it to modulesByWord", r.path, word)
		}
		r.modules = append(r.modules, prefix)
	}
	return nil
}

// roomByWord finds a room by its path, or by the last element of its path when only one room has it.
func roomByWord(rooms map[string]*room, word string) (*room, error) {
	if r := rooms[word]; r != nil {
		return r, nil
	}
	var found *room
	for p, r := range rooms {
		if path.Base(p) == word {
			if found != nil {
				return nil, fmt.Errorf("%q may be %s or %s", word, found.path, p)
			}
			found = r
		}
	}
	if found == nil {
		return nil, fmt.Errorf("there is no room %q", word)
	}
	return found, nil
}

// above lists the rooms of the rows over the given one, without the root package.
func above(rooms map[string]*room, row int) []string {
	var paths []string
	for p, r := range rooms {
		if r.row < row && p != "." {
			paths = append(paths, p)
		}
	}
	return paths
}
