package delta

import (
	"math"
	"testing"
	"time"
)

func TestChooseTakesWhatIsThereFirst(t *testing.T) {
	whole, sparse, xor := Cost{Bytes: 1000}, Cost{Bytes: 20, Work: 4 * time.Second}, Cost{Bytes: 10, Work: 5 * time.Second}
	for rate, want := range map[float64]int{
		1e9: 0, 1000: 0, // the whole takes a second
		200: 1, // 5 s; 4.1 s; 5.05 s
		5:   2, // 200 s; 8 s; 7 s
		0:   2, math.NaN(): 2, -1: 2,
	} {
		if got := Choose(rate, whole, sparse, xor); got != want {
			t.Errorf("at %v B/s the way is %d, want %d", rate, got, want)
		}
	}
	if got := Choose(100, whole, whole); got != 0 {
		t.Errorf("of two equal ways the second is chosen: %d", got)
	}
	if got := Choose(100, sparse.Add(xor), whole); got != 0 {
		t.Errorf("a chain of 30 bytes and 9 s is not chosen over 10 s: %d", got)
	}
}

func TestMethodByRate(t *testing.T) {
	r := seeded(20)
	old := random(r, 4<<20)
	sparse := Look(old, change(r, old, 2, 0.01, ulps), 2)
	all := change(r, old, 2, 1, lowBits)
	dense := Look(old, all, 2)
	same := Look(old, old, 2)
	for _, tt := range []struct {
		rate                float64
		sparse, dense, same Method
	}{
		{0, Sparse, XOR, Nothing},
		{10e6, Sparse, XOR, Nothing}, // 80 Mbit/s
		{125e6, Sparse, XOR, Nothing},
		{1.2e9, Sparse, Whole, Nothing},
		{8e9, Whole, Whole, Whole}, // shared memory
	} {
		if a, b, c := sparse.Choose(tt.rate), dense.Choose(tt.rate), same.Choose(tt.rate); a != tt.sparse || b != tt.dense || c != tt.same {
			t.Errorf("at %v B/s: %v, %v and %v; want %v, %v and %v", tt.rate, a, b, c, tt.sparse, tt.dense, tt.same)
		}
		if _, made := newEncoder(t).Encode(nil, pairOf(old, all, 2), tt.rate); made.Method != tt.dense {
			t.Errorf("at %v B/s Encode takes %v, want %v", tt.rate, made.Method, tt.dense)
		}
	}
}

func TestDataThatDoesNotCompressIsTakenWhole(t *testing.T) {
	for _, n := range []int{1, 100, 5000, 3 << 20} {
		old, new := random(seeded(21), n), random(seeded(22), n)
		for _, unit := range []int{1, 2, 4, 8} {
			if got := Look(old, new, unit).Choose(0); n >= 5000 && got != Whole {
				t.Errorf("%d random bytes of unit %d: a look chooses %v", n, unit, got)
			}
			if _, made := newEncoder(t).Encode(nil, pairOf(old, new, unit), 0); made.Method != Whole {
				t.Errorf("%d random bytes of unit %d take %v", n, unit, made.Method)
			}
		}
	}
}

func TestTheFastestRoutesNeedNoLook(t *testing.T) {
	if Pays(1<<30, 8e9) || !Pays(1<<30, 1e9) || !Pays(1<<30, 0) {
		t.Error("over 8 GB/s a delta may pay, or over 1 GB/s it may not")
	}
	p := Pair{Old: make([]byte, 1<<20), New: make([]byte, 1<<20), Unit: 2}
	if _, made := newEncoder(t).Encode(nil, p, 8e9); made.Method != Whole {
		t.Errorf("over 8 GB/s a tensor takes %v", made.Method)
	}
}

func TestALookReadsLittle(t *testing.T) {
	r := seeded(23)
	for _, n := range []int{0, 7, 100, 4 << 10, 1 << 20, 64 << 20} {
		old := make([]byte, n)
		s := Look(old, old, 4)
		if read := 4 * s.elements; read > max(n/sampleShare, 2*minSample) || read > n || n >= 100 && read < min(n, minSample)*9/10 {
			t.Errorf("of %d bytes %d are read", n, read)
		}
	}
	old := random(r, 32<<20)
	new := change(r, old, 2, 0.03, ulps)
	guess := Look(old, new, 2).Summary()
	_, made := newEncoder(t).Encode(nil, pairOf(old, new, 2), 0)
	if float64(guess.Bytes) < 0.7*float64(made.Bytes) || float64(guess.Bytes) > 1.8*float64(made.Bytes) {
		t.Errorf("a look guesses %d bytes, it is %d", guess.Bytes, made.Bytes)
	}
}

func TestEncoderKeepsItsLimit(t *testing.T) {
	r := seeded(5)
	old := random(r, 1<<20)
	new := change(r, old, 2, 0.1, lowBits)
	e := newEncoder(t)
	out, whole := e.Encode(nil, pairOf(old, new, 2), 0)
	if whole.Method != Sparse {
		t.Fatalf("%+v", whole)
	}
	e.Limit = int64(len(out))
	if _, s := e.Encode(nil, pairOf(old, new, 2), 0); s.Method != Sparse {
		t.Errorf("at its limit: %+v", s)
	}
	e.Limit = int64(len(out)) / 2
	if out, s := e.Encode(nil, pairOf(old, new, 2), 0); s.Method != Whole || len(out) != 0 {
		t.Errorf("beyond its limit: %+v", s)
	}
	e.Limit = 0
	blocks := 0
	e.Stop = func() bool { blocks++; return blocks > 2 }
	if out, s := e.Encode(nil, pairOf(old, new, 2), 0); s.Method != Whole || len(out) != 0 || blocks != 3 {
		t.Errorf("after %d blocks: %+v", blocks, s)
	}
}
