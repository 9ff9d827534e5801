// Package statusapi has the types of /api/status: what a process does, as JSON. The server fills them, and tryst top and the
// page of the metrics address show them. docs/status.md describes the fields, and schema.json is their schema, which the
// tests of package server check. Fields are added, and never change their meaning: a reader ignores those it does not know.
package statusapi
