//go:build !race

package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// nameless are the types in the exported API of public packages that importers cannot name, and why.
var nameless = map[string]string{
	"proto/tensorflow.isAttrValue_Value":                   "generated: a oneof",
	"proto/tensorflow.isFullTypeDef_Attr":                  "generated: a oneof",
	"proto/tensorflow.isTensorSliceProto_Extent_HasLength": "generated: a oneof",
}

// TestImportersCanNameEveryType: each type in the exported API of a public package is exported by a public package, if need be as an
// alias.
func TestImportersCanNameEveryType(t *testing.T) {
	var paths []string
	for dir := range publicPackages {
		paths = append(paths, strings.TrimSuffix(module+"/"+dir, "/."))
	}
	found := checkNamed(exported(t, paths))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if nameless[name] == "" {
			t.Errorf("importers cannot name %s, which %s has", name, found[name])
		}
	}
	for name := range nameless {
		if found[name] == "" {
			t.Errorf("nameless lists %s, which no API has any more", name)
		}
	}
}

// TestCheckNamed: what is found in each kind of place.
func TestCheckNamed(t *testing.T) {
	const m = module + "/m"
	hidden := check(t, m+"/internal/h", `package h
		type Field struct{}; type Param struct{}; type Result struct{}; type Elem struct{}; type Method struct{}; type Promoted struct{}
		type Of[T any] struct{}; type Arg struct{}; type Var struct{}; type OfAlias struct{}
		type Named struct{ Inside Inside }; type Inside struct{}; type private struct{}; type Unseen struct{}`)
	p := check(t, m, `package m
		import h "`+m+`/internal/h"
		type Alias = h.Named
		type T struct { F h.Field; unseen h.Unseen; embedded }
		type embedded struct{}
		func (embedded) M() h.Promoted { panic(0) }
		func F(h.Param, ...map[string]*[]h.Elem) (h.Result, error) { panic(0) }
		type I interface { M(chan func() h.Method) }
		var V h.Var
		func G() (h.Named, Of[h.Arg], own) { panic(0) }
		type Of[X any] struct{}
		type own struct{}
		type A2 = []h.OfAlias
		func unseen() h.Unseen { panic(0) }`, hidden)
	var got []string
	for name := range checkNamed([]*types.Package{p}) {
		got = append(got, name[strings.LastIndex(name, "/")+1:])
	}
	slices.Sort(got)
	same(t, got, "h.Arg", "h.Elem", "h.Field", "h.Inside", "h.Method", "h.OfAlias", "h.Param", "h.Promoted", "h.Result", "h.Var", "m.own")
}

// check makes a package that may import others.
func check(t *testing.T, path, text string, imports ...*types.Package) *types.Package {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "x.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := types.Config{Importer: known(imports)}
	p, err := c.Check(path, set, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// known imports packages that were made before.
type known []*types.Package

func (k known) Import(path string) (*types.Package, error) {
	if i := slices.IndexFunc(k, func(p *types.Package) bool { return p.Path() == path }); i >= 0 {
		return k[i], nil
	}
	return nil, errors.New("no package " + path)
}

// exported reads the export data of packages, which the go tool compiles if need be.
func exported(t *testing.T, paths []string) []*types.Package {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Export"}, paths...)...)
	cmd.Dir, cmd.Stderr = root(t), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	load := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	var packages []*types.Package
	for _, path := range slices.Sorted(slices.Values(paths)) {
		p, err := load.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	return packages
}

// namer finds the types that importers of some packages see and cannot name.
type namer struct {
	named map[*types.TypeName]bool // of exported names
	seen  map[types.Type]bool
	found map[string]string // the first place of each type without a name
}

// checkNamed returns the types in the exported API of packages that none of them exports, each with the first place that has it.
func checkNamed(packages []*types.Package) map[string]string {
	n := &namer{named: map[*types.TypeName]bool{}, seen: map[types.Type]bool{}, found: map[string]string{}}
	all := func(do func(*types.Package, types.Object)) {
		for _, p := range packages {
			for _, name := range p.Scope().Names() {
				if o := p.Scope().Lookup(name); o.Exported() {
					do(p, o)
				}
			}
		}
	}
	all(func(_ *types.Package, o types.Object) {
		if name, ok := o.(*types.TypeName); ok {
			n.named[name] = true
			if of, ok := types.Unalias(name.Type()).(*types.Named); ok {
				n.named[of.Obj()] = true
			}
		}
	})
	all(func(p *types.Package, o types.Object) {
		n.see(o.Type(), strings.TrimPrefix(p.Path(), module+"/")+"."+o.Name())
		if name, ok := o.(*types.TypeName); ok {
			n.inside(types.Unalias(name.Type()), strings.TrimPrefix(p.Path(), module+"/")+"."+o.Name())
		}
	})
	return n.found
}

// see looks at a type that is used at a place.
func (n *namer) see(t types.Type, at string) {
	switch t := t.(type) {
	case *types.Alias:
		if !n.named[t.Obj()] {
			n.see(types.Unalias(t), at)
		}
	case *types.Named:
		for arg := range t.TypeArgs().Types() {
			n.see(arg, at)
		}
		name := t.Origin().Obj()
		if pkg := name.Pkg(); pkg == nil || n.named[name] || pkg.Path() != module && !strings.HasPrefix(pkg.Path(), module+"/") {
			return
		}
		if full := strings.TrimPrefix(name.Pkg().Path(), module+"/") + "." + name.Name(); n.found[full] == "" {
			n.found[full] = at
		}
	case *types.Signature:
		n.see(t.Params(), at)
		n.see(t.Results(), at)
	case *types.Tuple:
		for v := range t.Variables() {
			n.see(v.Type(), at)
		}
	case *types.Map:
		n.see(t.Key(), at)
		n.see(t.Elem(), at)
	case interface{ Elem() types.Type }: // pointers, slices, arrays, channels
		n.see(t.Elem(), at)
	case *types.Struct, *types.Interface:
		n.inside(t, at)
	}
}

// inside looks at the exported fields and methods of a type.
func (n *namer) inside(t types.Type, at string) {
	if n.seen[t] {
		return
	}
	n.seen[t] = true
	if of, ok := t.(*types.Named); ok {
		for m := range of.Methods() {
			if m.Exported() {
				n.see(m.Signature(), at+"."+m.Name())
			}
		}
		t = of.Underlying()
	}
	switch t := t.(type) {
	case *types.Struct:
		for f := range t.Fields() {
			switch of, isNamed := types.Unalias(f.Type()).(*types.Named); {
			case f.Exported():
				n.see(f.Type(), at+"."+f.Name())
			case f.Embedded() && isNamed: // its methods are promoted
				n.inside(of, at)
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				n.see(m.Signature(), at+"."+m.Name())
			}
		}
	default:
		n.see(t, at)
	}
}
