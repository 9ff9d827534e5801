package bench

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestProcessorModel: the first one's; where there is none, the architecture.
func TestProcessorModel(t *testing.T) {
	for text, want := range map[string]string{
		"": runtime.GOARCH,
		"BogoMIPS\t: 50.00\nFeatures\t: fp asimd\n": runtime.GOARCH,
		"model name\t:\n": runtime.GOARCH,
		"processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD  EPYC 9B14 \n\nmodel name\t: another\n": "AMD EPYC 9B14",
		"model name: a\xffb":                       "ab",
		"model name: " + strings.Repeat("x", 1000): strings.Repeat("x", modelLimit),
	} {
		if got := processorModel([]byte(text)); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got, want := processorText(filepath.Join(t.TempDir(), "none")), fmt.Sprintf("%s, %d processors", runtime.GOARCH, runtime.NumCPU()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
