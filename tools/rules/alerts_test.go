package main

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// healthy is a process with which all is well, for 90 minutes: no alert fires.
const healthy = `
load 1m
  up{job="tryst",instance="a"} 1x90
  tryst_waiting_receives{job="tryst",instance="a"} 5x90
  tryst_sent_tensors_total{job="tryst",instance="a",transport="grpc"} 0+100x90
  tryst_received_tensors_total{job="tryst",instance="a"} 0+100x90
  tryst_receive_retries_total{job="tryst",instance="a"} 0+0.1x90
  tryst_pulls_total{job="tryst",instance="a",code="OK"} 0+1x90
  tryst_pulls_total{job="tryst",instance="a",code="Cancelled"} 0+1x90
  tryst_pulls_total{job="tryst",instance="a",code="NotFound"} 3x90
  tryst_send_errors_total{job="tryst",instance="a",code="Aborted"} 0+1x90
  tryst_route{job="tryst",instance="a",peer="p",transport="verbs",reason=""} 1x90
  tryst_route{job="tryst",instance="a",peer="q",transport="grpc",reason="waiting"} 1x90
  tryst_route{job="tryst",instance="a",peer="r",transport="grpc",reason="optional"} 1x90
  tryst_verbs_device_up{job="tryst",instance="a"} 1x90
  tryst_verbs_breaks_total{job="tryst",instance="a",peer="p"} 3x90
  tryst_loss_ratio{job="tryst",instance="a",kind="tcp"} 0.0005x90
  tryst_memory_refused_total{job="tryst",instance="a"} 7x90
  process_resident_memory_bytes{job="tryst",instance="a"} 900x90
  tryst_memory_bytes{job="tryst",instance="a"} 1000x90
  tryst_refused_connections_total{job="tryst",instance="a"} 7x90
  tryst_accept_errors_total{job="tryst",instance="a"} 0x90
  tryst_refused_names_total{job="tryst",instance="a",method="m"} 7x90
  tryst_refused_graphs_total{job="tryst",instance="a"} 7x90
  tryst_build_info{job="tryst",instance="a",version="1",commit="c"} 1x90
  tryst_build_info{job="tryst",instance="b",version="1",commit="c"} 1x90
`

// faults has for each alert the series with which it fires.
var faults = map[string]string{
	"TrystDown":               `up{job="tryst",instance="b"} 0x90`,
	"TrystReceivesHang":       `tryst_waiting_receives{job="tryst",instance="b"} 1x90`,
	"TrystPullsFail":          `tryst_pulls_total{job="tryst",instance="b",code="DataLoss"} 0+1x90`,
	"TrystSendsFail":          `tryst_send_errors_total{job="tryst",instance="b",code="Internal"} 0+1x90`,
	"TrystWithoutVerbs":       `tryst_route{job="tryst",instance="b",peer="p",transport="grpc",reason="broken"} 1x90`,
	"TrystWithoutDevice":      `tryst_verbs_device_up{job="tryst",instance="b"} 0x90`,
	"TrystChannelsBreak":      `tryst_verbs_breaks_total{job="tryst",instance="b",peer="p"} 0+1x90`,
	"TrystRetries":            "tryst_receive_retries_total{job=\"tryst\",instance=\"b\"} 0+2x90\n  tryst_received_tensors_total{job=\"tryst\",instance=\"b\"} 0+100x90",
	"TrystPacketsLost":        `tryst_loss_ratio{job="tryst",instance="b",kind="roce"} 0.001x90`,
	"TrystMemoryRefused":      `tryst_memory_refused_total{job="tryst",instance="b"} 0+1x90`,
	"TrystMemoryNearlyFull":   "process_resident_memory_bytes{job=\"tryst\",instance=\"b\"} 960x90\n  tryst_memory_bytes{job=\"tryst\",instance=\"b\"} 1000x90",
	"TrystConnectionsRefused": `tryst_accept_errors_total{job="tryst",instance="b"} 0+1x90`,
	"TrystNamesRefused":       `tryst_refused_names_total{job="tryst",instance="b",method="m"} 0+1x90`,
	"TrystGraphsRefused":      `tryst_refused_graphs_total{job="tryst",instance="b"} 0+1x90`,
	"TrystVersionsDiffer":     `tryst_build_info{job="tryst",instance="c",version="2",commit="c"} 1x90`,
}

// firing returns how many alerts of a rule fire after 90 minutes with some series. Prometheus itself decides.
func firing(t *testing.T, expr, series string) int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	defer storage.Close()
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(0, 0).Add(90*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	vector, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return len(vector)
}

// TestAlertsFire with what they are for, and with nothing else.
func TestAlertsFire(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	seen := 0
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			seen++
			if n := firing(t, rule.Expr, healthy); n != 0 {
				t.Errorf("%s: %d fire although all is well", rule.Alert, n)
			}
			if n := firing(t, rule.Expr, healthy+"  "+faults[rule.Alert]+"\n"); n != 1 {
				t.Errorf("%s: %d fire, want 1", rule.Alert, n)
			}
		}
	}
	if seen != len(faults) {
		t.Errorf("%d alerts, %d faults", seen, len(faults))
	}
}
