package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/verbs/shm"
)

func TestPull(t *testing.T) {
	model := generate(t)
	address := serve(t, "--publish", "tiny="+model)
	out := filepath.Join(t.TempDir(), "copy.safetensors")
	r := tryst(t, "pull", "--from", address, "--out", out, "--transport", "grpc")
	text := did(t, r)
	if !regexp.MustCompile(`(?s)^PUBLICATION +TENSORS +BYTES +TIME +TRANSFER +GB/S +DIGEST, CHECKED +ROUTE\n` +
		`tiny +(\d+) +\d+ +\d+\.\d{3} s +\d+\.\d{3} s +\d+\.\d\d +xxh64:[0-9a-f]{16} +\d+ over grpc\nwrote ` + regexp.QuoteMeta(out) + `\n$`).MatchString(text) {
		t.Error(text)
	}
	if !regexp.MustCompile(`^pull: [\d.]+ kB of [\d.]+ kB \(100%\), [\d.]+ .?B/s, (\d+)/(\d+) tensors over grpc\n$`).MatchString(r.err) {
		t.Errorf("progress: %q", r.err)
	}
	same(t, model, out)
	if _, err := os.Stat(out + ".part"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s.part: %v", out, err)
	}
}

func TestPullJSON(t *testing.T) {
	model := generate(t)
	address := serve(t, "tiny="+model)
	dir := t.TempDir()
	r := tryst(t, "pull", "--from", address, "--out", dir+"/", "--json", "--inflight", "2", "--timeout", "1m", "--transport", "grpc", "tiny")
	var rec pullRecord
	if err := json.Unmarshal([]byte(did(t, r)), &rec); err != nil {
		t.Fatal(err)
	}
	if rec.Publication != "tiny" || rec.Version == "" || rec.Tensors == 0 || rec.Bytes == 0 || rec.Seconds <= 0 || rec.TransferSeconds <= 0 ||
		rec.Rate <= 0 || rec.Digest == "" || !rec.Verified || rec.By["grpc"] != rec.Tensors || rec.Device != "" || len(rec.Files) != 1 || rec.Files[0] != filepath.Join(dir, "tiny.safetensors") {
		t.Errorf("%+v", rec)
	}
	if strings.Contains(r.out, "_ns\"") || strings.Contains(r.out, "_us\"") || rec.Carried[0].Seconds <= 0 {
		t.Errorf("a time is not in seconds: %s", r.out)
	}
	same(t, model, rec.Files[0])
}

// The digest of the table is that of the tensors, whatever server they come
// from.
func TestPullSHA256(t *testing.T) {
	model := generate(t)
	pull := func(digest string) string {
		out := filepath.Join(t.TempDir(), "copy.safetensors")
		address := serve(t, "--digest", digest, model)
		return regexp.MustCompile(digest + `:[0-9a-f]+`).FindString(did(t, tryst(t, "pull", "--from", address, "--out", out)))
	}
	if a, b := pull("sha256"), pull("sha256"); a == "" || a != b {
		t.Errorf("%q and %q", a, b)
	}
}

func TestPullGlobs(t *testing.T) {
	address := serve(t, "tiny="+generate(t))
	all := strings.Split(strings.TrimSpace(did(t, tryst(t, "keys", "--from", address, "--json", "tiny"))), "\n")
	out := filepath.Join(t.TempDir(), "some.safetensors")
	did(t, tryst(t, "pull", "--from", address, "--out", out, "--tensor", "float8_*", "--tensor", "int32.m?trix"))

	again := serve(t, "some="+out)
	some := strings.Split(strings.TrimSpace(did(t, tryst(t, "keys", "--from", again, "--json", "some"))), "\n")
	if len(some) < 3 || len(some) >= len(all) {
		t.Errorf("%d of %d tensors", len(some), len(all))
	}
	for _, line := range some {
		if !strings.Contains(line, `"name":"float8_`) && !strings.Contains(line, `"name":"int32.matrix"`) {
			t.Errorf("%s matches no pattern", line)
		}
	}
}

func TestPullOneTensorAsNumPy(t *testing.T) {
	address := serve(t, "tiny="+generate(t))
	out := filepath.Join(t.TempDir(), "matrix.npy")
	did(t, tryst(t, "pull", "--from", address, "--out", out, "--tensor", "int32.matrix"))
	if b, err := os.ReadFile(out); err != nil || !bytes.HasPrefix(b, []byte("\x93NUMPY")) {
		t.Errorf("%.20q, %v", b, err)
	}
	dir := t.TempDir()
	failed(t, tryst(t, "pull", "--from", address, "--out", filepath.Join(dir, "all.npy")), exitFailed, "one tensor")
	nothingLeft(t, dir)
}

