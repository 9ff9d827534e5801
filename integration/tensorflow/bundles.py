"""Writes and reads checkpoints with TensorFlow, for the tests of tensorflow/ops/internal/bundle.

    python integration/tensorflow/bundles.py write DIRECTORY    the checkpoints of that package's testdata
    python integration/tensorflow/bundles.py check DIRECTORY    reads what Go wrote there, and ends with 1 if it is wrong
    python integration/tensorflow/bundles.py large DIRECTORY    one with an index of several blocks

The tensors follow from their types and shapes: see contents in bundle_test.go.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

raw = tf.raw_ops
TYPES = [tf.float32, tf.float64, tf.int32, tf.uint8, tf.int16, tf.int8, tf.string, tf.complex64, tf.int64, tf.bool, tf.qint8, tf.quint8,
         tf.qint32, tf.bfloat16, tf.qint16, tf.quint16, tf.uint16, tf.complex128, tf.float16, tf.uint32, tf.uint64]
SHAPES = [[], [3], [2, 0, 4], [2, 3, 4]]
# Type, shape of the whole, and the parts of variables in parts.
PARTS = [
    (tf.float32, [10, 4], ["0,3:-", "3,6:-", "9,1:-"]),
    (tf.int64, [3, 5], ["-:0,2", "-:2,3"]),
    (tf.float64, [4, 4], ["0,2:0,2", "0,2:2,2", "2,2:0,2", "2,2:2,2"]),
]
LARGE = 4000


def content(dtype, shape):
    n = int(np.prod(shape, dtype=np.int64))
    if dtype == tf.string:
        return np.array([b"%d" % i * (i * i % 301) for i in range(n)], dtype=object).reshape(shape)
    if dtype == tf.bool:
        return (np.arange(n) % 3 == 1).reshape(shape)
    size = n * dtype.size
    return ((7 * np.arange(size) + 3) % 120).astype(np.uint8).view(storage(dtype)).reshape(shape)


def storage(dtype):
    """The type of numpy that has as many bytes; those of TensorFlow are made of it by bitcast."""
    return {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}[dtype.size]


def tensor(dtype, values):
    if dtype in (tf.string, tf.bool):
        return tf.constant(values, dtype)
    if dtype == tf.complex128:
        return tf.constant(values)
    x = tf.constant(values)
    return x if x.dtype == dtype else tf.bitcast(x, dtype)


def cut(values, part):
    index = []
    for x in part.split(":"):
        start, length = (0, None) if x == "-" else map(int, x.split(","))
        index.append(slice(start, None if length is None else start + length))
    return values[tuple(index)]


def whole_tensors():
    return [(f"{d.name}{s}".replace(" ", ""), d, s) for d in TYPES for s in SHAPES]


def parts_of(values):
    for i, (dtype, shape, parts) in enumerate(values):
        for part in parts:
            yield f"parts/{i}", " ".join(map(str, shape)) + " " + part, tensor(dtype, cut(content(dtype, shape), part))


def save(prefix, names, specs, tensors):
    raw.SaveV2(prefix=prefix, tensor_names=names, shape_and_slices=specs, tensors=tensors)


def write(directory):
    w = whole_tensors()
    save(f"{directory}/whole", [n for n, _, _ in w], [""] * len(w), [tensor(d, content(d, s)) for _, d, s in w])
    names, specs, tensors = zip(*parts_of(PARTS))
    save(f"{directory}/parts", names, specs, tensors)
    for i in range(2):  # two tasks, each with some parts
        save(f"{directory}/temp/part-{i}", [*names[i::2], f"own{i}"], [*specs[i::2], ""], [*tensors[i::2], tf.constant(i)])
    raw.MergeV2Checkpoints(checkpoint_prefixes=[f"{directory}/temp/part-{i}" for i in range(2)], destination_prefix=f"{directory}/merged",
                           delete_old_dirs=True)


def large_name(i):
    return f"a/scope/of/some/length/variable_{i * 7919 % LARGE}/" + "x" * (i % 173)


def large(directory):
    save(f"{directory}/large", [large_name(i) for i in range(LARGE)], [""] * LARGE, [tf.constant(i) for i in range(LARGE)])


def restore(prefix, name, dtype, spec=""):
    return raw.RestoreV2(prefix=prefix, tensor_names=[name], shape_and_slices=[spec], dtypes=[dtype])[0]


def same(what, got, dtype, want):
    want = tensor(dtype, want)
    if got.dtype != dtype or got.shape != want.shape:
        sys.exit(f"{what}: {got.dtype.name}{got.shape}, want {dtype.name}{want.shape}")
    if dtype == tf.string:
        equal = np.array_equal(got.numpy(), want.numpy())
    else:
        equal = got.numpy().tobytes() == want.numpy().tobytes()
    if not equal:
        sys.exit(f"{what}: other values")


def check(directory):
    for name, dtype, shape in whole_tensors():
        same(name, restore(f"{directory}/whole", name, dtype), dtype, content(dtype, shape))
    listed = dict(tf.train.list_variables(f"{directory}/whole"))
    if listed != {n: s for n, _, s in whole_tensors()}:
        sys.exit(f"whole has {listed}")
    for prefix in ("parts", "merged"):
        for i, (dtype, shape, parts) in enumerate(PARTS):
            for part in [":".join("-" * len(shape)), *parts]:
                spec = " ".join(map(str, shape)) + " " + part
                same(f"{prefix} {i} {spec}", restore(f"{directory}/{prefix}", f"parts/{i}", dtype, spec), dtype, cut(content(dtype, shape), part))
    for i in range(2):
        same(f"own{i}", restore(f"{directory}/merged", f"own{i}", tf.int32), tf.int32, np.array(i, np.int32))
    names = [large_name(i) for i in range(LARGE)]
    for i, x in enumerate(raw.RestoreV2(prefix=f"{directory}/large", tensor_names=names, shape_and_slices=[""] * LARGE, dtypes=[tf.int32] * LARGE)):
        if int(x) != i:
            sys.exit(f"large {names[i]}: {x}")


if __name__ == "__main__":
    {"write": write, "check": check, "large": large}[sys.argv[1]](sys.argv[2])
