package tryst_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// counting is a provider around another one. It counts the queue pairs that are made.
type counting struct {
	verbs.Provider
	made *atomic.Int64
}

func (c counting) Open(name string) (verbs.Device, error) {
	d, err := c.Provider.Open(name)
	return countingDevice{d, c.made}, err
}

type countingDevice struct {
	verbs.Device
	made *atomic.Int64
}

func (d countingDevice) AllocPD() (verbs.PD, error) {
	pd, err := d.Device.AllocPD()
	return countingPD{pd, d.made}, err
}

type countingPD struct {
	verbs.PD
	made *atomic.Int64
}

func (p countingPD) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	p.made.Add(1)
	return p.PD.CreateQP(c)
}

// A program passes its own provider of RDMA devices, or a wrapper.
func ExampleWithProvider() {
	ctx := context.Background()
	made := new(atomic.Int64)
	tasks := startVerbs(ctx, tryst.WithProvider(counting{roce.New(roce.Options{}), made}))
	defer tasks.close(ctx)
	sendOne(tasks.a, "/job:worker/task:1")
	v, err := tasks.b.Step(1).Recv(ctx, "/job:worker/task:0", "x")
	if err != nil {
		log.Fatal(err)
	}
	v.Tensor.Release()
	fmt.Println(v.Transport, "queue pairs were made:", made.Load() >= 2)
	// Output: verbs queue pairs were made: true
}
