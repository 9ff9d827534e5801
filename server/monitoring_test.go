package server

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestDeployedMonitoring: the alerts and the dashboard of deploy/monitoring ask for metrics that a server has, and each
// alert is in docs/operate.md. tools/rules checks their expressions and labels.
func TestDeployedMonitoring(t *testing.T) {
	w := newVerbsTown(t, 1)
	v, err := StartVerbs(t.Context(), w.settings(0), Options{Provider: w.provider(0)})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close(context.Background())
	have := make(map[string]bool)
	descs := make(chan *prometheus.Desc, 1024)
	v.metrics.Describe(descs)
	close(descs)
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descs {
		have[name.FindStringSubmatch(d.String())[1]] = true
	}
	read := func(path string) string {
		b, err := os.ReadFile(filepath.Join("..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	rules := read("deploy/monitoring/rules.yaml")
	used := regexp.MustCompile(`\btryst_\w+`).FindAllString(rules+read("deploy/monitoring/dashboard.json"), -1)
	if len(used) < 40 {
		t.Errorf("%d metrics are used", len(used))
	}
	for _, n := range used {
		if !have[n] && !have[strings.TrimSuffix(n, "_bucket")] {
			t.Errorf("a server has no metric %s", n)
		}
	}
	operate := read("docs/operate.md")
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1) {
		if !strings.Contains(operate, "| `"+m[1]+"` |") {
			t.Errorf("docs/operate.md does not have the alert %s", m[1])
		}
	}
}
