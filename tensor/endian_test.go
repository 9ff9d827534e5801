package tensor

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"
)

// TestBigEndianBuildStops: endian.go is part of a build exactly for big-endian
// machines, and does not compile.
func TestBigEndianBuildStops(t *testing.T) {
	const file = "endian.go"
	for arch, big := range map[string]bool{
		"mips": true, "mips64": true, "ppc64": true, "s390x": true, // all that Go can build for
		"386": false, "amd64": false, "arm": false, "arm64": false, "loong64": false,
		"mipsle": false, "mips64le": false, "ppc64le": false, "riscv64": false, "wasm": false,
	} {
		ctx := build.Default
		ctx.GOARCH = arch
		got, err := ctx.MatchFile(".", file)
		if err != nil || got != big {
			t.Errorf("%s: part of the build %v, %v; want %v", arch, got, err, big)
		}
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	conf := types.Config{Importer: importer.Default()}
	if _, err := conf.Check("tensor", fset, []*ast.File{f}, nil); err == nil {
		t.Error("a build for a big-endian machine would succeed")
	}
}
