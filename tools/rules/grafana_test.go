package main

import (
	"os"
	"strings"
	"testing"
)

// TestGrafanaRefusesFaults: each change of the dashboard is found by Grafana's types, or by where the panels are.
func TestGrafanaRefusesFaults(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if faults := schema(text); len(faults) > 0 {
		t.Fatalf("%q", faults)
	}
	for _, c := range []struct{ from, to, want string }{
		{`"schemaVersion": 39`, `"schemaVersions": 39`, "schemaVersions"},
		{`"editable": true`, `"editable": "yes"`, "editable"},
		{`"fieldConfig": {`, `"fieldConfigs": {`, "fieldConfigs"},
		{`"unit": "short"`, `"units": "short"`, "units"},
		{`"legendFormat": "processes"`, `"legendFormats": "processes"`, "legendFormats"},
		{`"gridPos": {`, `"gridPosition": {`, "gridPosition"},
		{`"w": 4`, `"w": 25`, ""},
		{`"x": 0`, `"x": -1`, "gridPos.x"},
		{`"y": 1,`, `"y": 0,`, "is over panel"},
		{`"id": 2,`, `"id": 1,`, "have the id 1"},
		{`"title": "Tryst"`, `"title": 1`, "title"},
		{`"graphMode": "area"`, `"graphModes": "area"`, "graphModes"},
	} {
		wrong := strings.Replace(string(text), c.from, c.to, 1)
		if wrong == string(text) {
			t.Errorf("the dashboard has no %s", c.from)
		}
		if faults := strings.Join(schema([]byte(wrong)), "\n"); faults == "" || !strings.Contains(faults, c.want) {
			t.Errorf("%s: %q", c.to, faults)
		}
	}
	if len(schema([]byte("{"))) == 0 {
		t.Error("no JSON is taken")
	}
}
