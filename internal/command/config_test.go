package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
)

func TestConfigShowsValuesAndSources(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tryst.yaml")
	if err := os.WriteFile(file, []byte("digest: sha256\nlisten: h:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"TRYST_LISTEN=h:2", "TRYST_MAX_WAITING=7"}
	args := []string{"config", "--config", file, "--max-waiting", "8"}
	text := did(t, trystEnv(t, env, args...))
	for _, want := range []string{
		`(?m)^SETTING +VALUE +SOURCE$`,
		`(?m)^transport +auto +default$`,
		`(?m)^listen +h:2 +env TRYST_LISTEN$`,
		`(?m)^digest +sha256 +file ` + regexp.QuoteMeta(file) + `:1$`,
		`(?m)^max-waiting +8 +flag --max-waiting$`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
	lines := strings.Split(strings.TrimSpace(did(t, trystEnv(t, env, append(args, "--json")...))), "\n")
	if len(lines) != len(config.Settings()) {
		t.Errorf("%d lines for %d settings", len(lines), len(config.Settings()))
	}
	for _, line := range lines {
		var e struct{ Key, Value, Source string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Key == "" || e.Source == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A machine that only pulls may have settings with which nobody could serve.
func TestConfigOfAPuller(t *testing.T) {
	text := did(t, trystEnv(t, []string{"TRYST_CLUSTER=worker=h1:1,h2:1"}, "config"))
	if !strings.Contains(text, "worker=h1:1,h2:1") {
		t.Error(text)
	}
}

func TestVersion(t *testing.T) {
	text := did(t, tryst(t, "version"))
	if !regexp.MustCompile(`^tryst \S+ \(commit [^,]+(, modified)?, go\S+, \w+/\w+\)\n$`).MatchString(text) {
		t.Error(text)
	}
	if flag := did(t, tryst(t, "--version")); flag != text {
		t.Errorf("--version says %q", flag)
	}
	var b build
	if err := json.Unmarshal([]byte(did(t, tryst(t, "version", "--json"))), &b); err != nil || b != buildVersion() {
		t.Errorf("%+v, %v", b, err)
	}
}
