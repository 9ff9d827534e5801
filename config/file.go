package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

// maxUnknown is how many unknown keys of one file are told; a file with more
// is no file of ours.
const maxUnknown = 20

// maxTries bounds how often the parser is asked for the line of one key, each
// time with up to a whole file.
const maxTries = 8

// file is the settings in the YAML file at the path that a source gives.
func (l *loader) file(path given, read func(string) ([]byte, error)) map[string]any {
	data, err := read(path.Text)
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it is larger than %s; is it a file of settings?", FormatSize(maxFile))
	}
	if err != nil {
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			err = pathErr.Err // without the path, which is told already
		}
		l.add(valueError(path.Source, configKey, path.Text, err))
		return nil
	}
	f := file{name: path.Text, data: data, values: make(map[string]any)}
	f.read()
	l.errs = append(l.errs, f.errs...)
	return f.values
}

// file is one YAML file on its way to settings.
type file struct {
	name   string
	data   []byte
	values map[string]any // given, by key
	errs   []error
}

func (f *file) fail(line int, format string, args ...any) {
	source := Source{Kind: FromFile, Name: f.name, Line: line}
	err := status.Errorf(status.InvalidArgument, format, args...)
	f.errs = append(f.errs, err.WithPrefix(source.place()))
}

func (f *file) read() {
	root, err := yaml.Parser().Unmarshal(f.data)
	if err != nil {
		f.syntax(err)
		return
	}
	if endsEarly(f.data) {
		f.fail(0, "want one document, a setting to a line; it is in braces, or ends at a marker (--- or ...) before the file does")
		return
	}
	known := make(map[string]Setting, len(settings))
	for _, s := range settings {
		if s.InFile() {
			known[s.Key] = s
		}
	}
	unknowns := 0
	for _, e := range flatten(root) {
		s, ok := known[e.key]
		switch {
		case !ok && unknowns < maxUnknown:
			f.errs = append(f.errs, unknown("key", quote(e.key), nearest(e.key, known)).
				WithPrefix(Source{Kind: FromFile, Name: f.name, Line: f.line(e.key)}.place()))
			unknowns++
		case ok:
			f.take(s, e.value)
		}
	}
}

// take keeps the value of one setting.
func (f *file) take(s Setting, value any) {
	line := f.line(s.Key)
	if _, twice := f.values[s.Key]; twice { // tls.cert, and cert in tls
		f.fail(line, "%s: it stands twice, nested and with a dot; leave one out", s.Key)
		return
	}
	text, err := scalar(value)
	if s.Key == clusterKey && err != nil {
		text, err = clusterText(value)
	}
	if err != nil {
		f.fail(line, "%s: %w", s.Key, err)
		return
	}
	f.values[s.Key] = given{text, Source{Kind: FromFile, Name: f.name, Line: line}}
}

// entry is a key of the file, with dots, and its value.
type entry struct {
	key   string
	value any
}

// flatten lists the settings and the unknown keys of a document, sorted by
// key: the members of a section such as log, and all else as it is.
func flatten(root map[string]any) []entry {
	var entries []entry
	for _, name := range slices.Sorted(maps.Keys(root)) {
		members, isMap := stringKeys(root[name])
		switch {
		case !isSection(name) || !isMap && root[name] != nil:
			entries = append(entries, entry{name, root[name]})
		default: // a section without members (all commented out) says nothing
			for _, member := range slices.Sorted(maps.Keys(members)) {
				entries = append(entries, entry{name + "." + member, members[member]})
			}
		}
	}
	return entries
}

// isSection reports whether keys begin with the name and a dot.
func isSection(name string) bool {
	return slices.ContainsFunc(settings, func(s Setting) bool { return strings.HasPrefix(s.Key, name+".") })
}

// stringKeys returns a mapping with its keys as text: YAML's may be numbers.
func stringKeys(value any) (map[string]any, bool) {
	switch m := value.(type) {
	case map[string]any:
		return m, true
	case map[any]any:
		text := make(map[string]any, len(m))
		for key, v := range m {
			text[fmt.Sprint(key)] = v
		}
		return text, true
	}
	return nil, false
}

