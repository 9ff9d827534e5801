package command

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/doctor"
	"github.com/tryst-rdma/tryst/internal/transporttest"
)

// Whatever this host has, gRPC works, and what RDMA lacks is a warning.
func TestDoctor(t *testing.T) {
	r := tryst(t, "doctor")
	if out := did(t, r); !strings.Contains(out, "kernel") || strings.Contains(out, "FAIL") || r.err != "" {
		t.Errorf("%s%s", out, r.err)
	}
}

func TestDoctorFailsForAPeerThatIsNotThere(t *testing.T) {
	address := transporttest.FreeAddresses(t, 1)[0]
	r := tryst(t, "doctor", "--cluster", "worker="+address)
	if r.code != exitFailed || !strings.Contains(r.out, "FAIL  peer /job:worker/replica:0/task:0") ||
		!strings.Contains(r.out, address) || strings.Contains(r.out, "rpc error") || !strings.Contains(r.err, "checks failed") {
		t.Errorf("exit status %d\n%s%s", r.code, r.out, r.err)
	}
	// The own task is not asked when it is said to be the own.
	did(t, tryst(t, "doctor", "--cluster", "worker="+address, "--task", "/job:worker/replica:0/task:0"))
}

// A device that was asked for and is not there fails with verbs.
func TestDoctorFailsForADeviceThatIsNotThere(t *testing.T) {
	r := tryst(t, "doctor", "--transport", "verbs", "--rdma-device", "no-such-device")
	if r.code != exitFailed || !strings.Contains(r.out, "FAIL") {
		t.Errorf("exit status %d\n%s%s", r.code, r.out, r.err)
	}
}

// Where the settings of verbs come from is told.
func TestDoctorTellsWhereSettingsComeFrom(t *testing.T) {
	r := tryst(t, "doctor", "--transport", "verbs", "--rdma-retry", "3")
	for _, want := range []string{`rdma.retry is "3" (flag --rdma-retry)`} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %s in\n%s%s", want, r.out, r.err)
		}
	}
}

func TestDoctorJSON(t *testing.T) {
	r := tryst(t, "doctor", "--json", "--cluster", "worker="+transporttest.FreeAddresses(t, 1)[0])
	levels := make(map[doctor.Level]int)
	d := json.NewDecoder(strings.NewReader(r.out))
	for d.More() {
		var l doctor.Line
		if err := d.Decode(&l); err != nil || l.Check == "" || l.Text == "" {
			t.Fatalf("%+v, %v in\n%s", l, err, r.out)
		}
		levels[l.Level]++
	}
	if r.code != exitFailed || levels[doctor.Fail] != 1 {
		t.Errorf("exit status %d, lines %v, want 1 and one FAIL:\n%s", r.code, levels, r.out)
	}
}

// Without RDMA nothing fails with verbs: the device in software takes its place.
func TestDoctorOfTheDeviceInSoftware(t *testing.T) {
	out := did(t, tryst(t, "doctor", "--transport", "verbs", "--provider", "roce", "--json"))
	found := false
	for line := range strings.Lines(out) {
		var l doctor.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		found = found || l.Check == "provider" && strings.Contains(l.Text, "roce, a device in user space: the setting provider names it")
	}
	if !found || !strings.Contains(out, "UDP port 4791") {
		t.Error(out)
	}
}

// TestDoctorRefusesFlagsThatItIgnores: it neither traces nor serves. A file and variables, which
// other commands read too, may have these settings.
func TestDoctorRefusesFlagsThatItIgnores(t *testing.T) {
	for _, flag := range []string{"--otel-endpoint=127.0.0.1:1", "--otel-insecure", "--log-level=debug", "--metrics-address=:1", "--file-cache=1MiB"} {
		r := tryst(t, "doctor", flag)
		if name, _, _ := strings.Cut(flag, "="); r.code != exitUsage || !strings.Contains(r.err, "unknown flag: "+name) {
			t.Errorf("%s: exit status %d\n%s%s", flag, r.code, r.out, r.err)
		}
	}
}
