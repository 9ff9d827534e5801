package roce

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// slowToClose is a host whose receiving sockets close only when gate is closed.
type slowToClose struct {
	*memoryHost
	gate chan struct{}
}

type slowReceiver struct {
	receiver
	gate chan struct{}
}

func (h slowToClose) listen(addr netip.Addr) (receiver, error) {
	r, err := h.memoryHost.listen(addr)
	return slowReceiver{r, h.gate}, err
}

func (r slowReceiver) Close() error {
	<-r.gate
	return r.receiver.Close()
}

// TestEndpointOpensAfterItsClose: a device that is opened while the last one on its
// address is being closed gets the same port, which is that of RoCE: kernels send to no
// other.
func TestEndpointOpensAfterItsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := slowToClose{newFabric().host(hostA), make(chan struct{})}
		p := newProvider(Options{}, h)
		// open creates a queue pair in INIT, and returns its port and a function that
		// closes everything.
		open := func() (port uint16, end func()) {
			d := must(p.Open("roce-eth0"))(t)
			pd := must(d.AllocPD())(t)
			c := must(d.CreateCQ(verbs.CQConfig{Size: 1}))(t)
			q := must(pd.CreateQP(verbs.QPConfig{SendCQ: c, RecvCQ: c}))(t)
			if err := q.ToInit(verbs.InitAttr{Port: onlyPort}); err != nil {
				t.Error(err)
			}
			return q.Endpoint().UDP.Port, func() {
				for _, o := range []interface{ Close() error }{q, c, pd, d} {
					if err := o.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		}
		_, end := open()
		go end()
		synctest.Wait()
		var port uint16
		var endSecond func()
		go func() { port, endSecond = open() }()
		synctest.Wait()
		close(h.gate)
		synctest.Wait()
		if port != rocewire.Port {
			t.Errorf("the port is %d", port)
		}
		endSecond()
	})
}