// scalar returns a value as a flag would say it.
func scalar(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64:
		return fmt.Sprint(v), nil
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case nil:
		return "", errors.New(`it has no value; give one, "" for the empty one, or leave the key out`)
	case []any:
		return "", errors.New("want one value, got a list")
	case map[string]any, map[any]any:
		return "", errors.New("want one value, got a mapping")
	default: // YAML knows dates, too
		return "", errors.New("want a text, a number or a boolean; put it in quotes")
	}
}

// clusterText turns a mapping from job to its tasks, a list of addresses or a
// mapping from task number to address, into the text of a cluster spec.
func clusterText(value any) (string, error) {
	const want = "want a text, or a mapping from job to a list of addresses, or from job to task numbers with addresses"
	jobs, ok := stringKeys(value)
	if !ok {
		return "", errors.New(want)
	}
	tasks := make(map[string]map[int]string, len(jobs))
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		tasks[job] = make(map[int]string)
		numbered, isMap := stringKeys(jobs[job])
		if list, isList := jobs[job].([]any); isList {
			numbered = make(map[string]any, len(list))
			for i, address := range list {
				numbered[strconv.Itoa(i)] = address
			}
		} else if !isMap {
			return "", fmt.Errorf("job %s: %s", quote(job), want)
		}
		for _, number := range slices.Sorted(maps.Keys(numbered)) {
			index, err := strconv.Atoi(number)
			if err != nil {
				return "", fmt.Errorf("job %s: %s is no task number", quote(job), quote(number))
			}
			address, isText := numbered[number].(string)
			if _, again := tasks[job][index]; again || !isText {
				return "", fmt.Errorf("job %s: task %d: want one address, HOST:PORT", quote(job), index)
			}
			tasks[job][index] = address
		}
	}
	spec, err := cluster.NewSpec(tasks)
	if err != nil {
		return "", reason(err, "")
	}
	return spec.String(), nil
}

// yamlFault is one fault in the parser's text, which may hold several lines of
// them: keys given twice, for one.
var yamlFault = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)

// syntax tells the parser's faults, each at its line.
func (f *file) syntax(err error) {
	for text := range strings.Lines(err.Error()) {
		text = strings.TrimSpace(text)
		if strings.HasSuffix(text, "unmarshal errors:") {
			continue // the heading of the lines that follow
		}
		line := 0
		if m := yamlFault.FindStringSubmatch(text); m != nil {
			line, _ = strconv.Atoi(m[1])
			text = m[2]
		}
		if strings.Contains(text, "into map[string]interface {}") {
			text = "want keys with values, one setting to a line: listen: 127.0.0.1:2222"
		}
		f.fail(line, "%s", strings.TrimPrefix(text, "yaml: "))
	}
}

// endsEarly reports whether the parser, which took the document, may have
// stopped before the end of the file: at a marker (--- or ...), or at the brace
// that closes the whole. It says nothing about what it leaves unread; so one
// more brace after the end of the file must make it stumble.
func endsEarly(data []byte) bool {
	_, err := yaml.Parser().Unmarshal(slices.Concat(data, []byte("\n}\n")))
	return err == nil
}

// line returns at which line a key stands, or 0. The parser tells no lines, so
// it is asked: the key stands on the first line that names it and up to which
// the file has it. Where such a part of the file does not parse, as within
// braces, the first line that names it has to do; so it does after
// maxTries lines.
func (f *file) line(key string) int {
	last := regexp.QuoteMeta(key[strings.LastIndexByte(key, '.')+1:])
	names, err := regexp.Compile(`(?:^|[\s{,.?-])["']?` + last + `["']?\s*:`)
	if err != nil {
		return 0
	}
	first, number, end, tries := 0, 0, 0, 0
	for line := range bytes.Lines(f.data) {
		number++
		end += len(line)
		if !names.Match(line) {
			continue
		}
		if first == 0 {
			first = number
		}
		if tries++; tries > maxTries {
			break
		}
		root, err := yaml.Parser().Unmarshal(f.data[:end])
		if err == nil && slices.ContainsFunc(flatten(root), func(e entry) bool { return e.key == key }) {
			return number
		}
	}
	return first
}
