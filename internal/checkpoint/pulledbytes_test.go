package checkpoint

import (
	"fmt"
	"testing"
)

// TestPulledBytesAreBounded: a program may publish under a new name for ever; no byte is lost when old names make room.
func TestPulledBytesAreBounded(t *testing.T) {
	var p pulledBytes
	now := ""
	published := func(name string) bool { return name == now || name == "kept" }
	kept, end := p.begin("kept", published)
	kept.Add(1)
	end()
	under, _ := p.begin("under way", published) // never ends
	for i := range 3 * maxPulledNames {
		now = fmt.Sprint("version ", i)
		n, end := p.begin(now, published)
		n.Add(10)
		end()
	}
	under.Add(5)
	sum := p.others.Load()
	for _, one := range p.of {
		sum += one.bytes.Load()
	}
	if len(p.of) > maxPulledNames || p.of["kept"] == nil || p.of["under way"] == nil || sum != 30*maxPulledNames+6 || p.others.Load() == 0 {
		t.Errorf("%d names with %d bytes, %d of others", len(p.of), sum, p.others.Load())
	}
	again, end := p.begin("kept", published)
	defer end()
	if again.Add(0) != 1 {
		t.Error("a name that is published has lost its count")
	}
	all := func(string) bool { return true }
	var full pulledBytes
	for i := range maxPulledNames + 5 {
		n, _ := full.begin(fmt.Sprint(i), all)
		n.Add(1)
	}
	if len(full.of) != maxPulledNames || full.others.Load() != 5 {
		t.Errorf("with more publications than names: %d names, %d bytes of others", len(full.of), full.others.Load())
	}
}