func TestPullSharded(t *testing.T) {
	model := filepath.Join(t.TempDir(), "model")
	did(t, tryst(t, "gen", "--model", "tiny", "--shards", "2", "--out", model))
	address := serve(t, "--publish", "tiny="+model)
	out := filepath.Join(t.TempDir(), "copy") + "/"
	did(t, tryst(t, "pull", "--from", address, "--out", out))
	files, err := filepath.Glob(model + "/*.safetensors")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		same(t, f, filepath.Join(out, filepath.Base(f)))
	}
	if _, err := os.Stat(filepath.Join(out, "model.safetensors.index.json")); err != nil {
		t.Error(err)
	}
}

// A peer may be named by its task.
func TestPullFromTask(t *testing.T) {
	address := serve(t, generate(t))
	env := []string{"TRYST_CLUSTER=ps=3@" + address}
	out := filepath.Join(t.TempDir(), "copy.safetensors")
	did(t, trystEnv(t, env, "pull", "--from", "/job:ps/task:3", "--out", out))
	failed(t, trystEnv(t, env, "pull", "--from", "/job:ps/task:4", "--out", out), exitUsage, "--from", "/job:ps/task:4")
}

func TestPullersAtOnce(t *testing.T) {
	model := generate(t)
	address := serve(t, model)
	var pullers sync.WaitGroup
	dir := t.TempDir()
	for i := range 16 {
		pullers.Go(func() {
			out := filepath.Join(dir, fmt.Sprint(i, ".safetensors"))
			var o, e bytes.Buffer
			if code := run(context.Background(), streams{out: &o, err: &e, env: []string{}}, []string{"pull", "--from", address, "--out", out}); code != exitDone {
				t.Errorf("%d: %s", code, e.String())
				return
			}
			same(t, model, out)
		})
	}
	pullers.Wait()
}

