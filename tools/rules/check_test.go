package main

import (
	"strings"
	"testing"
)

// TestDeployedRulesAndDashboard: what deploy/monitoring asks for is there.
func TestDeployedRulesAndDashboard(t *testing.T) {
	faults, err := checkFiles("../../docs/metrics.md", "../../deploy/monitoring/rules.yaml", "../../deploy/monitoring/dashboard.json")
	if err != nil || len(faults) > 0 {
		t.Error(err, strings.Join(faults, "\n"))
	}
}

// TestFaultsAreFound: each check can fail.
func TestFaultsAreFound(t *testing.T) {
	k := parseTable("| `tryst_pulls_total` | code | x |\n| `tryst_pull_seconds` |  | y |\n")
	for expr, want := range map[string]string{
		"rate(tryst_pulls_total[5m]":                            "parse error",
		"tryst_pull_total":                                      "no metric tryst_pull_total",
		`tryst_pulls_total{reason="x"}`:                         "no label reason",
		"sum by (peer) (tryst_pulls_total)":                     "has the label peer",
		"sum by (le) (rate(tryst_pull_seconds_bucket[5m]))":     "",
		`sum by (job, code) (tryst_pulls_total{instance="x"})`:  "",
		"sum by (le) (rate(tryst_pulls_total_bucket[5m]))":      "no metric",
		"process_resident_memory_bytes / on (job, instance) up": "",
	} {
		got := strings.Join(k.check(expr), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
	if f := k.alerts([]byte("groups: [{name: a, rules: [{alert: X, expr: nothing}]}]")); len(f) != 1 || !strings.HasPrefix(f[0], "alert X: ") {
		t.Error(f)
	}
	if f := k.alerts([]byte("groups: [{name: a, rules: [{alert: X, expr: up, fro: 5m}]}]")); len(f) == 0 {
		t.Error("a misspelled key is taken")
	}
	if f := k.board([]byte(`{"panels":[{"title":"p","type":"stat"},{"title":"q","targets":[{"expr":"nothing"}]}]}`)); len(f) != 2 {
		t.Error(f)
	}
}
