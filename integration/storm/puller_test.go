//go:build linux

package storm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// publication is the name under which each task publishes the same file.
const publication = "model"

// modelSizes are the sizes of the tensors of the file in bytes.
var modelSizes = []int{0, 7, 100, eagerLimit, 64 << 10, unaryLimit + 1, 1 << 20, 3 << 20}

// pullPause is the pause between two pulls.
const pullPause = 100 * time.Millisecond

// writeModel writes the file.
func writeModel(path string, seed uint64) error {
	var specs []safetensors.Spec
	for i, n := range modelSizes {
		specs = append(specs, safetensors.Spec{Name: modelTensor(i), DType: tensor.Uint8, Shape: tensor.Vector(n)})
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := safetensors.NewWriter(f, specs, nil)
	if err != nil {
		return err
	}
	for i, n := range modelSizes {
		t, err := tensor.FromBytes(tensor.Uint8, tensor.Vector(n), modelContent(seed, i))
		if err != nil {
			return err
		}
		err = w.Write(modelTensor(i), t)
		t.Release()
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func modelTensor(i int) string { return fmt.Sprintf("t%d", i) }

func modelContent(seed uint64, i int) []byte {
	b := make([]byte, modelSizes[i])
	fill(b, mix(seed, uint64(i))) //nolint:gosec // only hashed
	return b
}

// runPuller pulls from one task after the other: in turns into memory, and into a file, where it
// goes on with what a life that was killed has left.
func (n *node) runPuller() {
	n.pulls = make(map[string][]byte)
	for i := range modelSizes {
		n.pulls[modelTensor(i)] = modelContent(n.Seed, i)
	}
	n.answer(answer{Op: opUp})
	leave := make(chan struct{})
	go func() {
		in := json.NewDecoder(os.Stdin)
		if c := (command{}); in.Decode(&c) != nil {
			os.Exit(exitAlone)
		}
		close(leave)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the test has read the answer
	}()
	for i := n.Life; ; i++ {
		select {
		case <-leave:
			n.log.write(record{Kind: kindLeave})
			n.answer(answer{Op: opClose})
			select {}
		case <-time.After(pullPause):
		}
		n.pullFrom(i%tasks, i/tasks%2 == 0)
	}
}

// pullFrom makes one pull and logs how it ended.
func (n *node) pullFrom(task int, memory bool) {
	r := record{Kind: kindPull, Peer: task, Recv: n.recvs.Add(1), Text: "into a file"}
	if memory {
		r.Text = "into memory"
	}
	n.log.write(r)
	err := n.pull(task, memory)
	r.Kind = kindHas
	if err != nil {
		r.Code, r.Text = status.CodeOf(err).String(), err.Error()
	}
	n.log.write(r)
}

func (n *node) pull(task int, memory bool) error {
	c, err := server.Dial(n.ctx, n.config().ForClient(), n.Cluster[task], n.options())
	if err != nil {
		return fmt.Errorf("dial: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(n.ctx, time.Second)
		defer cancel()
		_ = c.Close(ctx) // acknowledgements may be cut off
	}()
	req := checkpoint.PullRequest{Publication: publication}
	if !memory {
		return n.save(c.Puller(), req)
	}
	came := 0
	for t, err := range c.Puller().Pull(n.ctx, req) {
		if err != nil {
			return err
		}
		came++
		same := bytes.Equal(t.Bytes(), n.pulls[t.Name()])
		name := t.Name()
		t.Release()
		if !same {
			return status.Errorf(status.Internal, "tensor %s has another content", name)
		}
	}
	if came != len(modelSizes) {
		return status.Errorf(status.Internal, "%d tensors came, want %d", came, len(modelSizes))
	}
	return nil
}

// save pulls into a file. The next life of this process finds the same name.
func (n *node) save(p *checkpoint.Puller, req checkpoint.PullRequest) error {
	out := filepath.Join(n.Dir, "pulled.safetensors")
	if _, err := p.Save(n.ctx, req, checkpoint.SaveOptions{Out: out, Force: true}); err != nil {
		return err
	}
	got, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	want, err := os.ReadFile(n.Model)
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return status.New(status.Internal, "the file that was pulled has another content")
	}
	return os.Remove(out)
}
