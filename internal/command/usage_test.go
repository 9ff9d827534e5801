package command

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
)

func TestHelp(t *testing.T) {
	top := did(t, tryst(t))
	if top != did(t, tryst(t, "--help")) || top != did(t, tryst(t, "help")) {
		t.Error("tryst, tryst --help and tryst help differ")
	}
	for _, c := range newRoot(streams{}).Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		if !strings.Contains(top, "  "+c.Name()) {
			t.Errorf("help has no %s", c.Name())
		}
		text := did(t, tryst(t, c.Name(), "--help"))
		if text != did(t, tryst(t, "help", c.Name())) {
			t.Errorf("%s --help and help %s differ", c.Name(), c.Name())
		}
		if !strings.Contains(text, "Usage:\n  tryst "+c.Name()) {
			t.Errorf("%s --help:\n%s", c.Name(), text)
		}
	}
}

func TestHelpGroupsFlagsAndShowsDefaults(t *testing.T) {
	text := did(t, tryst(t, "pull", "--help"))
	own, settings, ok := strings.Cut(text, "\nSettings, ")
	if !ok {
		t.Fatalf("no settings apart:\n%s", text)
	}
	for _, want := range []string{"--from HOST[:PORT]|TASK", "--out PATH", "--tensor GLOB", "--inflight int", fmt.Sprintf("(default %d)", checkpoint.DefaultInflight), "--timeout duration"} {
		if !strings.Contains(own, want) {
			t.Errorf("no %q among the flags", want)
		}
	}
	for _, want := range []string{"--transport name", "(default grpc)", "--tls-ca", "(default 10s)"} {
		if !strings.Contains(settings, want) {
			t.Errorf("no %q among the settings", want)
		}
	}
	usual, rest, ok := strings.Cut(settings, "\nSettings of devices")
	if !ok {
		t.Fatalf("no devices apart:\n%s", settings)
	}
	at := -1
	for _, want := range []string{"--cluster ", "--transport ", "--provider ", "--fallback ", "--shm-dir ", "--tls-ca ", "--config "} {
		i := strings.Index(usual, "      "+want)
		if i <= at || strings.Contains(rest, "      "+want) {
			t.Errorf("%s is not in its place among the usual settings:\n%s", want, usual)
		}
		at = i
	}
	devices, further, _ := strings.Cut(rest, "\nFurther settings")
	if !strings.Contains(devices, "--rdma-mtu ") || !strings.Contains(devices, "--arena ") || !strings.Contains(further, "--keepalive-time ") {
		t.Errorf("the groups are wrong:\n%s", rest)
	}
	for _, s := range config.Settings() {
		if s.Use&config.ForClient != 0 && strings.Count(settings, "      --"+s.Flag()+" ")+strings.Count(settings, "      --"+s.Flag()+"\n") != 1 {
			t.Errorf("--%s is not listed once", s.Flag())
		}
	}
	if strings.Contains(text, "--listen") {
		t.Error("a puller listens nowhere")
	}
}

func TestWrongUsage(t *testing.T) {
	pull := []string{"pull", "--from", "127.0.0.1:1", "--out", "x.safetensors"}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"pul"}, []string{`"pul"`, "nearest is pull", "'tryst --help'"}},
		{[]string{"frobnicate"}, []string{`"frobnicate"`, "the commands are", "gen, keys, pull, serve, support, top, trace, version"}},
		{[]string{"help", "frobnicate"}, []string{`"frobnicate"`}},
		{[]string{"--frobnicate"}, []string{"--frobnicate", "'tryst --help'"}},
		{[]string{"completion"}, []string{"bash, fish"}},
		{[]string{"completion", "csh"}, []string{`"csh"`}},
		{[]string{"completion", "bash", "x"}, []string{`"x"`}},
		{append(pull, "--frm"), []string{"--frm", "'tryst pull --help'"}},
		{append(pull, "--tensor"), []string{"--tensor"}},
		{append(pull, "--inflight", "many"), []string{`--inflight "many"`, "whole number"}},
		{append(pull, "--inflight", "0"), []string{"--inflight 0"}},
		{append(pull, "--out", "-", "--force"), []string{"--force", "--out - writes none"}},
		{append(pull, "--out", "-", "--no-resume"), []string{"--no-resume", "--out - writes none"}},
		{append(pull, "--timeout", "5"), []string{`--timeout "5"`, "90s"}},
		{append(pull, "--timeout", "-1s"), []string{"--timeout -1s"}},
		{append(pull, "--retry", "-1s"), []string{"--retry -1s", "not be negative"}},
		{append(pull, "--json=maybe"), []string{`--json "maybe"`, "true or false"}},
		{append(pull, "a", "b"), []string{`"b"`}},
		{append(pull, "--transport", "carrier-pigeon"), []string{`--transport "carrier-pigeon"`, "grpc", "verbs"}},
		{append(pull, "--listen", ":1"), []string{"--listen"}},
		{[]string{"pull", "--out", "x.safetensors"}, []string{"--from is missing"}},
		{[]string{"pull", "--from", "127.0.0.1:1"}, []string{"--out is missing"}},
		{[]string{"pull", "--from", "no where", "--out", "x"}, []string{"--from", `"no where"`, "HOST:PORT"}},
		{[]string{"pull", "--from", "2222", "--out", "x"}, []string{"--from", `"2222"`, "the host is missing", "HOST[:PORT]"}},
		{[]string{"pull", "--from", "/job:ps/task:1", "--out", "x"}, []string{"--from", "/job:ps/task:1", "cluster spec"}},
		{[]string{"keys"}, []string{"--from is missing"}},
		{[]string{"keys", "--from", "127.0.0.1:1", "a", "b"}, []string{`"b"`}},
		{[]string{"gen"}, []string{"--out is missing"}},
		{[]string{"gen", "--out", "x.safetensors", "--model", "gpt7"}, []string{`"gpt7"`, "gpt2 ("}},
		{[]string{"gen", "--out", "x.safetensors", "--seed", "-1"}, []string{`--seed "-1"`, "not negative"}},
		{[]string{"gen", "--out", "x.bin"}, []string{"x.bin", ".safetensors"}},
		{[]string{"gen", "--model", "tiny", "--out", "x.safetensors", "--shards", "-1"}, []string{"-1 shards"}},
		{[]string{"gen", "x.safetensors"}, []string{`"x.safetensors"`}},
		{[]string{"serve", "--transport", "carrier-pigeon"}, []string{`--transport "carrier-pigeon"`, "grpc", "verbs"}},
		{[]string{"serve", "--listen", "2222"}, []string{`--listen "2222"`, "HOST:PORT"}},
		{[]string{"serve", "--config", "/does/not/exist.yaml"}, []string{"--config", "/does/not/exist.yaml", "no such file"}},
		{[]string{"serve", "--publish", ""}, []string{`publication ""`, "no path", "[NAME=]PATH"}},
		{[]string{"serve", "--publish", "a="}, []string{`publication "a="`, "no path", "[NAME=]PATH"}},
		{[]string{"serve", "a.npy", ""}, []string{`publication ""`, "no path", "[NAME=]PATH"}},
		{[]string{"config", "x"}, []string{`"x"`}},
		{[]string{"config", "--log-level", "loud"}, []string{`--log-level "loud"`, "debug"}},
		{[]string{"version", "x"}, []string{`"x"`}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			failed(t, tryst(t, c.args...), exitUsage, append(c.want, "; see 'tryst")...)
		})
	}
}

