package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// schema checks a dashboard with Grafana's own types, which its schemas generate: a field that Grafana does not have, or another
// type of value, is a fault, also in the options of each type of panel and in the queries of a data source.
func schema(text []byte) (faults []string) {
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard
	faults = slices.Concat(schemaFaults(d.UnmarshalJSONStrict(text)), schemaFaults(d.Validate()))
	return slices.Concat(faults, fields(text), places(text))
}

// fields checks how panels show values, which the type of a panel does not read strictly.
func fields(text []byte) (faults []string) {
	var d struct {
		Panels []struct {
			Title       string
			FieldConfig json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return []string{err.Error()}
	}
	for _, p := range d.Panels {
		var source dashboard.FieldConfigSource
		for _, f := range schemaFaults(source.UnmarshalJSONStrict(p.FieldConfig)) {
			faults = append(faults, "panel "+p.Title+": "+f)
		}
	}
	return faults
}

// schemaFaults returns the texts of an error of these types, which may be an empty list.
func schemaFaults(err error) (faults []string) {
	if err == nil {
		return nil
	}
	if all, ok := errors.AsType[cog.BuildErrors](err); ok {
		for _, one := range all {
			faults = append(faults, "Grafana: "+one.Error())
		}
		return faults
	}
	return []string{"Grafana: " + err.Error()}
}

// columns is the width of a dashboard.
const columns = 24

// place is where a panel is.
type place struct{ X, Y, W, H int }

// over tells whether two panels share a cell.
func (a place) over(b place) bool {
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

// places checks that no two panels have one id, are over one another or beyond the width: Grafana would move them.
func places(text []byte) (faults []string) {
	var d struct {
		Panels []struct {
			ID      int
			Title   string
			GridPos place
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return []string{err.Error()}
	}
	for i, p := range d.Panels {
		if g := p.GridPos; g.W < 1 || g.H < 1 || g.X < 0 || g.Y < 0 || g.X+g.W > columns {
			faults = append(faults, fmt.Sprintf("panel %s: is not within the dashboard: %+v", p.Title, g))
		}
		for _, q := range d.Panels[:i] {
			if p.ID == q.ID {
				faults = append(faults, fmt.Sprintf("panels %s and %s have the id %d", q.Title, p.Title, p.ID))
			}
			if p.GridPos.over(q.GridPos) {
				faults = append(faults, fmt.Sprintf("panel %s is over panel %s", p.Title, q.Title))
			}
		}
	}
	return faults
}
