package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/fakemodel"
	"github.com/tryst-rdma/tryst/server"
)

// standIn are the commands of the whole job, as scripts: each file is a copy of the checkpoint.
var standIn = map[string]string{
	"tryst": `
if [ "$1" = gen ]; then echo checkpoint >"$5"; exit; fi
while [ $# -gt 0 ]; do
  case $1 in
    --publish) cp "${2#*=}" "$DIR/published" ;;
    --address-file) echo "$*" >>"$DIR/served"; echo 127.0.0.1:4711 >"$2.new"; mv "$2.new" "$2"; exec sleep 600 ;;
    --out) cp "$DIR/published" "$2"; shift 2; echo "$*" >>"$DIR/pulled"; exit ;;
  esac
  shift
done`,
	"python3": `echo "Serving HTTP on 127.0.0.1 port 4712 (http://127.0.0.1:4712/) ..."; exec sleep 600`,
	"curl":    `[ "$5" = http://127.0.0.1:4712/tiny.safetensors ] && cp "$DIR/files/tiny.safetensors" "$4"`,
}

// standIns makes these commands the only ones, beside those that they need, and returns options that
// use them.
func standIns(t *testing.T, without ...string) JobOptions {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"cp", "mv", "sleep", "sync"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, script := range standIn {
		if slices.Contains(without, name) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("DIR", dir)
	return JobOptions{
		Tryst: filepath.Join(dir, "tryst"), Dir: filepath.Join(dir, "files"), Model: "tiny", Pairs: 3, Routes: []string{"grpc", "shm"},
		Only: []string{"pull", "pull-first", "pull-copy"}, Progress: func(s string) { t.Log(s) },
	}
}

// TestWholeJobTakesTurns: over each route every contest has a row of ours and one of its baseline, and
// only first pulls have a server of their own.
func TestWholeJobTakesTurns(t *testing.T) {
	o := standIns(t)
	rows, err := RunJob(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range rows {
		if r.Name == "pull-cpu" { // scripts may take less than a tick
			continue
		}
		names = append(names, fmt.Sprint(r.Name, " ", r.who()))
		if want := int64(3); !r.itself && r.Count != want || r.itself && r.Count != 2*want || r.Ratio <= 0 || r.Seconds <= 0 || r.Size != 11 {
			t.Errorf("row %+v", r)
		}
		if (r.Target > 0) != (r.Transport == "shm") {
			t.Errorf("row %+v: only shm has targets here", r)
		}
	}
	if want := []string{
		"pull grpc", "pull curl", "pull shm", "pull curl",
		"pull-first grpc", "pull-first curl", "pull-first shm", "pull-first curl",
		"pull-copy grpc", "pull-copy cp, sync", "pull-copy shm", "pull-copy cp, sync",
	}; !slices.Equal(names, want) {
		t.Errorf("rows %q, want %q", names, want)
	}
	if n := count(t, "served", "--transport"); n != 2*(1+4+1) {
		t.Errorf("%d servers were started, want one for each pull-first, its warm-up and the other contests", n)
	}
	if grpc, shm := count(t, "pulled", "--transport grpc"), count(t, "pulled", "--provider shm --fallback none"); grpc != 12 || shm != 12 {
		t.Errorf("%d pulls over grpc and %d over shm alone, want 12 each", grpc, shm)
	}
}

// count returns how many lines of a file of the scripts have a text.
func count(t *testing.T, file, text string) (n int) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(os.Getenv("DIR"), file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// TestWholeJobSaysWhatIsLeftOut: a baseline that is not installed is a row that is not ok.
func TestWholeJobSaysWhatIsLeftOut(t *testing.T) {
	o := standIns(t, "python3")
	o.Only, o.Routes = []string{"pull"}, []string{"grpc"}
	var said []string
	o.Progress = func(s string) { said = append(said, s) }
	rows, err := RunJob(t.Context(), o)
	if err != nil || len(rows) != 1 || rows[0].OK {
		t.Fatalf("rows %+v, error %v, want one that is not ok", rows, err)
	}
	if last := said[len(said)-1]; !strings.Contains(last, "left out") || !strings.Contains(last, "python3") {
		t.Errorf("it says %q", last)
	}
}

// TestWholeJobRefusesACopyThatIsNotOne: a fast failure is no fast copy.
func TestWholeJobRefusesACopyThatIsNotOne(t *testing.T) {
	o := standIns(t)
	o.Only, o.Routes = []string{"pull"}, []string{"grpc"}
	script := "#!/bin/sh\necho short >\"$4\"\n"
	if err := os.WriteFile(filepath.Join(os.Getenv("PATH"), "curl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := RunJob(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the copy has 6 bytes, the checkpoint 11") {
		t.Errorf("got error %v", err)
	}
}

// TestPullIntoMemoryBesideACopy runs the contest in memory with a server of this process.
func TestPullIntoMemoryBesideACopy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "tiny.safetensors")
	if _, err := fakemodel.Generate(t.Context(), path, fakemodel.Options{Model: "tiny"}); err != nil {
		t.Fatal(err)
	}
	c := server.Config{}
	c.Listen = "127.0.0.1:0"
	s, err := server.Start(t.Context(), c, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := s.Catalog().Publish(t.Context(), "tiny", path); err != nil {
		t.Fatal(err)
	}
	j := &job{JobOptions: JobOptions{Pairs: 2}, model: path, size: 1}
	if err := j.besideMemoryOf(t.Context(), "grpc", s.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if len(j.rows) != 2 || j.rows[0].Count != 2 || j.rows[0].Ratio <= 0 {
		t.Errorf("rows %+v", j.rows)
	}
}
