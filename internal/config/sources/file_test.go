package sources

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
)

func TestYAMLForms(t *testing.T) {
	for name, test := range map[string]struct{ yaml, key, want string }{
		"nested":               {"tls:\n  server-name: a\n", "tls.server-name", "a"},
		"dotted":               {"tls.server-name: a\n", "tls.server-name", "a"},
		"section in braces":    {"tls: {cert: b,\n  'server-name': a}\n", "tls.server-name", "a"},
		"number":               {"max-waiting: 1_000\n", "max-waiting", "1000"},
		"fraction":             {"otel.sample-ratio: 5e-1\n", "otel.sample-ratio", "0.5"},
		"boolean":              {"publish-mmap: true\n", "publish-mmap", "true"},
		"number for a name":    {"tls:\n  server-name: 7\n", "tls.server-name", "7"},
		"name like a fraction": {"tls.server-name: 1.10\n", "tls.server-name", "1.10"},
		"name in octal":        {"rdma.device: 0123\n", "rdma.device", "0123"},
		"path like a number":   {"address-file: 2024_11\n", "address-file", "2024_11"},
		"path like a date":     {"address-file: 2024-11-02\n", "address-file", "2024-11-02"},
		"name by an anchor":    {"tls.cert: &a 0x10\ntls.server-name: *a\n", "tls.server-name", "0x10"},
		"name that is encoded": {"tls.server-name: !!binary YQ==\n", "tls.server-name", "a"},
		"empty text":           {"metrics-address: ''\n", "metrics-address", ""},
		"empty section":        {"tls:\n  # cert: a\nlisten: ':1'\n", "listen", ":1"},
		"only comments":        {"# listen: ':1'\n", "listen", "127.0.0.1:2222"},
		"document marker":      {"%YAML 1.1\n---\nlisten: ':1'\n", "listen", ":1"},
		"all in braces":        {"{listen: ':1',\n tls: {\n cert: a}}\n", "tls.cert", "a"},
		"JSON":                 {"{\n\t\"log\": {\n\t\t\"level\": \"warn\"\n\t},\n\t\"max-waiting\": 7\n}\n", "log.level", "warn"},
		"document's end":       {"listen: ':1'\n...\n# no more\n", "listen", ":1"},
		"anchor of a key":      {"tls.server-name: &a task\n*a : /job:b/task:1\n", "task", "/job:b/replica:0/task:1"},
		"anchor":               {"metrics-address: &a host:1\nlisten: *a\n", "listen", "host:1"},
		"no newline":           {"listen: ':1'", "listen", ":1"},
		"block text":           {"tls.server-name: >-\n  a\n", "tls.server-name", "a"},
		"cluster as a text":    {"cluster: a=h:1,7@h:2\n", "cluster", "a=h:1,7@h:2"},
		"cluster as lists":     {"cluster:\n  a: [h:1, h:2]\n  b:\n  - h:3\n", "cluster", "a=h:1,h:2;b=h:3"},
		"cluster by numbers":   {"cluster:\n  a: {0: h:1, 7: h:2}\n", "cluster", "a=h:1,7@h:2"},
		"cluster, no clients":  {"cluster: {}\n", "cluster", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := world{yaml: test.yaml}.load(t)
			if err != nil {
				t.Fatal(err)
			}
			s := byKey(test.key)
			if got := c.fields().Text(s.Key); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestYAMLErrors(t *testing.T) {
	for name, test := range map[string]struct {
		yaml string
		want [][]string
	}{
		"unknown key":          {"listen: ':1'\nlisen: ':2'\n", [][]string{{`settings.yaml:2: key "lisen"`, "nearest is listen"}}},
		"unknown section":      {"\n\nlogs:\n  level: info\n", [][]string{{`settings.yaml:3: key "logs"`}}},
		"unknown member":       {"log:\n  # colour: no\n  colour: red\n", [][]string{{`settings.yaml:3: key "log.colour"`}}},
		"unknown in braces":    {"log: {level: info,\n colour: red}\n", [][]string{{`settings.yaml:2: key "log.colour"`}}},
		"the file's own path":  {"config: other.yaml\n", [][]string{{`settings.yaml:1: key "config"`}}},
		"given twice":          {"listen: ':1'\ntask: /job:a/task:0\nlisten: ':2'\n", [][]string{{`settings.yaml:3: key "listen" is already at line 1`}}},
		"two given twice":      {"listen: ':1'\nlisten: b\ntask: /job:a/task:0\ntask: b\n", [][]string{{"settings.yaml:2: "}, {"settings.yaml:4: "}}},
		"section twice":        {"log:\n  level: info\nlog:\n  format: json\n", [][]string{{`settings.yaml:3: key "log" is already at line 1`}}},
		"twice in a section":   {"log: {level: info,\n  format: json,\n  level: warn}\n", [][]string{{`settings.yaml:3: key "level" is already at line 1`}}},
		"twice, with a dot":    {"log.level: info\nlog:\n  level: warn\n", [][]string{{`settings.yaml:3: key "log.level" is already at line 1`}}},
		"twice by an anchor":   {"tls.server-name: &a listen\nlisten: ':1'\n*a : ':2'\n", [][]string{{`settings.yaml:3: key "listen" is already at line 2`}}},
		"list as a key":        {"listen: ':1'\n? [a]\n: b\n", [][]string{{"settings.yaml:2: want a name as key"}}},
		"no path":              {"tls.cert: ~\n", [][]string{{"settings.yaml:1: tls.cert: it has no value"}}},
		"list for a path":      {"tls.cert: [a]\n", [][]string{{"settings.yaml:1: tls.cert: want one value, got a list"}}},
		"no value":             {"listen:\n", [][]string{{"settings.yaml:1: listen: it has no value"}}},
		"list":                 {"listen: [a, b]\n", [][]string{{"settings.yaml:1: listen: want one value, got a list"}}},
		"mapping":              {"listen:\n  host: a\n", [][]string{{"settings.yaml:1: listen: want one value, got a mapping"}}},
		"date":                 {"digest: 2026-01-02\n", [][]string{{"settings.yaml:1: digest: ", "quotes"}}},
		"section with a value": {"log: info\n", [][]string{{`settings.yaml:1: key "log"`}}},
		"no mapping":           {"just words\n", [][]string{{"settings.yaml:1: want keys with values"}}},
		"no YAML":              {"task: /job:a/task:0\nlisten: [':1\n\n", [][]string{{"settings.yaml:2: ", "unexpected end"}}},
		"no comma in braces":   {"{\n \"listen\": \":1\"\n \"task\": \"/job:a/task:0\"\n}\n", [][]string{{"settings.yaml:3: did not find expected ',' or '}'"}}},
		"a brace too many":     {"task: /job:a/task:0\n}\n", [][]string{{"settings.yaml:2: did not find expected key"}}},
		"no anchor":            {"listen: *a\n", [][]string{{"settings.yaml: unknown anchor"}}},
		"two documents":        {"listen: ':1'\n---\nlisen: ':2'\n", [][]string{{"settings.yaml:2: a second document"}}},
		"documents in braces":  {"{listen: ':1',\n task: /job:a/task:0}\nlisen: ':2'\n", [][]string{{"settings.yaml:3: a second document"}}},
		"after document's end": {"listen: ':1'\n...\nlisen: ':2'\n", [][]string{{"settings.yaml:3: a second document"}}},
		"a fault in each":      {"lisen: ':1'\n---\nlisten: ':1'\n", [][]string{{`settings.yaml:1: key "lisen"`}, {"settings.yaml:2: a second document"}}},
		"JSON": {"{\n\t\"listen\": [\":1\"],\n\t\"log\": {\n\t\t\"colour\": \"red\",\n\t\t\"level\": \"loud\"\n\t}\n}\n", [][]string{
			{"settings.yaml:2: listen: want one value, got a list"}, {`settings.yaml:4: key "log.colour"`}, {`settings.yaml:5: log.level "loud"`}}},
		"cluster, one address": {"cluster:\n  a: h:1\n", [][]string{{`settings.yaml:2: cluster: job "a"`, "want a list"}}},
		"cluster, no mapping":  {"cluster: [h:1]\n", [][]string{{"settings.yaml:1: cluster: want one value, got a list"}}},
		"cluster, no job":      {"cluster:\n  b: [h:1]\n  a b: [h:1]\n", [][]string{{`settings.yaml:3: cluster: `, `"a b"`}}},
		"cluster, job twice":   {"cluster:\n  a: [h:1]\n  a: [h:1]\n", [][]string{{"settings.yaml:3: ", `"a" already defined at line 2`}}},
		"cluster, task twice":  {"cluster:\n  a:\n    1: h:1\n    01: h:2\n", [][]string{{`settings.yaml:4: cluster: job "a": task 1: want one address`}}},
		"cluster, no number":   {"cluster:\n  a: {x: h:1}\n", [][]string{{`settings.yaml:2: cluster: job "a": "x" is not a task number`}}},
		"cluster, no address":  {"cluster:\n  a: {0: 7}\n", [][]string{{`settings.yaml:2: cluster: job "a": task 0: want one address`}}},
		"cluster, bad number":  {"cluster:\n  a: {0: h:1,\n    -1: h:2}\n", [][]string{{"settings.yaml:3: cluster: ", "-1"}}},
		"cluster, addresses":   {"cluster:\n  a: [h:1,\n    nowhere,\n    h:99999]\n", [][]string{{"settings.yaml:3: cluster: ", `"nowhere"`, "HOST:PORT"}, {"settings.yaml:4: ", "task 2"}}},
		"cluster, bad text":    {"cluster: a=nowhere\n", [][]string{{`settings.yaml:1: cluster "a=nowhere": at byte 2`, "HOST:PORT"}}},
		"anchor in itself":     {"\ncluster: &a\n  b: *a\n", [][]string{{"settings.yaml:2: ", "contains itself"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := world{yaml: test.yaml}.load(t)
			wantErrors(t, err, test.want...)
		})
	}
}

// TestYAMLManyUnknown tells the first ones of a file that is none of ours.
func TestYAMLManyUnknown(t *testing.T) {
	var b strings.Builder
	for range maxFaults + 10 {
		b.WriteString("x" + strings.Repeat("y", b.Len()%97) + "z" + strings.Repeat("q", b.Len()/97) + ": 1\n")
	}
	_, err := world{yaml: b.String()}.load(t)
	want := make([][]string, maxFaults)
	for i := range want {
		want[i] = []string{"there is no such setting"}
	}
	wantErrors(t, err, want...)
}

// TestYAMLLines finds every setting at its line, however the file is written.
func TestYAMLLines(t *testing.T) {
	for _, yaml := range []string{
		"listen: ':1'\ntls:\n  cert: a\n  server-name: cert\ncluster:\n  tls: [h:1]\n",
		"{listen: ':1',\ntls: {\ncert: a,\nserver-name: cert},\ncluster: {\ntls: [h:1]}}\n",
		"{\"listen\": \":1\",\n\"tls\":\n{\"cert\": \"a\",\n\"server-name\": \"cert\"},\n\"cluster\":\n{\"tls\": [\"h:1\"]}}\n",
		"'listen': ':1'\n# cert: b\ntls.cert: a\ntls.server-name: |-\n  cert\ncluster: {tls: [h:1]}\n",
	} {
		c, err := world{yaml: yaml}.load(t)
		if err != nil {
			t.Errorf("%q: %v", yaml, err)
			continue
		}
		for key, line := range map[string]int{"listen": 1, "tls.cert": 3, "tls.server-name": 4, "cluster": 5} {
			if strings.HasPrefix(yaml, "'") && key == "cluster" {
				line++ // the block text takes one more
			}
			if got := c.Source(key); got.Kind != FromFile || got.Line != line {
				t.Errorf("%q: %s is from %q, want line %d", yaml, key, got, line)
			}
		}
	}
}

// TestYAMLAliasBomb refuses a small file that stands for a large cluster.
func TestYAMLAliasBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("cluster:\n  j: &a [" + strings.Repeat("h:1,", 20_000) + "]\n")
	for i := range 5_000 {
		fmt.Fprintf(&b, "  j%d: *a\n", i)
	}
	_, err := world{yaml: b.String()}.load(t)
	wantErrors(t, err, []string{"settings.yaml:1: ", "excessive aliasing"})
}

// FuzzYAML reads any file. Whatever it takes means the same when what Describe
// shows is given by flags, and no part of it went unread.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"", "# nothing\n", "~", "listen: ':1'\n", "log:\n  level: debug\n", "log.level: debug\nlog:\n", "lisen: ':1'\n", "listen: a\nlisten: b\n",
		"---\nlisten: ':1'\n---\nlisten: ':2'\n", "listen: ':1'\n...\n", "{listen: ':1',\n tls: {cert: a, key: b}}", "cluster:\n  a: [h:1]\n  b: {0: h:2, 010: h:3}\n",
		"a: &a [*a]\n", "a: &a {b: 1}\n<<: *a\n", "listen: |\n  x\n", "? listen\n: ':1'\n", "? [a]\n: b\n", "!!binary aGk=: 1\n", "listen: !!binary aGk=\n",
		"\ufefflisten: ':1'\n", "listen: ':1'\r---\rlisen: ':2'\r", "max-waiting: 0x10\n", "otel.sample-ratio: .inf\n", "1: 2\n", "%YAML 1.2\n---\nlisten: ':1'\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := world{yaml: string(data)}.load(t)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "InvalidArgument: ") || !strings.Contains(line, "settings.yaml") {
					t.Errorf("%q does not say where", line)
				}
			}
			return
		}
		if len(data) == 0 {
			return
		}
		var args []string
		for _, e := range c.Describe() {
			if e.Source.Kind == FromFile {
				s := byKey(e.Key)
				args = append(args, "--"+s.Flag()+"="+e.Value)
			}
		}
		again, err := world{args: args}.load(t)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		for _, s := range config.Settings() {
			if got, want := again.fields().Text(s.Key), c.fields().Text(s.Key); got != want && s.InFile() {
				t.Errorf("%s: got %q by flag, %q by file", s.Key, got, want)
			}
		}
		if _, err := (world{yaml: string(data) + "\nno-such-setting: 1\n"}).load(t); err == nil {
			t.Error("a key at the end of the file is not looked at")
		}
	})
}
