package waiting

import (
	"errors"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// sum is the sum of an accumulator of numbers.
type sum struct {
	a       Accumulator
	numbers []int
}

func (s *sum) apply(step int64, n int) []*Take {
	ended, _ := s.a.Apply(step, func(count int) error {
		if count != len(s.numbers) {
			return errors.New("the number of gradients is wrong")
		}
		s.numbers = append(s.numbers, n)
		return nil
	})
	return ended
}

func (s *sum) take(required int) (t *Take, got *[]int, ended []*Take) {
	got = new([]int)
	t = &Take{Required: required, Output: func(count int) error {
		*got, s.numbers = s.numbers[:count], nil
		return nil
	}}
	return t, got, s.a.Take(t)
}

func TestATakeWaitsForEnoughGradients(t *testing.T) {
	var s sum
	first, got, ended := s.take(2)
	second, gotSecond, _ := s.take(1)
	if len(ended) != 0 || len(s.apply(0, 1)) != 0 {
		t.Error("a take has ended without enough gradients")
	}
	if ended := s.apply(0, 2); !slices.Equal(ended, []*Take{first}) || !slices.Equal(*got, []int{1, 2}) {
		t.Errorf("%d ended with %v, want one with 1 and 2", len(ended), *got)
	}
	if len(s.apply(0, 9)) != 0 || s.a.Count() != 0 {
		t.Error("a gradient of the step before was not dropped")
	}
	if ended := s.apply(1, 3); !slices.Equal(ended, []*Take{second}) || !slices.Equal(*gotSecond, []int{3}) {
		t.Errorf("%d ended with %v, want one with 3", len(ended), *gotSecond)
	}
}

func TestACancelledTakeLetsTheNextGoOn(t *testing.T) {
	var s sum
	first, _, _ := s.take(5)
	second, got, _ := s.take(1)
	s.apply(0, 1)
	ended := s.a.Cancel(first)
	if !slices.Equal(ended, []*Take{first, second}) || first.Err == nil || second.Err != nil || !slices.Equal(*got, []int{1}) {
		t.Errorf("%d ended, with %v and %v", len(ended), first.Err, *got)
	}
	if status.From(first.Err).Message() != "TakeGrad operation was cancelled" || s.a.Cancel(first) != nil {
		t.Error(first.Err)
	}
}

func TestASetStepDropsGradientsOfEarlierOnes(t *testing.T) {
	var s sum
	if before := s.a.SetStep(7); before != 0 {
		t.Errorf("the step was %d, want 0", before)
	}
	s.apply(6, 1)
	s.apply(7, 2)
	s.a.SetStep(3)
	s.apply(3, 3)
	if _, got, _ := s.take(1); !slices.Equal(*got, []int{2, 3}) {
		t.Errorf("got %v, want 2 and 3", *got)
	}
}

// A sum that cannot be given stays.
func TestATakeThatFailsKeepsTheGradients(t *testing.T) {
	var s sum
	s.apply(0, 1)
	failed := &Take{Required: 1, Output: func(int) error { return errors.New("no memory") }}
	if ended := s.a.Take(failed); len(ended) != 1 || failed.Err == nil || s.a.Count() != 1 {
		t.Errorf("%v, %d gradients", failed.Err, s.a.Count())
	}
}

func TestADropEndsAllTakes(t *testing.T) {
	var s sum
	first, _, _ := s.take(1)
	gone := errors.New("gone")
	if ended := s.a.Drop(gone); !slices.Equal(ended, []*Take{first}) || !errors.Is(first.Err, gone) || !first.Ended() {
		t.Errorf("%d ended, with %v", len(ended), first.Err)
	}
}
