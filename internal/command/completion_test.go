package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/config"
)

// offered returns what a shell offers at the end of a command line, without descriptions, and
// whether it offers files as well.
func offered(t *testing.T, args ...string) (values []string, files bool) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(did(t, tryst(t, append([]string{"__complete"}, args...)...))), "\n")
	last := len(lines) - 1
	for _, line := range lines[:last] {
		value, _, _ := strings.Cut(line, "\t")
		values = append(values, value)
	}
	return values, lines[last] == ":0"
}

func wantOffered(t *testing.T, want []string, args ...string) {
	t.Helper()
	if got, files := offered(t, args...); files || !slices.Equal(got, want) {
		t.Errorf("%q is completed to %q (files: %v), want %q", args, got, files, want)
	}
}

// TestCompletionOffersValues: a setting with few values is completed to them, and a model, a
// task, a command.
func TestCompletionOffersValues(t *testing.T) {
	wantOffered(t, []string{"auto", "grpc", "verbs"}, "pull", "--transport", "")
	wantOffered(t, []string{"debug", "info", "warn", "error"}, "serve", "--log-level", "")
	wantOffered(t, []string{"adaptive", "busy", "event"}, "pull", "--poll", "")
	wantOffered(t, config.Providers(), "doctor", "--provider", "")
	wantOffered(t, []string{"xxh64", "sha256"}, "serve", "--digest", "")
	wantOffered(t, []string{"0", "256", "512", "1024", "2048", "4096"}, "config", "--rdma-mtu", "")
	wantOffered(t, nil, "pull", "--timeout", "")
	wantOffered(t, nil, "config", "")
	if models, _ := offered(t, "gen", "--model", ""); !slices.Contains(models, "gpt2") {
		t.Errorf("models: %q", models)
	}
	wantOffered(t, []string{"/job:w/replica:0/task:0", "/job:w/replica:0/task:1", "a:1", "b:2"}, "keys", "--cluster", "w=a:1,b:2", "--from", "")
	wantOffered(t, []string{"/job:w/replica:0/task:0", "/job:w/replica:0/task:1"}, "serve", "--cluster", "w=a:1,b:2", "--task", "")
	if commands, files := offered(t, "help", ""); files || !slices.Contains(commands, "pull") {
		t.Errorf("help is completed to %q (files: %v)", commands, files)
	}
	for _, args := range [][]string{{"pull", "--out", ""}, {"serve", ""}, {"serve", "--publish", ""}, {"pull", "--tls-ca", ""}} {
		if _, files := offered(t, args...); !files {
			t.Errorf("%q is not completed to files", args)
		}
	}
}

// TestCompletionOffersWhatIsPublished: the names come from the server of --from. Without one
// there are none, and no error.
func TestCompletionOffersWhatIsPublished(t *testing.T) {
	address := serve(t, "one="+generate(t), "two="+generate(t))
	wantOffered(t, []string{"one", "two"}, "pull", "--from", address, "")
	wantOffered(t, []string{"one", "two"}, "keys", "--from", address, "")
	wantOffered(t, nil, "keys", "--from", address, "one", "")
	wantOffered(t, nil, "keys", "")
	wantOffered(t, nil, "keys", "--from", "127.0.0.1:1", "")
	names, files := offered(t, "pull", "--from", address, "one", "--tensor", "")
	if files || len(names) < 2 {
		t.Fatalf("tensors: %q (files: %v)", names, files)
	}
	if got, _ := offered(t, "pull", "--from", address, "one", "--tensor", names[1]); len(got) == 0 || !strings.HasPrefix(got[0], names[1]) {
		t.Errorf("%q is completed to %q", names[1], got)
	}
}

// TestEachFlagHasACompletion: files are offered only where a file is meant.
func TestEachFlagHasACompletion(t *testing.T) {
	for _, cmd := range newRoot(streams{env: []string{}}).Commands() {
		if !cmd.IsAvailableCommand() || cmd.Name() == "completion" {
			continue
		}
		if cmd.ValidArgsFunction == nil {
			t.Errorf("the arguments of %s are completed to files", cmd.CommandPath())
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if _, ok := cmd.GetFlagCompletionFunc(f.Name); !ok && f.Name != "help" {
				t.Errorf("%s --%s has no completion", cmd.CommandPath(), f.Name)
			}
		})
	}
}
