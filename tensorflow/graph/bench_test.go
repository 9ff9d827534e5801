package graph

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
)

// chain is n small AddV2 one behind the other.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("a0 = Const() dtype=int32 value=#1\n")
	for i := range n {
		fmt.Fprintf(&b, "a%d = AddV2(a%d, a0) T=int32\n", i+1, i)
	}
	return b.String()
}

func benchmarkGraph(b *testing.B, lines string) {
	s := newFakeSet()
	e, err := NewExecutor(importGraph(b, s, lines), s)
	if err != nil {
		b.Fatal(err)
	}
	step := &Step{Allocator: tensor.Heap{}, Workers: NewWorkers(0)}
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Run(b.Context(), step); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEmptyGraph(b *testing.B) { benchmarkGraph(b, "n = NoOp()") }

func BenchmarkChain200(b *testing.B) { benchmarkGraph(b, chain(200)) }

// BenchmarkWide200 is 200 nodes that do not wait for each other.
func BenchmarkWide200(b *testing.B) {
	var lines strings.Builder
	lines.WriteString("a = Const() dtype=int32 value=#1\n")
	for i := range 200 {
		fmt.Fprintf(&lines, "b%d = AddV2(a, a) T=int32\n", i)
	}
	benchmarkGraph(b, lines.String())
}

// BenchmarkLoop1000 is a loop of 1000 iterations.
func BenchmarkLoop1000(b *testing.B) { benchmarkGraph(b, loopGraph(1000, 10)) }

// BenchmarkImport10000 imports a chain of 10,000 nodes.
func BenchmarkImport10000(b *testing.B) {
	def := parseGraph(b, chain(10_000))
	s := newFakeSet()
	for b.Loop() {
		if _, err := Import(def, ImportOptions{Set: s}); err != nil {
			b.Fatal(err)
		}
	}
}
