package sources

import (
	"testing"

	"github.com/tryst-rdma/tryst/internal/config"
)

// verbs is the variable without which those of TensorFlow's verbs do not count.
const verbs = "TRYST_TRANSPORT=verbs"

// TestBothSpellings: TensorFlow's README and its code name most variables
// differently. Each sets its setting, and the source says which one did.
func TestBothSpellings(t *testing.T) {
	settingsWithThem := 0
	for _, s := range config.Settings() {
		names := s.Inherited()
		if len(names) == 0 {
			continue
		}
		settingsWithThem++
		want, text := sample(s, FromTensorFlow), sample(s, FromTensorFlow)
		if s.Key == timeoutKey {
			text = "14"
		}
		for _, name := range names {
			c, err := world{environ: []string{verbs, name + "=" + text}}.load(t)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := c.fields().Text(s.Key); got != want {
				t.Errorf("%s=%s gives %s, want %s", name, text, got, want)
			}
			if got := c.Source(s.Key).String(); got != "env "+name {
				t.Errorf("%s: the source is %q", name, got)
			}
		}
		if len(names) == 1 {
			continue
		}
		if _, err := (world{environ: []string{verbs, names[0] + "=" + text, names[1] + "=" + text}}).load(t); err != nil {
			t.Errorf("the same twice: %v", err)
		}
		_, err := world{environ: []string{verbs, names[0] + "=1", names[1] + "=2"}}.load(t)
		wantErrors(t, err, []string{names[0] + ` "1"`, names[1] + ` is "2"`, "both are names of " + s.Key})
	}
	if settingsWithThem != 10 {
		t.Errorf("%d settings have variables of TensorFlow, want 10", settingsWithThem)
	}
}

func TestInheritedValuesAreJudged(t *testing.T) {
	for variable, words := range map[string]string{
		"RDMA_RETRY_CNT=7":     `RDMA_RETRY_CNT: rdma.retry "7": with 7 Soft-RoCE retries forever`,
		"RDMA_QP_TIMEOUT=0":    "a dead peer would not be detected",
		"RDMA_QP_TIMEOUT=24":   "a dead peer would not be detected",
		"RDMA_QP_TIMEOUT=67ms": "want a code of 1 to 23",
		"RDMA_MTU=1500":        `RDMA_MTU: rdma.mtu "1500": want one of 0, 256`,
		"RDMA_GID_INDEX=-1":    "0 to 255",
	} {
		_, err := world{environ: []string{verbs, variable}}.load(t)
		wantErrors(t, err, []string{words})
	}
	if c, err := (world{environ: []string{verbs, "RDMA_DEVICE="}}).load(t); err != nil || c.Source("rdma.device").Kind != FromDefault {
		t.Errorf("an empty variable counts: %v", err)
	}
}

// TestRetryForEver: 7 is refused with the reason, by whatever name it is given.
func TestRetryForEver(t *testing.T) {
	_, err := world{args: []string{"--rdma-retry=7"}}.load(t)
	wantErrors(t, err, []string{`--rdma-retry "7": with 7 Soft-RoCE retries forever, so a dead peer would never be detected; want 0 to 6`})
	_, err = world{args: []string{"--rdma-retry=8"}}.load(t)
	wantErrors(t, err, []string{"want 0 to 6"})
	c, err := world{args: []string{"--rdma-retry=0"}}.load(t)
	if err != nil || *c.RDMA.Retry != 0 {
		t.Errorf("%v, %v", c.RDMA.Retry, err)
	}
}

// TestGIDIndexZero: entry 0 is not the same as none.
func TestGIDIndexZero(t *testing.T) {
	c, err := world{args: []string{"--rdma-gid-index=0"}}.load(t)
	if err != nil || c.RDMA.GIDIndex == nil || *c.RDMA.GIDIndex != 0 {
		t.Errorf("%v, %v", c.RDMA.GIDIndex, err)
	}
	if c, err = (world{}).load(t); err != nil || c.RDMA.GIDIndex != nil {
		t.Errorf("the default is %v, %v", c.RDMA.GIDIndex, err)
	}
}

// TestInheritedNamesAreForVerbsAlone: other programs have variables of such names.
func TestInheritedNamesAreForVerbsAlone(t *testing.T) {
	c, err := world{environ: []string{"RDMA_TIMEOUT=often", "RDMA_RETRY_CNT=7", "RDMA_MTU=512"}}.load(t)
	if err != nil || c.RDMA.MTU != 0 {
		t.Errorf("%d, %v", c.RDMA.MTU, err)
	}
	c, err = world{yaml: "transport: verbs\n", environ: []string{"RDMA_MTU=512"}}.load(t)
	if err != nil || c.RDMA.MTU != 512 {
		t.Errorf("with the transport in the file: %d, %v", c.RDMA.MTU, err)
	}
	c, err = world{yaml: "transport: verbs\n", environ: []string{"RDMA_MTU=512"}, args: []string{"--transport=grpc"}}.load(t)
	if err != nil || c.RDMA.MTU != 0 {
		t.Errorf("with another transport by a flag: %d, %v", c.RDMA.MTU, err)
	}
}
