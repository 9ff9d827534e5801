package rendezvous_test

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
)

const mnist = "/job:mnist/replica:1/task:2/CPU:0;0000000000001ed2;/job:mnist/replica:1/task:2/device:GPU:0;var0;0:0"

func TestR1KeyText(t *testing.T) {
	got := rendezvous.CreateKey(ps, 0xfedcba9876543210, gpu, "edge_5_MatMul", rendezvous.FrameIter{Frame: 1<<64 - 1, Iter: -1})
	want := ps + ";fedcba9876543210;" + gpu + ";edge_5_MatMul;18446744073709551615:-1"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestR1bKeyTextWithLegacyDevice(t *testing.T) {
	got := rendezvous.CreateKey("/job:mnist/replica:1/task:2/CPU:0", 7890,
		"/job:mnist/replica:1/task:2/device:GPU:0", "var0", rendezvous.FrameIter{})
	if got != mnist {
		t.Errorf("got  %s\nwant %s", got, mnist)
	}
}

func TestR2ParseKey(t *testing.T) {
	k, err := rendezvous.ParseKey(mnist)
	if err != nil {
		t.Fatal(err)
	}
	task := cluster.Task{Job: "mnist", Replica: 1, Index: 2}
	if want := (cluster.Device{Task: task, Type: "CPU"}); k.Src() != want {
		t.Errorf("source %v", k.Src())
	}
	if want := (cluster.Device{Task: task, Type: "GPU"}); k.Dst() != want {
		t.Errorf("destination %v", k.Dst())
	}
	if k.SrcIncarnation() != 7890 || k.Edge() != "var0" || k.FrameIter() != (rendezvous.FrameIter{}) || k.SrcEmpty() {
		t.Errorf("parsed %d, %q, %v, %v", k.SrcIncarnation(), k.Edge(), k.FrameIter(), k.SrcEmpty())
	}
	if k.String() != mnist {
		t.Errorf("the text became %s", k)
	}
	again, err := rendezvous.ParseKey(strings.Clone(mnist))
	if err != nil || again != k {
		t.Error("two keys of one text differ")
	}
	if n := testing.AllocsPerRun(100, func() { k, err = rendezvous.ParseKey(mnist) }); n != 0 {
		t.Errorf("parsing allocates %v times", n)
	}

	loop, err := rendezvous.ParseKey(rendezvous.CreateKey(ps, 1, gpu, "x", rendezvous.FrameIter{Frame: 1<<64 - 1, Iter: -1}))
	if err != nil || loop.FrameIter() != (rendezvous.FrameIter{Frame: 1<<64 - 1, Iter: -1}) {
		t.Errorf("frame and iteration %v, %v", loop.FrameIter(), err)
	}
}

func TestR2EmptySourceIsTheHostThatIsAsked(t *testing.T) {
	k, err := rendezvous.ParseKey(rendezvous.CreateKey("", 0, ps, "x", rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	if !k.SrcEmpty() || k.Src() != (cluster.Device{}) {
		t.Errorf("source %v", k.Src())
	}
}

func TestNewKey(t *testing.T) {
	k, err := rendezvous.NewKey(device(t, ps), 7, device(t, gpu), "x", rendezvous.FrameIter{Frame: 2, Iter: 3})
	if err != nil || k.String() != ps+";0000000000000007;"+gpu+";x;2:3" {
		t.Errorf("%v, %v", k, err)
	}
	if _, err := rendezvous.NewKey(device(t, ps), 7, device(t, gpu), "a;b", rendezvous.FrameIter{}); err == nil {
		t.Error("a name with a semicolon was taken")
	}
}

func TestR3InvalidKeys(t *testing.T) {
	const inc = "0000000000001ed2"
	for name, c := range map[string]struct{ key, why string }{
		"words":                {"foo;bar;baz", "3 parts"},
		"empty":                {"", "1 parts"},
		"missing parts":        {ps + ";" + gpu + ";", "incarnation"},
		"two parts":            {ps + ";" + inc, "2 parts"},
		"twice":                {mnist + ";" + mnist, "more than 5 parts"},
		"trailing semicolon":   {mnist + ";", "more than 5 parts"},
		"source in part":       {"/job:ps/task:0/CPU:0;" + inc + ";" + ps + ";x;0:0", "source"},
		"no destination":       {ps + ";" + inc + ";;x;0:0", "destination"},
		"destination wildcard": {ps + ";" + inc + ";/job:ps/replica:0/task:*/CPU:0;x;0:0", "destination"},
		"no incarnation":       {ps + ";;" + ps + ";x;0:0", "incarnation"},
		"long incarnation":     {ps + ";00000000000001ed2;" + ps + ";x;0:0", "incarnation"},
		"underscore":           {ps + ";000000000000_1ed2;" + ps + ";x;0:0", "incarnation"},
		"signed incarnation":   {ps + ";+000000000001ed2;" + ps + ";x;0:0", "incarnation"},
		"not hexadecimal":      {ps + ";000000000000123g;" + ps + ";x;0:0", "incarnation"},
		"no name":              {ps + ";" + inc + ";" + ps + ";;0:0", "name"},
		"no frame":             {ps + ";" + inc + ";" + ps + ";x;", "frame:iter"},
		"no iteration":         {ps + ";" + inc + ";" + ps + ";x;0:", "frame:iter"},
		"one number":           {ps + ";" + inc + ";" + ps + ";x;0", "frame:iter"},
		"leading zero":         {ps + ";" + inc + ";" + ps + ";x;00:0", "frame:iter"},
		"signed frame":         {ps + ";" + inc + ";" + ps + ";x;-1:0", "frame:iter"},
		"plus":                 {ps + ";" + inc + ";" + ps + ";x;0:+1", "frame:iter"},
		"minus zero":           {ps + ";" + inc + ";" + ps + ";x;0:-0", "frame:iter"},
		"frame too large":      {ps + ";" + inc + ";" + ps + ";x;18446744073709551616:0", "frame:iter"},
		"iteration too large":  {ps + ";" + inc + ";" + ps + ";x;0:9223372036854775808", "frame:iter"},
		"very long":            {strings.Repeat("x", 1<<20), "1 parts"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rendezvous.ParseKey(c.key)
			mustBe(t, err, status.InvalidArgument, "Invalid  rendezvous key: "+c.key[:min(len(c.key), 500)])
			mustBe(t, err, status.InvalidArgument, c.why)
			if len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestIncarnationOfAnyForm: TensorFlow takes an incarnation with upper-case digits, and one of
// fewer digits. It names the same value as the usual form.
func TestIncarnationOfAnyForm(t *testing.T) {
	want, err := rendezvous.ParseKey(ps + ";000000000000abcd;" + gpu + ";x;0:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, incarnation := range []string{"000000000000ABCD", "000000000000aBcD", "abcd", "ABCD", "0abcd"} {
		k, err := rendezvous.ParseKey(ps + ";" + incarnation + ";" + gpu + ";x;0:0")
		if err != nil || k != want || k.String() != want.String() {
			t.Errorf("%s: got %v, %v, want %v", incarnation, k, err, want)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{
		mnist, mnist + ";", "", ";;;;", "foo;bar;baz",
		";0000000000000000;" + ps + ";x;0:0",
		rendezvous.CreateKey(ps, 1<<64-1, gpu, "edge_1_\xff", rendezvous.FrameIter{Frame: 1<<64 - 1, Iter: -1 << 63}),
		ps + ";0000000000001ED2;" + ps + ";x;0:0",
		ps + ";0000000000001ed2;" + ps + ";x;007:+1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := rendezvous.ParseKey(s)
		if err != nil {
			if status.CodeOf(err) != status.InvalidArgument {
				t.Fatalf("refused with %v", err)
			}
			if k != (rendezvous.Key{}) {
				t.Fatal("an error and a key")
			}
			return
		}
		parts := strings.Split(s, ";")
		got := rendezvous.CreateKey(parts[0], k.SrcIncarnation(), parts[2], k.Edge(), k.FrameIter())
		parts[1] = strings.Repeat("0", 16-len(parts[1])) + strings.ToLower(parts[1])
		if want := strings.Join(parts, ";"); got != want || k.String() != want {
			t.Fatalf("parsed %q, which is created as %q and shown as %q, want %q", s, got, k, want)
		}
		if k.SrcEmpty() != (parts[0] == "") {
			t.Fatalf("SrcEmpty is %v", k.SrcEmpty())
		}
		src := ""
		if !k.SrcEmpty() {
			src = k.Src().String()
		}
		same, err := rendezvous.ParseKey(rendezvous.CreateKey(src, k.SrcIncarnation(), k.Dst().String(), k.Edge(), k.FrameIter()))
		if err != nil || same.Src() != k.Src() || same.Dst() != k.Dst() {
			t.Fatalf("the parts of %q make another key: %v, %v", s, same, err)
		}
	})
}

// TestDescribe: errors and logs name the edge and where it leads, never the text of the key.
func TestDescribe(t *testing.T) {
	const task = "/job:ps/replica:0/task:"
	for text, want := range map[string]string{
		rendezvous.CreateKey(ps, 7, ps1, "x", rendezvous.FrameIter{}):                     `edge "x" from ` + task + "0 to " + task + "1",
		rendezvous.CreateKey(gpu, 7, ps1, "x", rendezvous.FrameIter{}):                    `edge "x" from ` + gpu + " to " + task + "1",
		rendezvous.CreateKey("", 7, ps1, "x", rendezvous.FrameIter{}):                     `edge "x" to ` + task + "1",
		rendezvous.CreateKey(ps, 7, ps1, "a\n\"b", rendezvous.FrameIter{Frame: 3}):        `edge "a\n\"b" from ` + task + "0 to " + task + "1 in frame 3, iteration 0",
		rendezvous.CreateKey(ps, 7, ps1, "x", rendezvous.FrameIter{Iter: -2}):             `edge "x" from ` + task + "0 to " + task + "1 in frame 0, iteration -2",
		rendezvous.CreateKey(ps, 7, ps, strings.Repeat("x", 600), rendezvous.FrameIter{}): `edge "` + strings.Repeat("x", 512) + `"... from ` + task + "0 to " + task + "0",
	} {
		k, err := rendezvous.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := k.Describe(); got != want {
			t.Errorf("%s\nis described as %s\nwant            %s", text, got, want)
		}
	}
}

// TestNewKeyRefusesNames: the error names the edge, not the text that cannot be a key.
func TestNewKeyRefusesNames(t *testing.T) {
	from, to := key(t, "a").Src(), between(t, ps, ps1, "a").Dst()
	for name, text := range map[string]string{
		"":    "the edge name is empty",
		"a;b": `edge "a;b" from /job:ps/replica:0/task:0 to /job:ps/replica:0/task:1: the name has a semicolon`,
	} {
		_, err := rendezvous.NewKey(from, 7, to, name, rendezvous.FrameIter{})
		mustBe(t, err, status.InvalidArgument, text)
	}
}