// TestAllWrongFlagsAtOnce: what is missing, what is wrong and the settings, each in a line of its own.
func TestAllWrongFlagsAtOnce(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"pull"}, []string{"--from is missing: ", "--out is missing: "}},
		{[]string{"pull", "--inflight", "0", "--retry", "-1s", "--timeout", "-1s", "--log-level", "loud"}, []string{
			"--from is missing", "--retry -1s", "--timeout -1s", "--out is missing", "--inflight 0", `--log-level "loud"`,
		}},
		{[]string{"pull", "--from", "2222"}, []string{`--from: address "2222"`, "--out is missing"}},
		{[]string{"keys", "--timeout", "-1s"}, []string{"--from is missing", "--timeout -1s"}},
		{[]string{"gen", "--model", "gpt7"}, []string{"--out is missing", `--model "gpt7"`}},
		{[]string{"serve", "--publish", "a=", "--log-level", "loud", "b="}, []string{`publication "a="`, `publication "b="`, `--log-level "loud"`}},
	} {
		r := tryst(t, c.args...)
		if r.code != exitUsage || strings.Count(r.err, "\n") != len(c.want) || strings.Count(r.err, "tryst "+c.args[0]+": ") != len(c.want) || strings.Count(r.err, "; see '") != 1 {
			t.Errorf("%v: exit status %d, want %d lines:\n%s", c.args, r.code, len(c.want), r.err)
		}
		for _, want := range c.want {
			if !strings.Contains(r.err, want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, r.err)
			}
		}
	}
}

// Each kind of flag that may refuse a text has words for what it wants.
func TestEveryKindOfFlagHasWords(t *testing.T) {
	settings := make(map[string]bool)
	for _, s := range config.Settings() { // these take any text
		settings[s.Flag()] = true
	}
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			kind := f.Value.Type()
			if !settings[f.Name] && kind != "string" && kind != "stringArray" && kinds[kind] == "" {
				t.Errorf("%s --%s takes a %s, and nothing says what that is", c.CommandPath(), f.Name, kind)
			}
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRoot(streams{}))
}

// Each setting that is wrong has a line of its own.
func TestSeveralWrongSettings(t *testing.T) {
	r := trystEnv(t, []string{"TRYST_LISTEN=x", "TRYST_NONSENSE=1"}, "serve", "--log-level", "loud")
	if r.code != exitUsage || strings.Count(r.err, "\n") != 3 || strings.Count(r.err, "tryst serve: ") != 3 || strings.Count(r.err, "see '") != 1 {
		t.Errorf("exit status %d\n%s", r.code, r.err)
	}
	for _, want := range []string{`TRYST_LISTEN "x"`, "TRYST_NONSENSE", `--log-level "loud"`} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in:\n%s", want, r.err)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "fish", "powershell", "zsh"} {
		if text := did(t, tryst(t, "completion", shell)); !strings.Contains(text, "tryst") {
			t.Errorf("%s: %q", shell, text)
		}
	}
	if text := did(t, tryst(t, "__complete", "pu")); !strings.HasPrefix(text, "pull\t") {
		t.Errorf("pu is completed to %q", text)
	}
}
