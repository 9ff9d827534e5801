//go:build linux

package storm_test

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// made makes a version, by name.
func madeOf(t *testing.T, s stamp) map[string]*tensor.Tensor {
	t.Helper()
	list, err := s.tensors(tensor.Heap{})
	if err != nil {
		t.Fatal(err)
	}
	return byName(list)
}

// TestStampOfAVersion: a version is read as the one that was made, and any block of another one is seen.
func TestStampOfAVersion(t *testing.T) {
	for _, name := range []string{weights, shapes} {
		for base := range 20 {
			s := stamp{Name: name, Task: 2, Life: 3, Gen: 4, Number: 1 << 40, Serial: base + 7, Base: base + 1}
			version := madeOf(t, s)
			got, torn := readVersion(version)
			if got != s || torn != "" {
				t.Fatalf("got %v (%s), want %v", got, torn, s)
			}
			next := s
			next.Serial++
			next.Number++
			other := madeOf(t, next)
			for tensorName, x := range version {
				b, o := x.Bytes(), other[tensorName].Bytes()
				for at := 0; at < len(b); at += page {
					end := min(at+page, len(b))
					keep := strings.Clone(string(b[at:end]))
					copy(b[at:end], o[at:end])
					if _, torn := readVersion(version); torn == "" && string(b[at:end]) != keep {
						t.Errorf("%s: a block at %d of the next version is not seen", tensorName, at)
					}
					copy(b[at:end], keep)
				}
			}
		}
	}
}

// TestStampOfDamage: a bit, a tensor that is missing, one of another type, and none at all.
func TestStampOfDamage(t *testing.T) {
	s := stamp{Name: weights, Task: 1, Life: 1, Gen: 1, Number: 1, Serial: 1, Base: 1}
	for name, damage := range map[string]func(map[string]*tensor.Tensor){
		"a bit":             func(v map[string]*tensor.Tensor) { v[modelTensor(5)].Bytes()[unaryLimit+3] ^= 4 },
		"a bit of a stamp":  func(v map[string]*tensor.Tensor) { v[modelTensor(0)].Bytes()[6] ^= 4 },
		"zeros":             func(v map[string]*tensor.Tensor) { clear(v[modelTensor(0)].Bytes()) },
		"one is missing":    func(v map[string]*tensor.Tensor) { delete(v, modelTensor(3)) },
		"all are missing":   func(v map[string]*tensor.Tensor) { clear(v) },
		"another size":      func(v map[string]*tensor.Tensor) { v[modelTensor(3)] = v[modelTensor(2)] },
		"one is not of it":  func(v map[string]*tensor.Tensor) { v["other"] = v[modelTensor(3)] },
		"the wrong tensor":  func(v map[string]*tensor.Tensor) { v[modelTensor(0)] = v[modelTensor(5)] },
		"the end is poison": func(v map[string]*tensor.Tensor) { b := v[modelTensor(0)].Bytes(); b[len(b)-1] = poison },
	} {
		t.Run(name, func(t *testing.T) {
			v := madeOf(t, s)
			damage(v)
			if _, torn := readVersion(v); torn == "" {
				t.Error("it is not seen")
			}
		})
	}
}
