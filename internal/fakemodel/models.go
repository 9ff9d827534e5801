package fakemodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// Default is the default of Options.Model.
const Default = "gpt2"

// Model is the layout of a known model's checkpoint: the names, types and shapes of its tensors,
// without the weights.
type Model struct {
	Name string
	// Shards is the number of files of the original.
	Shards int
	// Specs are the tensors in the order of safetensors.Sort.
	Specs []safetensors.Spec
	// Bytes is the sum of the tensors' content.
	Bytes int64
}

// Models returns the models that Generate knows, the smallest first.
func Models() []Model {
	models := []Model{
		newModel("tiny", 1, tiny()),
		newModel("gpt2", 1, gpt2(12, 768)),
		newModel("gpt2-medium", 1, gpt2(24, 1024)),
		newModel("gpt2-large", 1, gpt2(36, 1280)),
		newModel("gpt2-xl", 1, gpt2(48, 1600)),
		newModel("llama-3.2-1b", 1, llama(llamaShape{vocab: 128256, layers: 16, hidden: 2048, keys: 512, inner: 8192, tied: true})),
		newModel("llama-3.1-8b", 4, llama(llamaShape{vocab: 128256, layers: 32, hidden: 4096, keys: 1024, inner: 14336})),
	}
	slices.SortStableFunc(models, func(a, b Model) int { return cmp.Compare(a.Bytes, b.Bytes) })
	return models
}

// model returns the model of a name; Default for an empty name.
func model(name string) (Model, error) {
	if name == "" {
		name = Default
	}
	var known []string
	for _, m := range Models() {
		if m.Name == name {
			return m, nil
		}
		known = append(known, m.Name)
	}
	return Model{}, status.Errorf(status.InvalidArgument, "unknown model %q; known are %s", name, strings.Join(known, ", "))
}

func newModel(name string, shards int, specs []safetensors.Spec) Model {
	safetensors.Sort(specs)
	m := Model{Name: name, Shards: shards, Specs: specs}
	for _, s := range specs {
		m.Bytes += s.Shape.Elements() * int64(s.DType.Size())
	}
	return m
}

// specList collects tensors of one type.
type specList struct {
	dtype tensor.DType
	specs []safetensors.Spec
}

// add adds a tensor. Its shape must be valid.
func (l *specList) add(name string, dims ...int64) {
	shape, _ := tensor.NewShape(dims...)
	l.specs = append(l.specs, safetensors.Spec{Name: name, DType: l.dtype, Shape: shape})
}

// gpt2 is the layout of openai-community/gpt2 on Hugging Face, and of its larger variants with
// other numbers of layers and widths: model.safetensors with F32 weights and the causal masks
// (attn.bias).
func gpt2(layers int, width int64) []safetensors.Spec {
	const vocab, context = 50257, 1024
	l := specList{dtype: tensor.Float32}
	l.add("wte.weight", vocab, width)
	l.add("wpe.weight", context, width)
	for n := range layers {
		h := fmt.Sprintf("h.%d.", n)
		l.add(h+"ln_1.weight", width)
		l.add(h+"ln_1.bias", width)
		l.add(h+"attn.bias", 1, 1, context, context)
		l.add(h+"attn.c_attn.weight", width, 3*width)
		l.add(h+"attn.c_attn.bias", 3*width)
		l.add(h+"attn.c_proj.weight", width, width)
		l.add(h+"attn.c_proj.bias", width)
		l.add(h+"ln_2.weight", width)
		l.add(h+"ln_2.bias", width)
		l.add(h+"mlp.c_fc.weight", width, 4*width)
		l.add(h+"mlp.c_fc.bias", 4*width)
		l.add(h+"mlp.c_proj.weight", 4*width, width)
		l.add(h+"mlp.c_proj.bias", width)
	}
	l.add("ln_f.weight", width)
	l.add("ln_f.bias", width)
	return l.specs
}

// llamaShape has the parameters of a model of the Llama family.
type llamaShape struct {
	vocab, hidden int64
	keys          int64 // width of keys and values, of all their heads
	inner         int64 // width within the feed-forward layer
	layers        int
	tied          bool // the output layer is the embedding
}

// llama is the layout of Llama's checkpoints on Hugging Face, in BF16.
func llama(s llamaShape) []safetensors.Spec {
	l := specList{dtype: tensor.BFloat16}
	l.add("model.embed_tokens.weight", s.vocab, s.hidden)
	for n := range s.layers {
		h := fmt.Sprintf("model.layers.%d.", n)
		l.add(h+"input_layernorm.weight", s.hidden)
		l.add(h+"self_attn.q_proj.weight", s.hidden, s.hidden)
		l.add(h+"self_attn.k_proj.weight", s.keys, s.hidden)
		l.add(h+"self_attn.v_proj.weight", s.keys, s.hidden)
		l.add(h+"self_attn.o_proj.weight", s.hidden, s.hidden)
		l.add(h+"post_attention_layernorm.weight", s.hidden)
		l.add(h+"mlp.gate_proj.weight", s.inner, s.hidden)
		l.add(h+"mlp.up_proj.weight", s.inner, s.hidden)
		l.add(h+"mlp.down_proj.weight", s.hidden, s.inner)
	}
	l.add("model.norm.weight", s.hidden)
	if !s.tied {
		l.add("lm_head.weight", s.vocab, s.hidden)
	}
	return l.specs
}

// tiny is for tests: a matrix, a scalar and an empty tensor of every type that safetensors and
// package tensor have, in all some hundred kilobytes.
func tiny() []safetensors.Spec {
	var l specList
	for d := tensor.Invalid + 1; d.Valid(); d++ {
		if !safetensors.Supported(d) {
			continue
		}
		l.dtype = d
		l.add(d.String()+".matrix", 37, 113)
		l.add(d.String() + ".scalar")
		l.add(d.String()+".empty", 5, 0)
	}
	return l.specs
}
