package statusapi

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

var update = flag.Bool("update", false, "write docs/status.schema.json")

const schemaFile = "../../docs/status.schema.json"

// TestSchemaIsThatOfTheTypes: readers in other languages generate their types from the file.
func TestSchemaIsThatOfTheTypes(t *testing.T) {
	schema, err := jsonschema.For[Status](nil)
	if err != nil {
		t.Fatal(err)
	}
	loosen(schema)
	want, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil || string(got) != string(want) {
		t.Errorf("%v: run go test ./internal/statusapi -update", err)
	}
}

// loosen allows fields that later releases add.
func loosen(s *jsonschema.Schema) {
	s.AdditionalProperties = nil
	for _, p := range s.Properties {
		loosen(p)
	}
	if s.Items != nil {
		loosen(s.Items)
	}
}

// TestEachFieldIsDocumented: by its path, in docs/status.md.
func TestEachFieldIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.For[Status](nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fields(schema) {
		if !strings.Contains(string(text), "`"+field+"`") {
			t.Errorf("docs/status.md does not have `%s`", field)
		}
	}
}

// fields returns the names of all fields.
func fields(s *jsonschema.Schema) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		all = append(append(all, name), fields(s.Properties[name])...)
	}
	if s.Items != nil {
		all = append(all, fields(s.Items)...)
	}
	return all
}
