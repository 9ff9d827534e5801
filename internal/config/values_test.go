package config

import (
	"math"
	"testing"
)

// TestLimits tries each side of each limit, and texts that are no value at all.
func TestLimits(t *testing.T) {
	for _, test := range []struct {
		key     string
		good    []string
		refused []string
	}{
		{"listen", []string{":0", "[::1]:1", "localhost:65535"}, []string{"", "localhost", ":65536", "::1:1", "a b:1", "/bns/a"}},
		{"metrics-address", []string{"", ":0"}, []string{"localhost", "/bns/a"}},
		{"otel.endpoint", []string{"", "collector:4317"}, []string{"http://collector:4317"}},
		{"transport", []string{"grpc", "verbs"}, []string{"", "GRPC", "rdma"}},
		{"fallback", []string{"grpc", "none"}, []string{"", "verbs"}},
		{"provider", []string{"auto", "libibverbs", "roce", "tcp", "shm, tcp", "roce,auto", "tcp,tcp"}, []string{"", "rxe", "Roce", "tcp,", ",", "tcp;shm", "tcp rxe"}},
		{"shm", []string{"auto", "off"}, []string{"", "on", "true"}},
		{"shm-dir", []string{"", "/run/tryst"}, []string{"a\x00b"}},
		{"rdma.port", []string{"0", "254"}, []string{"-1", "255", ""}},
		{"rdma.gid-index", []string{"", "0", "255"}, []string{"-1", "256", "auto"}},
		{"rdma.mtu", []string{"0", "256", "4096"}, []string{"1500", "", "8192"}},
		{"rdma.traffic-class", []string{"0", "1", "2", "104", "254"}, []string{"-1", "256", "3", "107", "255"}},
		{"rdma.service-level", []string{"0", "15"}, []string{"-1", "16"}},
		{"rdma.pkey-index", []string{"0", "65535"}, []string{"-1", "65536"}},
		{"rdma.timeout", []string{"0", "0s", "8.192µs", "1m"}, []string{"8µs", "-1s", "61s", "14", ""}},
		{"rdma.retry", []string{"0", "6"}, []string{"-1", "7", "8", ""}},
		{"rdma.queue-depth", []string{"16", "32768"}, []string{"15", "32769"}},
		{"eager-limit", []string{"1B", "1MiB"}, []string{"0", "2MiB"}},
		{"arena", []string{"1MiB", "1TiB"}, []string{"1KiB", "2TiB"}},
		{"arena-limit", []string{"2MiB", "1PiB"}, []string{"1MiB", "2PiB"}},
		{"poll", []string{"adaptive", "busy", "event"}, []string{"", "spin"}},
		{"log.level", []string{"debug", "INFO", "Warn", "error"}, []string{"", "INFO+1", "trace", "0"}},
		{"log.format", []string{"text", "json"}, []string{"", "JSON"}},
		{"digest", []string{"xxh64", "sha256"}, []string{"", "md5"}},
		{"tls.cert", []string{"", "a b", "ä"}, []string{"a\x00b"}},
		{"keepalive.time", []string{"10s", "24h", "1m30s"}, []string{"", "9.999s", "24h1ns", "-1s", "30", "1 m"}},
		{"keepalive.timeout", []string{"1s", "1h"}, []string{"0", "999ms", "61m"}},
		{"shutdown-timeout", []string{"1ms", "1h"}, []string{"0", "0s", "999us", "1h1s"}},
		{"peer-timeout", []string{"1ms", "1h"}, []string{"0s", "2h"}},
		{"release-after", []string{"1s", "24h"}, []string{"0", "999ms", "25h"}},
		{"connections-per-peer", []string{"1", "64"}, []string{"0", "65", "-1", "1.5", "0x1", "99999999999999999999"}},
		{"max-waiting", []string{"1", "1000000000"}, []string{"0", "1000000001"}},
		{"unary-limit", []string{"1KiB", "2047MiB"}, []string{"1023", "0", "2GiB", "-1"}},
		{"max-waiting-bytes", []string{"64KiB", "1TiB"}, []string{"65535", "1025GiB"}},
		{"kept.per-peer", []string{"1MiB", "1PiB"}, []string{"0", "2PiB"}},
		{"kept.total", []string{"0", "1", "1PiB"}, []string{"2PiB"}},
		{"cpu-devices", []string{"1", "256"}, []string{"0", "257"}},
		{"kernels", []string{"go", "tensorflow", "none"}, []string{"", "Go"}},
		{"max-sessions", []string{"1", "1000000"}, []string{"0", "1000001"}},
		{"max-graphs", []string{"1", "1000000000"}, []string{"0", "1000000001"}},
		{"max-graph-bytes", []string{"1MiB", "2147483647"}, []string{"1KiB", "2GiB"}},
		{"max-session-bytes", []string{"1MiB", "1PiB"}, []string{"1KiB", "2PiB"}},
		{"max-running-steps", []string{"1", "1000000"}, []string{"0", "1000001"}},
		{"replaced-pulls", []string{"1ms", "24h"}, []string{"0", "25h"}},
		{"deltas", []string{"auto", "none"}, []string{"", "on"}},
		{"file-cache", []string{"1MiB", "1PiB"}, []string{"0", "2PiB"}},
		{"otel.sample-ratio", []string{"1", "1e-9", "0.5"}, []string{"0", "-1", "1.1", "NaN", "Inf", ""}},
		{"publish-mmap", []string{"true", "false", "1", "0"}, []string{"", "yes"}},
		{"task", []string{"/job:a/task:1", "/job:a/replica:2/task:1"}, []string{"", "a", "/job:a", "/job:a/task:*", "/job:a/task:0/cpu:0"}},
		{"cluster", []string{"", "a=h:1", " a = h:1 , 7@h:2 ; b=[::1]:1"}, []string{"a", "a=", "a=h:1;a=h:2", "a=1@h:1,1@h:2"}},
	} {
		s, ok := byKey(test.key)
		if !ok {
			t.Errorf("no setting %s", test.key)
			continue
		}
		for _, text := range test.good {
			v := fresh(t, s)
			if err := v.Set(text); err != nil {
				t.Errorf("%s %q: %v", test.key, text, err)
			} else if err := v.check(); err != nil {
				t.Errorf("%s %q: was set, and does not check: %v", test.key, text, err)
			}
			shown := v.String()
			if err := v.Set(shown); err != nil || v.String() != shown {
				t.Errorf("%s %q reads back as %q, then %q: %v", test.key, text, shown, v, err)
			}
		}
		for _, text := range test.refused {
			v := fresh(t, s)
			if s.Default != "" {
				mustSet(v, s.Default)
			}
			before := v.String()
			if err := v.Set(text); err == nil {
				t.Errorf("%s takes %q", test.key, text)
			} else if v.String() != before {
				t.Errorf("%s: refused %q and changed the field to %s", test.key, text, v)
			}
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "4096": 4096, "7B": 7, "1KiB": 1 << 10, "64MiB": 64 << 20, "64 MiB": 64 << 20, "1GiB": 1 << 30, "3TiB": 3 << 40, "2PiB": 2 << 50,
		"1Gi": 1 << 30, "512Mi": 512 << 20, "64 Ki": 64 << 10, "3Ti": 3 << 40, "2Pi": 2 << 50,
		"9223372036854775807": math.MaxInt64, "8191PiB": 8191 << 50,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "MiB", "-1", "+1", "1.5GiB", "64MB", "64m", "64mib", "64mi", "64M", "64 i", "Gi", "i", "1GiBi", "1 ", " 1", "1  KiB", "0x10", "1_000", "9223372036854775808", "8192PiB", "99999999999999999999B",
	} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

// FuzzParseSize reads back what it writes.
func FuzzParseSize(f *testing.F) {
	for _, seed := range []string{"0", "64MiB", "1 GiB", "8191PiB", "8192PiB", "-1", "1KiBKiB", "12B"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err != nil {
			return
		}
		if again, err := ParseSize(FormatSize(n)); n < 0 || err != nil || again != n {
			t.Errorf("%q: got %d, written as %q, read back as %d, %v", text, n, FormatSize(n), again, err)
		}
	})
}
