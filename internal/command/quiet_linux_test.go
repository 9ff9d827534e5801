//go:build !race

package command

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Memory with the race detector is several times as large, and does not go back.

// resident returns the resident memory of a process in bytes: VmRSS, which is now, or VmHWM, its peak
// (proc_pid_status(5)).
func resident(t *testing.T, p *process, which string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(which + `:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("no %s in %s", which, b)
	}
	kb, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// metric returns the value of a metric without labels, and all metrics.
func metric(t *testing.T, address, name string) (value float64, all string) {
	t.Helper()
	r, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(b)
	if m == nil {
		t.Fatalf("no metric %s", name)
	}
	if value, err = strconv.ParseFloat(string(m[1]), 64); err != nil {
		t.Fatal(err)
	}
	return value, string(b)
}

// eventually waits until what it waits for is true.
func eventually(t *testing.T, within time.Duration, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(within); !is(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// quietServer starts a publisher in a process of its own. It returns the addresses of the server and
// of its metrics.
func quietServer(t *testing.T, transport, model string) (p *process, address, metrics string) {
	t.Helper()
	p = start(t, nil, "serve", "--listen", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--release-after", "1s",
		"--transport", transport, "--provider", "roce", model)
	address = p.err.until(t, serving)
	return p, address, p.err.until(t, regexp.MustCompile(`msg="serving HTTP" setting=metrics-address address=(\S+)`))
}

// TestQuietPublisherGivesItsMemoryBack: after a burst of pulls a publisher has at most twice the
// memory that it had before. That takes six times release-after.
func TestQuietPublisherGivesItsMemoryBack(t *testing.T) {
	for _, transport := range []string{"grpc", "verbs"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			model := oneTensor(t)
			p, address, metrics := quietServer(t, transport, model)
			before := resident(t, p, "VmRSS")
			// The peak: on a slow machine the memory has gone back before the pull ends. There a pull may also have little
			// of it at once.
			small := func() bool { return 10*resident(t, p, "VmHWM") < 22*before }
			for i := 0; i < 2 || i < 8 && small(); i++ {
				did(t, tryst(t, "pull", "--from", address, "--transport", transport, "--provider", "roce", "--inflight", "32", "--out", t.TempDir()+"/x.safetensors"))
			}
			if small() {
				t.Fatalf("at most %d bytes were resident in pulls of 160 MiB, %d before: the burst is too small to test anything", resident(t, p, "VmHWM"), before)
			}
			if _, all := metric(t, metrics, "tryst_pulls"); !strings.Contains(all, `tryst_kept_bytes{what="file_cache"`) {
				t.Error("the metrics do not say what the file cache keeps")
			}
			eventually(t, patience, fmt.Sprintf("%d bytes are resident again, twice what it was", 2*before), func() bool { return resident(t, p, "VmRSS") <= 2*before })
		})
	}
}

// TestKilledPullerIsNotConnected: a puller that is killed while it waits for the reader of its output
// leaves an idle channel behind, which ends.
func TestKilledPullerIsNotConnected(t *testing.T) {
	for _, transport := range []string{"grpc", "verbs"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			_, address, metrics := quietServer(t, transport, oneTensor(t))
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			puller := command(t, nil, "pull", "--from", address, "--transport", transport, "--provider", "roce", "--out", "-")
			puller.Stdout = write
			puller.begin(t)
			write.Close()
			if _, err := read.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			sent := regexp.MustCompile(`(?m)^tryst_(verbs_)?sent_(bytes|messages)_total.*$`)
			last, same := "", 0
			eventually(t, patience, "the puller is connected, and nothing is under way to it", func() bool {
				connected, all := metric(t, metrics, "tryst_connected_requesters")
				now := strings.Join(sent.FindAllString(all, -1), " ")
				if same++; now != last || connected != 1 || !strings.Contains(all, "\ntryst_cached_responses 0\n") {
					last, same = now, 0
				}
				return same == 20 // a second
			})
			if err := puller.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, patience, "nobody is connected, and messages have no memory", func() bool {
				connected, all := metric(t, metrics, "tryst_connected_requesters")
				return connected == 0 && (transport == "grpc" || strings.Contains(all, "\ntryst_verbs_message_bytes 0\n"))
			})
		})
	}
}
