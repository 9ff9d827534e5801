package tensor_test

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// lender calls a function when its memory is returned.
type lender struct{ returned func() }

func (l *lender) Returned()    { l.returned() }
func (*lender) ReadBegins(any) {}
func (*lender) ReadEnds(any)   {}

func TestLentMemoryReportsItsReturn(t *testing.T) {
	own, err := tensor.Make[float32](tensor.Heap{}, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Release()
	returned := 0
	by := &lender{func() {
		if returned++; !own.Buffer().Unique() {
			t.Error("the lender's reference is not the only one when the memory is returned")
		}
	}}
	lent := own.Named("w").Lend(by)
	if root, off := lent.Buffer().Root(); root != own.Buffer() || off != 0 || lent.Name() != "w" {
		t.Error("what is lent is not a slice of all of the lender's memory, with its name")
	}
	part, err := lent.Buffer().Slice(4, 8)
	if err != nil {
		t.Fatal(err)
	}
	if part.Lender() != by || lent.Buffer().Lender() != by || own.Buffer().Lender() != nil {
		t.Error("what is lent, and a part of it, do not have the lender, or its own memory has it")
	}
	lent.Release()
	if returned != 0 || own.Buffer().Unique() {
		t.Error("the memory was returned while a slice of it is in use")
	}
	part.Release()
	if returned != 1 {
		t.Errorf("the return was reported %d times, not once", returned)
	}
}

func TestLentStringsReportTheirReturn(t *testing.T) {
	own, err := tensor.FromStrings(tensor.Vector(2), []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Release()
	returned := false
	lent := own.Lend(&lender{func() { returned = true }})
	if !tensor.Equal(own, lent) {
		t.Error("what is lent has other elements")
	}
	lent.Release()
	if !returned || !own.Buffer().Unique() {
		t.Error("the memory was not returned")
	}
}
