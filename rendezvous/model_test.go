package rendezvous_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// model is what a Local does, in the simplest words: per key a list of values
// or a list of receives. Values are numbers that rise as they are sent.
type model struct {
	values   [modelKeys][]int
	receives [modelKeys][]int // numbers of receives
	ended    map[int]string   // receive to what it ended with
	over     string
}

const modelKeys = 2

func (m *model) put(k, n int, back bool) bool {
	switch {
	case m.over != "":
		return false
	case len(m.receives[k]) > 0:
		m.ended[m.receives[k][0]] = fmt.Sprint(n)
		m.receives[k] = m.receives[k][1:]
	case back:
		at, _ := slices.BinarySearch(m.values[k], n)
		m.values[k] = slices.Insert(m.values[k], at, n)
	default:
		m.values[k] = append(m.values[k], n)
	}
	return true
}

func (m *model) recv(k, id int) {
	switch {
	case m.over != "":
		m.ended[id] = m.over
	case len(m.values[k]) > 0:
		m.ended[id] = fmt.Sprint(m.values[k][0])
		m.values[k] = m.values[k][1:]
	default:
		m.receives[k] = append(m.receives[k], id)
	}
}

func (m *model) cancel(id int) {
	for k := range m.receives {
		if i := slices.Index(m.receives[k], id); i >= 0 {
			m.receives[k] = slices.Delete(m.receives[k], i, i+1)
			m.ended[id] = "cancelled"
		}
	}
}

func (m *model) abort(why string) {
	if m.over != "" {
		return
	}
	m.over = why
	for k := range m.receives {
		for _, id := range m.receives[k] {
			m.ended[id] = why
		}
		m.receives[k], m.values[k] = nil, nil
	}
}

// run does the operations on a Local and on the model and compares after each
// one what every receive ended with. It runs in a bubble, where Wait tells
// that a cancellation has had its effect.
//
// The low half of an operation says what, the high half where:
//
//	0-2 send   3 restore what was held   4-6 receive   7 receive without a
//	cancellable context   8 receive that blocks   9 receive what is there, and
//	hold it   10-13 cancel a receive   14 abort, if the high half is 15
//	15 receive, cancelled before
func run(t *testing.T, c *tensors, ops []byte) {
	l := rendezvous.NewLocal()
	m := model{ended: make(map[int]string)}
	keys := [modelKeys]rendezvous.Key{key(t, "a"), key(t, "b")}
	var cancels []context.CancelFunc // of each receive
	var held [modelKeys][]rendezvous.Value
	var heldAs [modelKeys][]int
	defer func() {
		for _, values := range held {
			for _, v := range values {
				v.Tensor.Release()
			}
		}
	}()

	var mu sync.Mutex
	ended := make(map[int]string)
	note := func(id int, v rendezvous.Value, err error) {
		mu.Lock()
		defer mu.Unlock()
		if _, twice := ended[id]; twice {
			t.Errorf("receive %d ended twice", id)
		}
		switch {
		case err == nil:
			ended[id] = fmt.Sprint(take(v))
		case errors.Is(err, context.Canceled):
			ended[id] = "cancelled"
		default:
			ended[id] = err.Error()
		}
	}
	recvAsync := func(ctx context.Context, k, id int) {
		m.recv(k, id)
		l.RecvAsync(ctx, keys[k], noArgs, func(v rendezvous.Value, _ rendezvous.Args, err error) { note(id, v, err) })
	}
	for n, op := range ops {
		where, id := int(op>>4), len(cancels)
		k := where % modelKeys
		switch op & 15 {
		case 0, 1, 2:
			if got, want := c.send(l, keys[k], n) == nil, m.put(k, n, false); got != want {
				t.Fatalf("op %d: Send succeeded: %v, want %v", n, got, want)
			}
		case 3:
			if len(held[k]) == 0 {
				break
			}
			i := where / modelKeys % len(held[k])
			v, number := held[k][i], heldAs[k][i]
			held[k], heldAs[k] = slices.Delete(held[k], i, i+1), slices.Delete(heldAs[k], i, i+1)
			if got, want := l.Restore(keys[k], v), m.put(k, number, true); got != want {
				t.Fatalf("op %d: Restore succeeded: %v, want %v", n, got, want)
			} else if !got {
				v.Tensor.Release()
			}
		case 4, 5, 6:
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			cancels = append(cancels, cancel)
			recvAsync(ctx, k, id)
		case 7:
			cancels = append(cancels, nil)
			recvAsync(context.Background(), k, id)
		case 9:
			if len(m.values[k]) == 0 {
				break
			}
			v, err := l.Recv(context.Background(), keys[k], noArgs)
			if err != nil {
				t.Fatalf("op %d: %v, want value %d", n, err, m.values[k][0])
			}
			held[k], heldAs[k] = append(held[k], v), append(heldAs[k], m.values[k][0])
			m.values[k] = m.values[k][1:]
		case 8:
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			cancels = append(cancels, cancel)
			m.recv(k, id)
			go func() {
				v, err := l.Recv(ctx, keys[k], noArgs)
				note(id, v, err)
			}()
		case 10, 11, 12, 13:
			if where < len(cancels) && cancels[where] != nil {
				cancels[where]()
				m.cancel(where)
			}
		case 14:
			if where == 15 {
				l.Abort(errBoom)
				m.abort(errBoom.Error())
			}
		case 15:
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if v, err := l.Recv(ctx, keys[k], noArgs); err == nil {
				t.Fatalf("op %d: a cancelled receive got %d", n, take(v))
			}
		}
		synctest.Wait()
		if !maps.Equal(ended, m.ended) {
			t.Fatalf("ops %v, after op %d: receives ended with %v, want %v", ops, n, ended, m.ended)
		}
	}
	l.Close()
	synctest.Wait()
	if len(ended) != len(cancels) {
		t.Fatalf("ops %v: %d of %d receives ended", ops, len(ended), len(cancels))
	}
	if n := c.alloc.Outstanding(); n != len(held[0])+len(held[1]) {
		t.Fatalf("ops %v: %d tensors were not released", ops, n)
	}
}

func FuzzLocal(f *testing.F) {
	f.Add([]byte{0, 4, 4, 0})
	f.Add([]byte{4, 4, 4, 7, 0x1a, 0x2a, 0, 0, 0, 3})
	f.Add([]byte{0, 1, 2, 3, 8, 8, 9, 0x10, 0x14, 0xfe, 4, 0, 3})
	f.Add([]byte{8, 8, 0x0a, 0xfe, 8})
	f.Add([]byte{0, 0, 0, 9, 9, 9, 0x23, 0, 3, 3, 4, 4, 4, 4})
	f.Add([]byte{0, 0, 9, 4, 9, 3, 4, 9, 3, 0xfe})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 64 {
			return
		}
		synctest.Test(t, func(t *testing.T) { run(t, counted(t), ops) })
	})
}

// Every sequence of four of these operations on one key: send, hold, restore, the
// three kinds of receive, a cancellation of the first or second one, abort.
func TestAllShortSequences(t *testing.T) {
	alphabet := []byte{0, 9, 3, 4, 7, 8, 0x0a, 0x1a, 0xfe}
	synctest.Test(t, func(t *testing.T) {
		const length = 4
		c := counted(t)
		var ops [length]byte
		var all func(i int)
		all = func(i int) {
			if i == length {
				run(t, c, ops[:])
				return
			}
			for _, op := range alphabet {
				ops[i] = op
				all(i + 1)
			}
		}
		all(0)
	})
}
