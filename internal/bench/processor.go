package bench

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// cpuInfo has the processors of a Linux system (proc_cpuinfo(5)).
const cpuInfo = "/proc/cpuinfo"

// Machine returns what rows have about the machine, for benchmarks that are not in this package: its
// processors, and its load average, or -1.
func Machine() (processor string, load float64) {
	return processorText(cpuInfo), loadAverage(loadFile)
}

// processorText names the processors of this machine from a file like cpuInfo.
func processorText(file string) string {
	text, _ := os.ReadFile(file) // other systems have none
	return fmt.Sprintf("%s, %d processors", processorModel(text), runtime.NumCPU())
}

// modelLimit bounds the name of a model, in characters. Those of makers have at most 48.
const modelLimit = 64

// processorModel returns the model of the first processor. Not every architecture has one there.
func processorModel(text []byte) string {
	for line := range bytes.Lines(text) {
		key, value, ok := strings.Cut(string(line), ":")
		if !ok || strings.TrimSpace(key) != "model name" {
			continue
		}
		name := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(value, "")), " "))
		if len(name) > 0 {
			return string(name[:min(len(name), modelLimit)])
		}
	}
	return runtime.GOARCH
}
