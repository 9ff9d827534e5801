package sources

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// oneDocument is the error of a file with a second document.
const oneDocument = "a second document begins; want one, with all settings"

// file reads the settings in the YAML file whose path a source gives.
func (l *loader) file(path config.Given, read func(string) ([]byte, error)) map[string]any {
	data, err := read(path.Text)
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is larger than %s; is it a file of settings?", config.FormatSize(maxFile))
	}
	if err != nil {
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			err = pathErr.Err // without the path, which valueError adds
		}
		l.add(config.ValueError(path.Source, config.ConfigKey, path.Text, err))
		return nil
	}
	f := file{name: path.Text, values: make(map[string]any), known: make(map[string]config.Setting, len(config.Settings()))}
	for _, s := range config.Settings() {
		if s.InFile() {
			f.known[s.Key] = s
		}
	}
	f.read(data)
	l.errs = append(l.errs, f.errs...)
	return f.values
}

// file is a YAML file that is being read.
type file struct {
	name   string
	known  map[string]config.Setting // that a file may set, by key
	values map[string]any            // read so far, by key
	errs   []error                   // the first maxFaults
	faults int                       // all of them
}

// fail reports an error at a line; 0 if the line is not known.
func (f *file) fail(line int, format string, args ...any) {
	f.report(line, status.Errorf(status.InvalidArgument, format, args...))
}

func (f *file) report(line int, fault *status.Error) {
	if f.faults++; f.faults <= maxFaults {
		f.errs = append(f.errs, fault.WithPrefix(f.source(line).Place()))
	}
}

func (f *file) source(line int) config.Source {
	return config.Source{Kind: config.FromFile, Name: f.name, Line: line}
}

func (f *file) read(data []byte) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return // only comments
	case err != nil:
		f.refused(0, err)
		return
	}
	f.root(resolve(document.Content[0]))
	switch err := decoder.Decode(&second); {
	case err == nil:
		f.fail(second.Line, oneDocument)
	case !errors.Is(err, io.EOF):
		f.refused(0, err)
	}
}

// root reads the settings of the document.
func (f *file) root(root *yaml.Node) {
	if root.Kind != yaml.MappingNode && !isNull(root) {
		f.fail(root.Line, "want keys with values: listen: 127.0.0.1:2222")
		return
	}
	for _, m := range f.members(root) {
		if !isSection(m.name) || m.value.Kind != yaml.MappingNode && !isNull(m.value) {
			f.setting(m)
			continue
		}
		for _, inner := range f.members(m.value) { // none if all keys are comments
			inner.name = m.name + "." + inner.name
			f.setting(inner)
		}
	}
}

// setting reads the value of one setting.
func (f *file) setting(m member) {
	s, ok := f.known[m.name]
	if !ok {
		f.report(m.line, unknown("key", config.Quote(m.name), nearest(m.name, f.known)))
		return
	}
	if first, twice := f.values[s.Key].(config.Given); twice { // tls.cert, and cert in tls
		f.fail(m.line, "key %s is already at line %d; remove one", config.Quote(s.Key), first.Source.Line)
		return
	}
	var value any // the decoder also refuses anchors that contain themselves or multiply
	if err := m.value.Decode(&value); err != nil {
		f.refused(m.line, err)
		return
	}
	if s.Key == config.ClusterKey && m.value.Kind == yaml.MappingNode {
		if text, ok := f.cluster(m.value); ok {
			f.values[s.Key] = config.Given{Text: text, Source: f.source(m.line)}
		}
		return
	}
	if s.IsText() && m.value.Kind == yaml.ScalarNode && value != nil {
		if _, quoted := value.(string); !quoted { // a path or a name that looks like a number: 1.10, 0123
			value = m.value.Value
		}
	}
	text, err := scalar(value)
	if err != nil {
		f.fail(m.line, "%s: %w", s.Key, err)
		return
	}
	f.values[s.Key] = config.Given{Text: text, Source: f.source(m.line)}
}

// member is a key of a mapping, its line, and its value.
type member struct {
	name  string
	line  int
	value *yaml.Node // not an alias
}

// members lists the members of a mapping in order. It reports and skips keys that are not
// text or are repeated.
func (f *file) members(mapping *yaml.Node) []member {
	members := make([]member, 0, len(mapping.Content)/2)
	lines := make(map[string]int, len(mapping.Content)/2)
	for pair := range slices.Chunk(mapping.Content, 2) {
		key, line := resolve(pair[0]), pair[0].Line
		switch first, twice := lines[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			f.fail(line, "want a name as key, got a list or a mapping")
		case twice:
			f.fail(line, "key %s is already at line %d; remove one", config.Quote(key.Value), first)
		default:
			lines[key.Value] = line
			members = append(members, member{key.Value, line, resolve(pair[1])})
		}
	}
	return members
}

// resolve returns the target of an alias, and any other node unchanged.
func resolve(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool { return node.ShortTag() == "!!null" }

// isSection reports whether there are keys that begin with the name and a dot.
func isSection(name string) bool {
	return slices.ContainsFunc(config.Settings(), func(s config.Setting) bool { return strings.HasPrefix(s.Key, name+".") })
}

// scalar returns a value in the form of a flag.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64:
		return fmt.Sprint(v), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case nil:
		return "", errors.New(`it has no value; add one ("" for an empty value), or remove the key`)
	case []any:
		return "", errors.New("want one value, got a list")
	case map[string]any, map[any]any:
		return "", errors.New("want one value, got a mapping")
	default: // for example a date
		return "", errors.New("want a text, a number or a boolean; put it in quotes")
	}
}

var (
	// yamlFault matches one error in the decoder's text, which may have several
	// lines.
	yamlFault = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?(.*)$`)
	// grammarFault matches errors of the YAML parser, as opposed to its scanner. It
	// counts lines from 0 and omits line 0 (GOTCHAS.md).
	grammarFault = regexp.MustCompile(`^did not find expected (?:<|node content|key|'[,-])`)
)

// refused reports the decoder's errors, each at its line, or at the given line if the
// decoder names none.
func (f *file) refused(line int, err error) {
	for text := range strings.Lines(err.Error()) {
		m := yamlFault.FindStringSubmatch(strings.TrimSpace(text))
		if m == nil || m[2] == "unmarshal errors:" { // the heading of the lines that follow
			continue
		}
		at, why := line, m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			at = n
		}
		if grammarFault.MatchString(why) {
			at++
		}
		if strings.HasSuffix(why, "<document start>") {
			why = oneDocument
		}
		f.fail(at, "%s", why)
	}
}