func TestKeys(t *testing.T) {
	model := generate(t)
	address := serve(t, "--publish", "a="+model, "--publish", "b="+model)
	text := did(t, tryst(t, "keys", "--from", address))
	if !regexp.MustCompile(`(?s)^NAME +VERSION +TENSORS +BYTES +PUBLISHED\na +[0-9a-f]+ +\d+ +\d+ +\S+Z\nb +[0-9a-f]+ .*\n$`).MatchString(text) {
		t.Error(text)
	}
	text = did(t, tryst(t, "keys", "--from", address, "b"))
	if !regexp.MustCompile(`(?m)^NAME +DTYPE +SHAPE +BYTES +DIGEST\n`).MatchString(text) ||
		!regexp.MustCompile(`(?m)^int32\.matrix +\S+ +\[[\d,]+\] +\d+ +xxh64:[0-9a-f]{16}$`).MatchString(text) {
		t.Error(text)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(did(t, tryst(t, "keys", "--from", address, "--json"))), "\n") {
		var p struct {
			Publication, Version, Published string
			Tensors, Bytes                  int64
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Publication == "" || p.Version == "" || p.Tensors == 0 || p.Bytes == 0 || p.Published == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(did(t, tryst(t, "keys", "--from", address, "--json", "a"))), "\n") {
		var e struct {
			Name, DType, Digest string
			Shape               []int64
			Bytes               int64
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Name == "" || e.DType == "" || e.Shape == nil || e.Digest == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	failed(t, tryst(t, "keys", "--from", address, "--tensors"), exitFailed, `"a", "b"`)
	failed(t, tryst(t, "keys", "--from", address, "c"), exitFailed, `"c"`)
	one := serve(t, model)
	if a, b := did(t, tryst(t, "keys", "--from", one, "--tensors")), did(t, tryst(t, "keys", "--from", one, "tiny")); a != b {
		t.Errorf("the only publication:\n%s%s", a, b)
	}
}

// A glob may match the files that macOS puts beside others.
func TestServeAGlobWithCompanionsOfMacOS(t *testing.T) {
	model := generate(t)
	companion := filepath.Join(filepath.Dir(model), "._tiny.safetensors")
	if err := os.WriteFile(companion, []byte("\x00\x05\x16\x07"), 0o600); err != nil {
		t.Fatal(err)
	}
	address := serve(t, companion, model)
	if text := did(t, tryst(t, "keys", "--from", address)); strings.Count(text, "\n") != 2 || !strings.Contains(text, "\ntiny ") {
		t.Error(text)
	}
	failed(t, tryst(t, "serve", "--listen", "127.0.0.1:0", companion), exitFailed, "._tiny.safetensors", "macOS")
}

func TestPublications(t *testing.T) {
	got := fmt.Sprint(publications([]string{"m=a.npy", "x/b.npy", "m=c.npy", "b=d.npy", "./e=f.npy"}))
	if want := "[{m [a.npy c.npy]} {b [x/b.npy]} {b [d.npy]} {e=f [./e=f.npy]}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestPullOverVerbs: with each device that works on any machine every tensor comes over verbs, and
// the table and the JSON say so.
func TestPullOverVerbs(t *testing.T) {
	for provider, device := range map[string]string{"roce": "roce-", "tcp": "tcp0", "shm": "shm0"} {
		t.Run(provider, func(t *testing.T) { pullOver(t, provider, device) })
	}
}

// pullOver pulls over the device of a provider, whose name begins with device.
func pullOver(t *testing.T, provider, device string) {
	t.Helper()
	if _, err := shm.New(shm.Options{}).Devices(); err != nil && provider == "shm" {
		t.Skip("no shared memory: ", err)
	}
	model := generate(t)
	address := serve(t, "--transport", "verbs", "--provider", provider, "--publish", "tiny="+model)
	out := filepath.Join(t.TempDir(), "copy.safetensors")
	pull := []string{"pull", "--from", address, "--out", out, "--force", "--transport", "verbs", "--provider", provider}
	var rec pullRecord
	if err := json.Unmarshal([]byte(did(t, tryst(t, append(pull, "--json")...))), &rec); err != nil {
		t.Fatal(err)
	}
	if !rec.Verified || len(rec.By) != 1 || rec.By["verbs"] != rec.Tensors || rec.Provider != provider || !strings.HasPrefix(rec.Device, device) {
		t.Errorf("%+v", rec)
	}
	if c := rec.Carried; len(c) != 1 || c[0].Transport != "verbs" || c[0].Device != rec.Device || c[0].Tensors != rec.Tensors ||
		c[0].Bytes != rec.Bytes || c[0].Attempts < rec.Tensors || c[0].Seconds <= 0 {
		t.Errorf("carried: %+v", c)
	}
	same(t, model, out)
	again := tryst(t, pull...)
	text := did(t, again)
	// Tensors without bytes come after all bytes have, and count, too.
	if want := fmt.Sprintf("%d/%d tensors over verbs (%s)\n", rec.Tensors, rec.Tensors, rec.Device); !strings.Contains(again.err, want) {
		t.Errorf("%q is not in\n%s", want, again.err)
	}
	if want := fmt.Sprintf("  %d over verbs (%s)\n", rec.Tensors, rec.Device); !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
	if provider != "roce" {
		return // the settings rdma.device and so on are not for it
	}
	if r := tryst(t, append(pull, "--rdma-device", "mlx5_99")...); r.code != exitFailed || !strings.Contains(r.err, "mlx5_99") {
		t.Errorf("a device that is not there: %d, %q", r.code, r.err)
	}
}

func TestWires(t *testing.T) {
	of := func(n int, transport, device string) carried {
		return carried{Tensors: n, Transport: transport, Device: device}
	}
	for want, w := range map[string][]carried{
		"158 over verbs (roce-lo), 2 over grpc":                 {of(158, "verbs", "roce-lo"), of(2, "grpc", "")},
		"3 over grpc":                                           {of(3, "grpc", "")},
		"2 over verbs (roce-lo), 1 over grpc, 1 over verbs (x)": {of(2, "verbs", "roce-lo"), of(1, "grpc", ""), of(1, "verbs", "x")},
		"": nil,
	} {
		if got := (routes{Carried: w}).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The variables of TensorFlow's verbs are not named by any flag, so it is told that one was used.
func TestPullTellsTheVariableThatWasUsed(t *testing.T) {
	model := generate(t)
	address := serve(t, "--transport", "verbs", "--provider", "roce", model)
	r := trystEnv(t, []string{"RDMA_QP_MTU=1024"}, "pull", "--transport", "verbs", "--provider", "roce", "--log-level", "info", "--from", address, "--out", filepath.Join(t.TempDir(), "copy.safetensors"))
	did(t, r)
	if !strings.Contains(r.err, "setting=rdma.mtu value=1024 variable=RDMA_QP_MTU") {
		t.Error(r.err)
	}
	if strings.Contains(r.err, "no verbs with the peer") {
		t.Errorf("its own end is no news:\n%s", r.err)
	}
}

// Who asked for verbs is told why it was not taken, without having to ask for the log.
func TestPullSaysWhyItWasNotOverVerbs(t *testing.T) {
	address := serve(t, "--transport", "grpc", generate(t))
	r := tryst(t, "pull", "--transport", "verbs", "--provider", "roce", "--from", address, "--out", filepath.Join(t.TempDir(), "copy.safetensors"))
	did(t, r)
	if !strings.Contains(r.err, "level=WARN") || !strings.Contains(r.err, "does not serve verbs: its setting transport is grpc, or it is not Tryst") {
		t.Error(r.err)
	}
}

// TestPullSaysWhichRouteAutoTook: the row and the JSON of a pull have the best route that both sides have, and where
// that is gRPC, why; nothing of it is a warning.
func TestPullSaysWhichRouteAutoTook(t *testing.T) {
	model := generate(t)
	for serves, want := range map[string]struct{ row, json string }{
		"auto": {" over verbs (tcp0)", `"device":"tcp0"`},
		"grpc": {
			" over grpc (/job:worker/replica:0/task:0 does not serve verbs: its setting transport is grpc, or it is not Tryst)",
			`"reason":"/job:worker/replica:0/task:0 does not serve verbs: its setting transport is grpc, or it is not Tryst"`,
		},
	} {
		pull := []string{"pull", "--from", serve(t, "--transport", serves, "--shm", "off", model), "--force", "--out", filepath.Join(t.TempDir(), "copy.safetensors")}
		r := tryst(t, append(pull, "--transport", "auto")...)
		if out := did(t, r); !strings.Contains(out, want.row) || strings.Contains(r.err, "level=") {
			t.Errorf("from %s:\n%s%s", serves, out, r.err)
		}
		if out := did(t, tryst(t, append(pull, "--transport", "auto", "--json")...)); !strings.Contains(out, want.json) {
			t.Errorf("from %s:\n%s", serves, out)
		}
		if out := did(t, tryst(t, append(pull, "--transport", "grpc")...)); !strings.HasSuffix(strings.Split(out, "\n")[1], " over grpc") {
			t.Errorf("with grpc from %s:\n%s", serves, out)
		}
	}
}

// TestPullFromAServerWithoutVerbsFailsAtOnce: with --fallback none a pull can never begin at a server that has gRPC
// alone. The error says which server, why and what to do.
func TestPullFromAServerWithoutVerbsFailsAtOnce(t *testing.T) {
	address := serve(t, "--transport", "grpc", generate(t))
	for _, provider := range []string{"auto", "tcp", "roce"} {
		r := tryst(t, "pull", "--from", address, "--out", filepath.Join(t.TempDir(), "copy.safetensors"),
			"--transport", "verbs", "--provider", provider, "--fallback", "none", "--peer-timeout", "1h", "--retry", "1h")
		for _, want := range []string{"/job:worker/replica:0/task:0 does not serve verbs", "start it with the setting transport auto or verbs, or set fallback to grpc here", "the setting fallback is none"} {
			if r.code != 1 || strings.Count(r.err, "tryst pull: ") != 1 || !strings.Contains(r.err, want) || strings.Contains(r.err, "trying again") {
				t.Errorf("provider %s: exit status %d, want 1 and one error with %q:\n%s", provider, r.code, want, r.err)
			}
		}
	}
}

// TestPullWithoutACommonProviderFailsAtOnce: with --fallback none a pull can never begin if no provider
// is on both sides. It ends with one error, which names both lists, and does not try again.
func TestPullWithoutACommonProviderFailsAtOnce(t *testing.T) {
	address := serve(t, "--transport", "verbs", "--provider", "roce", generate(t))
	r := tryst(t, "pull", "--from", address, "--out", filepath.Join(t.TempDir(), "copy.safetensors"),
		"--transport", "verbs", "--provider", "tcp", "--fallback", "none", "--peer-timeout", "1h", "--retry", "1h")
	const want = "this process has tcp (setting provider), /job:worker/replica:0/task:0 has roce: give both one in common"
	if r.code != 1 || strings.Count(r.err, "tryst pull: ") != 1 || !strings.Contains(r.err, want) || strings.Contains(r.err, "goes on") || strings.Contains(r.err, "trying again") {
		t.Errorf("exit status %d, want 1 and one error:\n%s", r.code, r.err)
	}
}
