//go:build !race

package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// checkWarnings returns one line for each warning or error that product code logs and that the
// document does not have: a warning is what an operator should act on, so it says what to do.
func checkWarnings(files []goFile, document string) (complaints []string) {
	for _, s := range files {
		if s.isTest() || isTestSupport(s.dir()) || strings.HasPrefix(s.path, "soft-roce/") || strings.HasPrefix(s.path, "internal/bench/") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && logsWarning(call) {
				if text := firstText(call.Args); !strings.Contains(document, text) {
					complaints = append(complaints, s.path+" logs "+strconv.Quote(text)+", which docs/warnings.md does not have")
				}
			}
			return true
		})
	}
	return complaints
}

// loggers are the names of variables and fields that loggers have here.
var loggers = []string{"log", "Log", "logger", "Logger", "l", "slog"}

// logsWarning reports whether a call is that of a method Warn or Error of a logger.
func logsWarning(call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || !slices.Contains([]string{"Warn", "Error", "WarnContext", "ErrorContext"}, method.Sel.Name) {
		return false
	}
	switch x := method.X.(type) {
	case *ast.Ident:
		return slices.Contains(loggers, x.Name)
	case *ast.SelectorExpr:
		return slices.Contains(loggers, x.Sel.Name)
	}
	return false
}

// firstText returns how the message of a log line begins: its first literal, up to what to do. It is
// empty if there is none.
func firstText(args []ast.Expr) string {
	for _, arg := range args {
		for {
			sum, ok := arg.(*ast.BinaryExpr)
			if !ok {
				break
			}
			arg = sum.X
		}
		if lit, ok := arg.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value) // the parser has checked it
			text, _, _ = strings.Cut(text, ";")
			return strings.TrimSpace(text)
		}
	}
	return ""
}

func TestEveryWarningIsDocumented(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(root(t), "docs", "warnings.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range checkWarnings(tree(t), string(document)) {
		t.Error(c)
	}
}

func TestCheckWarnings(t *testing.T) {
	const calls = "package x\n\nfunc f() {\n" +
		"log.Warn(\"known; do this\")\no.Logger.Error(\"the \"+x+\" is lost\", \"k\", v)\nx.log.WarnContext(ctx, \"new\")\n" +
		"log.Info(\"fine\")\nt.Error(\"a test's\")\nx.err.Error()\n}\n"
	same(t, checkWarnings(made(t, "a/a.go", calls, "a/a_test.go", calls, "a/atest/a.go", calls), "known"),
		`a/a.go logs "the", which docs/warnings.md does not have`, `a/a.go logs "new", which docs/warnings.md does not have`)
}
