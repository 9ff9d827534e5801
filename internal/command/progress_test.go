package command

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinesOfProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProgress(&b, "pull")
		total := int64(548_090_880)
		p.update(0, total)
		p.update(1000, total) // no rate to tell a time from yet
		time.Sleep(2 * time.Second)
		p.update(100_000_000, total)
		p.update(101_000_000, total) // not again within the second
		if _, err := p.Write([]byte("a line of the log\n")); err != nil {
			t.Error(err)
		}
		time.Sleep(3 * time.Second)
		p.update(250_000_000, total)
		time.Sleep(100 * time.Millisecond)
		p.update(total, total) // the last one, always
		p.update(total, total) // and once
		p.end()
		want := "pull: 100 MB of 548 MB (18%), 50.0 MB/s, 9s left\n" +
			"a line of the log\n" +
			"pull: 250 MB of 548 MB (45%), 50.0 MB/s, 6s left\n" +
			"pull: 548 MB of 548 MB (100%), 107 MB/s\n"
		if b.String() != want {
			t.Errorf("got:\n%swant:\n%s", b.String(), want)
		}
	})
}

// TestFirstLineHasNoTimeOfHours: a pull that has to wait for its first bytes has a rate that says nothing yet.
func TestFirstLineHasNoTimeOfHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProgress(&b, "pull")
		total := int64(548_090_880)
		time.Sleep(1100 * time.Millisecond)
		p.update(5000, total)
		time.Sleep(time.Second)
		p.update(100_000_000, total)
		p.end()
		want := "pull: 5.0 kB of 548 MB (0%), 4.5 kB/s\npull: 100 MB of 548 MB (18%), 50.2 MB/s, 9s left\n"
		if b.String() != want {
			t.Errorf("got:\n%swant:\n%s", b.String(), want)
		}
	})
}

// TestBarShowsRateAndTimeLeft: both are averages, and what an earlier pull left does not count.
func TestBarShowsRateAndTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		p := newProgress(&b, "pull")
		p.terminal = true
		p.skip(100_000_000)
		detail := func() string { return "3/9 tensors over verbs" }
		p.updateWith(100_000_000, 1_000_000_000, detail)
		time.Sleep(10 * time.Second)
		p.updateWith(400_000_000, 1_000_000_000, detail)
		time.Sleep(10 * time.Second)
		p.updateWith(1_000_000_000, 1_000_000_000, detail)
		p.end()
		want := "\rpull  10% [==>                          ] 100 MB/1.0 GB, 3/9 tensors over verbs" +
			"\rpull  40% [===>    ] 400 MB/1.0 GB, 30.0 MB/s, 3/9 tensors over verbs, 20s left" +
			"\rpull 100% [=============] 1.0/1.0 GB, 45.0 MB/s, 3/9 tensors over verbs, in 20s\n"
		if b.String() != want {
			t.Errorf("got:\n%q\nwant:\n%q", b.String(), want)
		}
	})
}

func TestNothingToTell(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, "pull")
	p.update(0, 0)
	p.end()
	p.end()
	if b.Len() > 0 {
		t.Errorf("%q", b.String())
	}
}

// A name or a message of a peer stays one line that does nothing to a terminal, and in its column.
func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"a \"b\" \\ é \ufffd": "a \"b\" \\ é \ufffd", "a\x1b[31m\n": `a\x1b[31m\n`, "\u009b31m": `\u009b31m`, "a\x9b31mb": `a\x9b31mb`, "é\xff\xc3": `é\xff\xc3`,
	} {
		if got := printable(s); got != want {
			t.Errorf("printable(%q) = %q, want %q", s, got, want)
		}
	}
	var b strings.Builder
	if err := writeTable(&b, []string{"NAME", "VALUE"}, []string{"a\xff", "1"}, []string{"longer", "2"}); err != nil {
		t.Fatal(err)
	}
	if want := "NAME    VALUE\na\\xff   1\nlonger  2\n"; b.String() != want {
		t.Errorf("the table is %q, want %q", &b, want)
	}
}

func TestByteText(t *testing.T) {
	for n, want := range map[float64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 999.7: "1.0 kB", 1000: "1.0 kB", 99_900: "99.9 kB", 99_960: "100 kB",
		999_600: "1.0 MB", 548_090_880: "548 MB", 16.1e9: "16.1 GB", 5e18: "5000 PB",
	} {
		if got := byteText(n); got != want {
			t.Errorf("byteText(%v) = %q, want %q", n, got, want)
		}
	}
}
