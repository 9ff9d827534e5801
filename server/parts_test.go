package server

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// TestPartsStopInTheReverseOrder: those that have started, each once, and all errors are returned.
func TestPartsStopInTheReverseOrder(t *testing.T) {
	var calls []string
	note := func(call string, err error) func(context.Context) error {
		return func(context.Context) error {
			calls = append(calls, call)
			return err
		}
	}
	broken, stuck := errors.New("broken"), errors.New("stuck")
	var p parts
	err := p.start(t.Context(),
		part{"a", note("start a", nil), note("stop a", stuck)},
		part{"b", nil, note("stop b", nil)},
		part{"c", note("start c", nil), nil},
		part{"d", note("start d", broken), note("stop d", nil)},
		part{"e", note("start e", nil), note("stop e", nil)},
	)
	if !errors.Is(err, broken) {
		t.Errorf("start: %v, want %v", err, broken)
	}
	for range 2 { // the second does nothing
		if err := p.stop(t.Context()); err != nil && !errors.Is(err, stuck) {
			t.Errorf("stop: %v", err)
		}
	}
	if want := []string{"start a", "start c", "start d", "stop b", "stop a"}; !slices.Equal(calls, want) {
		t.Errorf("%q, want %q", calls, want)
	}
}
