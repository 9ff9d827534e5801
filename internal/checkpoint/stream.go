package checkpoint

import (
	"context"
	"io"
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Stream pulls tensors and writes the file that they make to w, from its beginning to its end.
// The tensors must be of one file of the publication, or published from memory; otherwise Stream
// returns InvalidArgument before it writes anything. If all tensors of the file are pulled, the
// same bytes are written. Each tensor is checked before it is written. After an error what was
// written is a part of the file.
func (p *Puller) Stream(ctx context.Context, req PullRequest, w io.Writer) (*Summary, error) {
	pl, err := p.start(ctx, req)
	if err != nil {
		return nil, err
	}
	out, err := pl.manifest.streamOutput(pl.chosen)
	if err != nil {
		return nil, err
	}
	if pl.req.Summary == nil {
		pl.req.Summary = new(Summary)
	}
	if _, err := w.Write(out.head); err != nil {
		return nil, wrap("writing", err)
	}
	var failure error // of a write
	err = pl.each(ctx, func(t *tensor.Tensor) bool {
		defer t.Release()
		if err := out.stream(w, t); err != nil {
			failure = wrap("writing tensor "+quote(t.Name()), err)
		}
		return failure == nil
	})
	if failure != nil {
		return nil, failure
	}
	if err != nil {
		return nil, err
	}
	return pl.req.Summary, nil
}

// stream writes the next tensor of a file.
func (o *output) stream(w io.Writer, t *tensor.Tensor) error {
	if o.head == nil || o.array != nil {
		return o.encode(w, t)
	}
	_, err := w.Write(t.Bytes())
	return err
}

// streamOutput plans the only file of the chosen tensors. Its tensors are in the order of the
// manifest, in which they are pulled.
func (m *Manifest) streamOutput(chosen []int) (*output, error) {
	const path = "stdout"
	if len(m.Files) == 0 {
		return m.newOutput(path, chosen, nil)
	}
	files := make([]int, 0, len(chosen))
	for _, i := range chosen {
		files = append(files, m.Entries[i].File)
	}
	if files = slices.Compact(slices.Sorted(slices.Values(files))); len(chosen) == 0 {
		for i, f := range m.Files {
			if f.Format != FormatIndex {
				files = append(files, i)
			}
		}
	}
	if len(files) != 1 {
		return nil, status.Errorf(status.InvalidArgument,
			"publication %s has these tensors in %d files, and one can be written to a stream: pull them into a directory, or choose tensors of one file",
			quote(m.Name), len(files))
	}
	if f := m.Files[files[0]]; f.Format == FormatNPY {
		if len(chosen) != 1 {
			return nil, status.Errorf(status.Internal, "the server says that %s holds %d tensors; an .npy file holds one", quote(f.Name), len(chosen))
		}
		return m.npyOutput(path, chosen[0])
	}
	return m.fileOutput(path, files[0], chosen)
}
