package tryst_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The Go of README.md and docs/library.md compiles: each block is the body of a function whose context
// and errors are there, and of which later blocks of the document see what earlier ones declare.
func TestGoOfDocumentsCompiles(t *testing.T) {
	for _, document := range []string{"README.md", "docs/library.md"} {
		t.Run(document, func(t *testing.T) {
			text, err := os.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			blocks := goBlock.FindAllStringSubmatch(string(text), -1)
			if len(blocks) == 0 {
				t.Fatal("the document has no Go")
			}
			source, all := &strings.Builder{}, &strings.Builder{}
			for _, b := range blocks {
				all.WriteString(b[1])
			}
			source.WriteString("package document\n\nimport (\n\t\"context\"\n")
			for _, path := range []string{"fmt", "log/slog", "slices", "github.com/prometheus/client_golang/prometheus",
				module, module + "/checkpoint", module + "/status", module + "/tensor", module + "/verbs/roce"} {
				name := path[strings.LastIndex(path, "/")+1:]
				if strings.Contains(all.String(), name+".") {
					fmt.Fprintf(source, "\t%q\n", path)
				}
			}
			source.WriteString(")\n\nfunc use(...any) {}\n\nfunc document(ctx context.Context) (err error) {\n")
			for _, b := range blocks {
				names := declared(t, b[1])
				source.WriteString("{\n" + b[1] + "use(" + strings.Join(names, ", ") + ")\n")
			}
			source.WriteString(strings.Repeat("}\n", len(blocks)) + "return err\n}\n")
			file := filepath.Join(t.TempDir(), "document.go")
			if err := os.WriteFile(file, []byte(source.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "go", "build", file).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s\n%s", err, out, source)
			}
		})
	}
}

const module = "github.com/tryst-rdma/tryst"

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// declared returns the variables that the statements declare outside of blocks of their own.
func declared(t *testing.T, statements string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc f() {\n"+statements+"}\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	f, _ := file.Decls[0].(*ast.FuncDecl)
	for _, s := range f.Body.List {
		if a, ok := s.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			for _, x := range a.Lhs {
				if id, ok := x.(*ast.Ident); ok && id.Name != "_" {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// The program of the package comment runs: two processes, with the addresses of this host.
func TestProgramOfThePackageCommentRuns(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "tryst.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(file.Doc.Text(), "\tpackage main\n")
	program, _, found := strings.Cut(program, "\n\t}\n\nTo try")
	if !found {
		t.Fatal("the package comment has no program")
	}
	addresses := freeAddresses(2)
	program = strings.NewReplacer("10.0.0.1:2222", addresses[0], "10.0.0.2:2222", addresses[1]).Replace("package main\n" + program + "\n}\n")
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "main")
	if err := os.WriteFile(source, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	producer, said := exec.CommandContext(t.Context(), binary, "0"), new(strings.Builder)
	producer.Stderr = said
	if err := producer.Start(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, "1").CombinedOutput()
	if err != nil {
		_ = producer.Process.Kill()
	}
	if ended := producer.Wait(); err != nil || ended != nil {
		t.Fatalf("the consumer: %v\n%s\nthe producer: %v\n%s", err, out, ended, said)
	}
	want := ""
	for i := range 10 {
		want += fmt.Sprintln(i, "over verbs zero copy: true")
	}
	if string(out) != want {
		t.Errorf("the consumer wrote\n%s", out)
	}
}

// Each exported function, method and option is shown by an example or explained in docs/library.md.
func TestEveryCallIsShown(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := os.ReadFile("docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasPrefix(name, "example_"):
			shown = append(shown, text...)
		case !strings.HasSuffix(name, "_test.go"):
			calls = append(calls, exported(t, name, text)...)
		}
	}
	for _, call := range calls {
		_, method, _ := strings.Cut(call, ".")
		if !regexp.MustCompile(`\b` + method + `\b`).Match(shown) {
			t.Errorf("%s is in no example and not in docs/library.md", call)
		}
	}
}

// exported returns the exported functions and methods of a file, as Type.Method or tryst.Function.
func exported(t *testing.T, name string, text []byte) (calls []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !f.Name.IsExported() {
			continue
		}
		of := "tryst"
		if f.Recv != nil {
			x := f.Recv.List[0].Type
			if p, ok := x.(*ast.StarExpr); ok {
				x = p.X
			}
			if id, _ := x.(*ast.Ident); !id.IsExported() {
				continue
			} else {
				of = id.Name
			}
		}
		calls = append(calls, of+"."+f.Name.Name)
	}
	return calls
}

// The texts of the library name settings, such as rdma.mtu, and not flags of the command: both readers find
// a setting, and a program has no flags.
func TestTextsNameSettings(t *testing.T) {
	flag := regexp.MustCompile(`(^|[^-\w])--[a-z][-a-z]+`)
	command := regexp.MustCompile(`tryst doctor( --[-a-z]+( verbs)?| with| or)+|docker: --ulimit|--ulimit memlock`)
	for _, root := range []string{"cluster", "rendezvous", "server", "status", "tensor", "internal/tensorflow/worker", "transport", "verbs"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && flag.MatchString(command.ReplaceAllString(lit.Value, "")) {
					t.Errorf("%s: %s names a flag; name the setting", path, lit.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
