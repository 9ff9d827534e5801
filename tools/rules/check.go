package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// known has the labels of each metric.
type known map[string][]string

// scraped are the labels that every metric has, and others are metrics that are not the program's own.
var (
	scraped = []string{"job", "instance"}
	others  = known{"up": nil, "process_resident_memory_bytes": nil}
)

var tableRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\|")

// parseTable returns the metrics of the table of docs/metrics.md.
func parseTable(text string) known {
	all := make(known)
	for _, m := range tableRow.FindAllStringSubmatch(text, -1) {
		for l := range strings.SplitSeq(m[2], ",") {
			all[m[1]] = append(all[m[1]], strings.TrimSpace(l))
		}
	}
	return all
}

// labels returns the labels of a metric, or of a part of a histogram.
func (k known) labels(name string) ([]string, bool) {
	if l, ok := others[name]; ok {
		return slices.Concat(scraped, l), true
	}
	if l, ok := k[name]; ok {
		return slices.Concat(scraped, l), true
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, part); ok && strings.HasSuffix(base, "_seconds") {
			if l, ok := k[base]; ok {
				return slices.Concat(scraped, l, []string{"le"}), true
			}
		}
	}
	return nil, false
}

// check returns what is wrong with an expression.
func (k known) check(expr string) (faults []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			labels, ok := k.labels(n.Name)
			if !ok {
				faults = append(faults, "there is no metric "+n.Name)
				return nil
			}
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" && !slices.Contains(labels, m.Name) {
					faults = append(faults, n.Name+" has no label "+m.Name)
				}
			}
		case *parser.AggregateExpr:
			faults = append(faults, k.grouping(n.Grouping, n.Expr)...)
		}
		return nil
	})
	return faults
}

// grouping checks that some metric of an expression has each label that results are grouped by.
func (k known) grouping(by []string, e parser.Expr) (faults []string) {
	var have []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			labels, _ := k.labels(s.Name)
			have = append(have, labels...)
		}
		return nil
	})
	for _, l := range by {
		if !slices.Contains(have, l) {
			faults = append(faults, "nothing in "+e.String()+" has the label "+l)
		}
	}
	return faults
}

// alerts checks a file of rules.
func (k known) alerts(text []byte) (faults []string) {
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		faults = append(faults, err.Error())
	}
	if groups == nil {
		return faults
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			for _, f := range k.check(r.Expr) {
				faults = append(faults, "alert "+r.Alert+": "+f)
			}
		}
	}
	return faults
}

// board checks a dashboard of Grafana.
func (k known) board(text []byte) (faults []string) {
	var d struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return []string{err.Error()}
	}
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			faults = append(faults, "panel "+p.Title+" shows nothing")
		}
		for _, t := range p.Targets {
			for _, f := range k.check(strings.ReplaceAll(t.Expr, "$__rate_interval", "5m")) {
				faults = append(faults, "panel "+p.Title+": "+f)
			}
		}
	}
	return faults
}

func checkFiles(metrics, rules, dashboard string) ([]string, error) {
	var texts [3][]byte
	for i, path := range []string{metrics, rules, dashboard} {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts[i] = b
	}
	k := parseTable(string(texts[0]))
	if len(k) < 50 {
		return nil, fmt.Errorf("%s has a table of %d metrics", metrics, len(k))
	}
	return slices.Concat(k.alerts(texts[1]), k.board(texts[2]), schema(texts[2])), nil
}
