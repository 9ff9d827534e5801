// Command plot draws the results of benchmarks, JSON lines as internal/bench writes them, as SVG:
//
//	tryst-plot build/bench/grpc.jsonl build/bench/local.jsonl    writes grpc.svg and local.svg beside them
//	tryst-plot --title 'over gRPC' build/bench/grpc.jsonl
//	tryst-plot --check docs/plots/*.jsonl                        fails if a picture is not what its rows give
//
// It is a module of its own, so that a drawing library is no requirement of those who import Tryst.
//
// A line is an object with the fields of Row. Lines with an empty transport are of the baseline itself, and belong to the
// line that follows with the same baseline. What else an object has is not read, so other benchmarks can write such lines,
// too. The same lines give the same bytes.
package main
