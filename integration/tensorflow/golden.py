"""Writes what TensorFlow's kernels compute, as the golden values of the kernels in Go.

    golden.py DIRECTORY

Each file DIRECTORY/GROUP.jsonl has a case a line, as JSON:

    node   the NodeDef, with all attributes, in protobuf's JSON
    in     the TensorProtos of the inputs, in protobuf's JSON; of a variable its value before
    refs, resources  the indexes of the inputs that are reference variables and resource variables
    out    the TensorProtos of the outputs; null for a reference and a resource
    after  the values of the variables afterwards, in the order of their inputs

Inputs come from fixed seeds, so that the files change only with TensorFlow.
"""

import itertools
import json
import os
import sys

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.python.framework import op_def_library

v1 = tf.compat.v1

FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTS = ["int32", "int64", "int8", "int16", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
NUMBERS = FLOATS + INTS + COMPLEX
ALL = NUMBERS + ["bool", "string"]


class Var:
    """A variable as an input: its value, and whether it is a reference or a resource."""

    def __init__(self, value, kind):
        self.value, self.kind = value, kind


def values(dtype, shape, seed=1, low=None, high=None):
    random = np.random.RandomState(seed)
    t = tf.as_dtype(dtype).as_numpy_dtype
    if dtype == "bool":
        return random.randint(0, 2, shape).astype(bool)
    if dtype == "string":
        return np.array([b"ab\x00" * int(n) for n in np.atleast_1d(random.randint(0, 4, shape)).flatten()], dtype=object).reshape(shape)
    if dtype in COMPLEX:
        return (random.uniform(-4, 4, shape) + 1j * random.uniform(-4, 4, shape)).astype(t)
    if dtype in FLOATS:
        return np.asarray(random.uniform(-4 if low is None else low, 4 if high is None else high, shape)).astype(t)
    return random.randint((0 if dtype.startswith("u") else -9) if low is None else low, 9 if high is None else high, shape).astype(t)


def proto(x, dtype):
    if x is None:
        return None
    return json_format.MessageToDict(tf.make_tensor_proto(x, dtype=dtype.base_dtype, shape=np.shape(x)))


def case(op, **inputs):
    """Runs an op of tf.raw_ops once, on the CPU and as it is, and returns its record."""
    with tf.Graph().as_default() as graph, tf.device("/CPU:0"):
        feed, variables, init = {}, [], []

        def source(x):
            if isinstance(x, Var):
                v = v1.get_variable(f"v{len(variables)}", initializer=tf.constant(x.value), use_resource=x.kind == "resource")
                variables.append(v)
                return v.handle if x.kind == "resource" else v._ref()
            p = v1.placeholder(x.dtype if x.dtype != object else tf.string, x.shape)
            feed[p] = x
            return p

        def convert(x):
            if isinstance(x, (np.ndarray, np.generic, Var)):
                return source(x)
            if isinstance(x, list) and x and isinstance(x[0], (np.ndarray, np.generic, Var)):
                return [source(y) for y in x]
            return x

        with tf.control_dependencies(None):
            arguments = {k: convert(x) for k, x in inputs.items()}
            if op.startswith("_"):  # an op that only Grappler makes
                op_def_library.apply_op(op, name="made", **arguments)
            else:
                getattr(tf.raw_ops, op)(**arguments)
        made = [o for o in graph.get_operations() if o.type == op]
        node = made[-1]
        fetch = [None if t.dtype._is_ref_dtype or t.dtype == tf.resource else t for t in node.outputs]
        conf = v1.ConfigProto()
        conf.graph_options.rewrite_options.disable_meta_optimizer = True
        conf.graph_options.optimizer_options.opt_level = -1
        with v1.Session(graph=graph, config=conf) as session:
            session.run(v1.global_variables_initializer())
            before = session.run(list(variables))
            out = session.run([t for t in fetch if t is not None] + [node], feed)[:-1]
            after = session.run(list(variables))
        record, taken = {"node": None, "in": [], "out": []}, 0
        refs, resources = [], []
        for i, t in enumerate(node.inputs):
            if t.dtype == tf.resource or t.dtype._is_ref_dtype:
                (resources if t.dtype == tf.resource else refs).append(i)
                record["in"].append(proto(before[taken], variables[taken].dtype))
                taken += 1
            else:
                record["in"].append(proto(feed[t], t.dtype))
        out = iter(out)
        record["out"] = [None if t is None else proto(next(out), t.dtype) for t in fetch]
        node_def = node.node_def
        del node_def.input[:]
        for k in [k for k in node_def.attr if k.startswith("_")]:
            del node_def.attr[k]
        node_def.device = ""
        record["node"] = json_format.MessageToDict(node_def)
        if refs:
            record["refs"] = refs
        if resources:
            record["resources"] = resources
        if after:
            record["after"] = [proto(a, v.dtype) for a, v in zip(after, variables)]
        return record


SHAPES = [([2, 3], [2, 3]), ([], [3]), ([2, 1, 3], [4, 1]), ([0, 3], [1, 3]), ([5], []), ([17], [17])]


def arithmetic():
    for op in ["AddV2", "Add", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Maximum", "Minimum", "FloorDiv", "FloorMod", "TruncateDiv", "TruncateMod",
               "SquaredDifference", "Pow", "Mod"]:
        for dtype in NUMBERS:
            for a, b in SHAPES if dtype in ("float32", "int32") else SHAPES[:2]:
                y = values(dtype, b, 2, **({"low": 1, "high": 5} if dtype not in COMPLEX else {}))
                low = {"low": 1, "high": 4} if op == "Pow" and dtype not in COMPLEX else {}
                yield op, {"x": values(dtype, a, **low), "y": y}
    for dtype in FLOATS + INTS[:2] + COMPLEX:
        yield "AddN", {"inputs": [values(dtype, [2, 3], s) for s in (1, 2, 3)]}


def comparisons():
    for op in ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]:
        for dtype in ALL:
            for a, b in SHAPES[:3]:
                yield op, {"x": values(dtype, a, 1, 0, 3), "y": values(dtype, b, 2, 0, 3)}
    for op in ["LogicalAnd", "LogicalOr"]:
        for a, b in SHAPES:
            yield op, {"x": values("bool", a), "y": values("bool", b, 2)}
    yield "LogicalNot", {"x": values("bool", [7])}
    for dtype in ALL:
        yield "Select", {"condition": values("bool", [3, 2]), "x": values(dtype, [3, 2]), "y": values(dtype, [3, 2], 2)}
        yield "Select", {"condition": values("bool", [3]), "x": values(dtype, [3, 2]), "y": values(dtype, [3, 2], 2)}
        yield "SelectV2", {"condition": values("bool", [3, 1]), "t": values(dtype, [1, 2]), "e": values(dtype, [], 2)}
    for dtype in ["float32", "float64", "int32", "int64"]:
        yield "ClipByValue", {"t": values(dtype, [9]), "clip_value_min": values(dtype, [], 1, -2, -1), "clip_value_max": values(dtype, [], 1, 1, 2)}
    yield "ApproximateEqual", {"x": values("float32", [9]), "y": values("float32", [9])}


def unary():
    for op in ["Neg", "Abs", "Sign", "Square", "Sqrt", "Rsqrt", "Exp", "Expm1", "Log", "Log1p", "Tanh", "Sigmoid", "Reciprocal", "Inv", "Floor", "Ceil", "Round",
               "Rint", "Sin", "Cos", "Erf", "Relu", "Relu6", "Elu", "Selu", "LeakyRelu", "Softplus", "Softsign", "IsNan", "IsInf", "IsFinite", "ZerosLike", "OnesLike",
               "Snapshot", "Identity", "StopGradient", "PreventGradient", "Rank", "Size", "Shape", "L2Loss", "Invert", "Conj", "Real", "Imag", "ComplexAbs"]:
        for dtype in ALL:
            low = 0.1 if op in ("Sqrt", "Rsqrt", "Log", "Log1p") and dtype in FLOATS else None
            for shape in [[2, 3], [], [0], [33]] if dtype == "float32" else [[2, 3]]:
                name = {"Relu": "features", "Relu6": "features", "Elu": "features", "Selu": "features", "LeakyRelu": "features", "Softplus": "features",
                        "Softsign": "features", "Snapshot": "input", "Identity": "input", "StopGradient": "input", "PreventGradient": "input", "Rank": "input",
                        "Size": "input", "Shape": "input", "L2Loss": "t", "Conj": "input", "Real": "input", "Imag": "input"}.get(op, "x")
                yield op, {name: values(dtype, shape, 1, low)}
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, 0.5, -0.5, 1.5, 2.5], np.float32)
    for op in ["Neg", "Abs", "Sign", "Tanh", "Sigmoid", "Round", "Rint", "Floor", "IsNan", "IsInf", "IsFinite", "Exp", "Sqrt"]:
        yield op, {"x": special}
    for op in ["TanhGrad", "SigmoidGrad", "ReciprocalGrad", "SqrtGrad", "RsqrtGrad"]:
        for dtype in FLOATS + COMPLEX:
            yield op, {"y": values(dtype, [2, 3], 1, *([0.1, 2] if dtype in FLOATS else [])), "dy": values(dtype, [2, 3], 2)}
    for op, name in [("ReluGrad", "features"), ("Relu6Grad", "features"), ("SoftplusGrad", "features"), ("SoftsignGrad", "features"), ("EluGrad", "outputs"),
                     ("SeluGrad", "outputs"), ("LeakyReluGrad", "features")]:
        for dtype in FLOATS:
            yield op, {"gradients": values(dtype, [2, 5]), name: values(dtype, [2, 5], 2)}


def casts():
    for a, b in itertools.product(NUMBERS + ["bool"], NUMBERS + ["bool"]):
        yield "Cast", {"x": values(a, [9], 1, 0, 9) if b.startswith("u") else values(a, [9]), "DstT": tf.as_dtype(b)}
    large = np.array([1e10, -1e10, np.nan, 0.99, -0.99, 65504, 65536, 1e-8], np.float32)
    for b in ["float16", "bfloat16", "float64", "bool"]:
        yield "Cast", {"x": large, "DstT": tf.as_dtype(b)}
    yield "Cast", {"x": values("float32", [9]), "DstT": tf.bfloat16, "Truncate": True}
    for a, b in [("float32", tf.int32), ("float32", tf.uint8), ("int64", tf.float64), ("float64", tf.int64)]:
        yield "Bitcast", {"input": values(a, [3, 4]) if a != "int64" else values(a, [2]), "type": b}


def matrices():
    for dtype in FLOATS + ["int32", "int64"] + COMPLEX:
        for ta, tb in itertools.product([False, True], repeat=2):
            a, b = [3, 4] if not ta else [4, 3], [4, 5] if not tb else [5, 4]
            yield "MatMul", {"a": values(dtype, a), "b": values(dtype, b, 2), "transpose_a": ta, "transpose_b": tb}
            yield "BatchMatMulV2", {"x": values(dtype, [2, 1] + a), "y": values(dtype, [3] + b, 2), "adj_x": ta, "adj_y": tb}
        yield "BatchMatMul", {"x": values(dtype, [2, 3, 4]), "y": values(dtype, [2, 4, 2], 2)}
    yield "MatMul", {"a": values("float32", [0, 4]), "b": values("float32", [4, 5])}
    yield "MatMul", {"a": values("float32", [3, 0]), "b": values("float32", [0, 5])}
    yield "MatMul", {"a": values("float32", [33, 65]), "b": values("float32", [65, 17])}
    for dtype in FLOATS + ["int32"]:
        yield "BiasAdd", {"value": values(dtype, [2, 3, 4]), "bias": values(dtype, [4])}
        yield "BiasAddGrad", {"out_backprop": values(dtype, [2, 3, 4])}
    yield "BiasAdd", {"value": values("float32", [2, 3, 4]), "bias": values("float32", [3]), "data_format": "NCHW"}
    yield "BiasAddGrad", {"out_backprop": values("float32", [2, 3, 4]), "data_format": "NCHW"}
    yield "BiasAddV1", {"value": values("float32", [2, 3]), "bias": values("float32", [3])}
    for fused in [["BiasAdd"], ["BiasAdd", "Relu"], ["BiasAdd", "Relu6"], ["BiasAdd", "Elu"], ["BiasAdd", "Tanh"], ["BiasAdd", "Sigmoid"]]:
        yield "_FusedMatMul", {"a": values("float32", [3, 4]), "b": values("float32", [4, 5], 2), "args": [values("float32", [5], 3)], "fused_ops": fused, "transpose_a": False,
                               "transpose_b": False, "epsilon": 0.0001, "leakyrelu_alpha": 0.2}
    for dtype in FLOATS:
        yield "Softmax", {"logits": values(dtype, [3, 5])}
        yield "LogSoftmax", {"logits": values(dtype, [3, 5])}
        yield "SoftmaxCrossEntropyWithLogits", {"features": values(dtype, [3, 5]), "labels": values(dtype, [3, 5], 2, 0, 1)}
        for labels in ["int32", "int64"]:
            yield "SparseSoftmaxCrossEntropyWithLogits", {"features": values(dtype, [4, 5]), "labels": values(labels, [4], 2, 0, 5)}


def reductions():
    for op in ["Sum", "Mean", "Prod", "Max", "Min"]:
        for dtype in NUMBERS:
            for axes, keep in [([0], False), ([1], True), ([0, 2], False), ([-1], False), ([0, 1, 2], False), ([], False)]:
                if dtype not in ("float32", "int32") and len(axes) > 1:
                    continue
                yield op, {"input": values(dtype, [2, 3, 4]), "axis": np.array(axes, np.int32), "keep_dims": keep}
        yield op, {"input": values("float32", [0, 3]), "axis": np.array([0], np.int32)}
        yield op, {"input": values("float32", [2, 3]), "axis": np.array(1, np.int64)}
        yield op, {"input": values("float32", [130, 17]), "axis": np.array([0], np.int32)}
        yield op, {"input": values("float32", [17, 130]), "axis": np.array([1], np.int32)}
    for op in ["All", "Any"]:
        for axes, keep in [([0], False), ([1], True), ([0, 1], False), ([], False)]:
            yield op, {"input": values("bool", [3, 4]), "axis": np.array(axes, np.int32), "keep_dims": keep}
    for op in ["ArgMax", "ArgMin"]:
        for dtype in FLOATS + INTS:
            for axis, out in [(0, tf.int64), (-1, tf.int32)]:
                yield op, {"input": values(dtype, [3, 7]), "dimension": np.array(axis, np.int32), "output_type": out}
    for op in ["Cumsum", "Cumprod"]:
        for dtype in ["float32", "float64", "int32", "int64"]:
            for exclusive, reverse in itertools.product([False, True], repeat=2):
                yield op, {"x": values(dtype, [3, 4]), "axis": np.array(1, np.int32), "exclusive": exclusive, "reverse": reverse}


def shapes():
    i32, i64 = lambda *x: np.array(x, np.int32), lambda *x: np.array(x, np.int64)
    for dtype in ALL:
        x = values(dtype, [2, 3, 4])
        yield "Reshape", {"tensor": x, "shape": i32(4, -1)}
        yield "ExpandDims", {"input": x, "axis": np.array(-2, np.int32)}
        yield "Squeeze", {"input": values(dtype, [1, 3, 1])}
        yield "Transpose", {"x": x, "perm": i32(2, 0, 1)}
        yield "ConcatV2", {"values": [x, values(dtype, [2, 1, 4], 2), values(dtype, [2, 0, 4])], "axis": np.array(1, np.int32)}
        yield "Pack", {"values": [x, x], "axis": 1}
        yield "Unpack", {"value": x, "num": 3, "axis": 1}
        yield "Slice", {"input": x, "begin": i32(0, 1, 1), "size": i32(-1, 2, 2)}
        yield "StridedSlice", {"input": x, "begin": i32(1, -1), "end": i32(2, -4), "strides": i32(1, -1), "shrink_axis_mask": 1}
        yield "Split", {"axis": np.array(2, np.int32), "value": x, "num_split": 2}
        yield "SplitV", {"value": x, "size_splits": i32(1, -1), "axis": np.array(1, np.int32), "num_split": 2}
        yield "Tile", {"input": values(dtype, [2, 3]), "multiples": i32(2, 1)}
        yield "Fill", {"dims": i32(2, 2), "value": values(dtype, [])}
        yield "BroadcastTo", {"input": values(dtype, [3, 1]), "shape": i32(2, 3, 2)}
        yield "GatherV2", {"params": x, "indices": i32(2, 0), "axis": np.array(1, np.int32)}
        yield "GatherV2", {"params": x, "indices": i64(1, 0, 1), "axis": np.array(0, np.int32)}
        yield "Gather", {"params": x, "indices": i32(1, 1)}
        yield "GatherNd", {"params": x, "indices": np.array([[1, 2], [0, 0]], np.int32)}
        yield "Where", {"condition": values(dtype, [3, 4], 1, 0, 2)} if dtype != "string" else {"condition": values("bool", [3, 4])}
        yield "Unique", {"x": values(dtype, [9], 1, 0, 4) if dtype not in COMPLEX else values("int32", [9], 1, 0, 4)}
        yield "DynamicPartition", {"data": values(dtype, [5, 2]), "partitions": i32(1, 0, 2, 1, 0), "num_partitions": 3}
        yield "DynamicStitch", {"indices": [i32(2, 0), i32(1)], "data": [values(dtype, [2, 2]), values(dtype, [1, 2], 2)]}
        yield "ReverseV2", {"tensor": x, "axis": i32(1)}
        yield "ScatterNd", {"indices": np.array([[3], [1]], np.int32), "updates": values(dtype, [2, 2]), "shape": i32(5, 2)}
        yield "Pad", {"input": values(dtype, [2, 3]), "paddings": np.array([[1, 0], [0, 2]], np.int32)}
        yield "PadV2", {"input": values(dtype, [2, 3]), "paddings": np.array([[1, 0], [0, 2]], np.int32), "constant_values": values(dtype, [], 3)}
        yield "ShapeN", {"input": [x, values(dtype, [0])]}
    for begin, end, strides, masks in [
        ([0, 0], [0, 2], [1, 1], {"begin_mask": 1, "end_mask": 1}),
        ([0, 1], [0, 0], [1, 1], {"ellipsis_mask": 1, "shrink_axis_mask": 2}),
        ([0, 0, 0], [0, 0, 3], [1, 1, 2], {"new_axis_mask": 2, "begin_mask": 1, "end_mask": 1}),
        ([-1], [0], [-1], {"end_mask": 1}),
    ]:
        yield "StridedSlice", {"input": values("float32", [2, 3, 4]), "begin": i32(*begin), "end": i32(*end), "strides": i32(*strides), **masks}
    yield "StridedSliceGrad", {"shape": i32(2, 3), "begin": i32(0, 1), "end": i32(2, 2), "strides": i32(1, 1), "dy": values("float32", [2, 1])}
    for dtype in ["int32", "int64", "float32", "float64"]:
        t = tf.as_dtype(dtype).as_numpy_dtype
        yield "Range", {"start": np.array(1, t), "limit": np.array(8, t), "delta": np.array(3, t)}
        yield "Range", {"start": np.array(5, t), "limit": np.array(0, t), "delta": np.array(-2, t)}
    yield "LinSpace", {"start": np.array(1, np.float32), "stop": np.array(2, np.float32), "num": np.array(5, np.int32)}
    for t in [tf.int32, tf.int64]:
        n = t.as_numpy_dtype
        yield "BroadcastGradientArgs", {"s0": np.array([2, 1, 3], n), "s1": np.array([4, 1], n)}
        yield "BroadcastArgs", {"s0": np.array([2, 1, 3], n), "s1": np.array([4, 1], n)}
        yield "Shape", {"input": values("float32", [2, 0, 5]), "out_type": t}
        yield "Size", {"input": values("float32", [2, 4]), "out_type": t}
        yield "ConcatOffset", {"concat_dim": np.array(1, np.int32), "shape": [i32(2, 3), i32(2, 5)]} if t == tf.int32 else {
            "concat_dim": np.array(0, np.int32), "shape": [i32(2, 3), i32(1, 3)]}
        yield "InvertPermutation", {"x": np.array([2, 0, 1], n)}
        yield "OneHot", {"indices": np.array([1, -1, 3], n), "depth": np.array(4, np.int32), "on_value": np.array(2, np.float32), "off_value": np.array(-1, np.float32)}
    for op in ["UnsortedSegmentSum", "UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"]:
        for dtype in FLOATS + ["int32", "int64"]:
            yield op, {"data": values(dtype, [5, 3]), "segment_ids": i32(2, 0, 2, -1, 0), "num_segments": np.array(4, np.int32)}
    for op in ["SegmentSum", "SegmentMean", "SegmentMax"]:
        for dtype in FLOATS:
            yield op, {"data": values(dtype, [5, 3]), "segment_ids": i32(0, 0, 1, 3, 3)}
    for dtype in FLOATS:
        yield "SparseSegmentSum", {"data": values(dtype, [5, 3]), "indices": i32(0, 4, 1), "segment_ids": i32(0, 0, 2)}
        yield "SparseSegmentMean", {"data": values(dtype, [5, 3]), "indices": i32(0, 4, 1), "segment_ids": i32(0, 0, 2)}
        yield "TopKV2", {"input": values(dtype, [3, 7]), "k": np.array(3, np.int32)}


def randoms():
    for seed, seed2 in [(1, 2), (87654321, 3), (0, 5), (-3, 1 << 40)]:
        for shape in [[], [1], [4], [13, 7], [1001], [3000]]:
            if len(shape) == 1 and shape[0] > 1000 and seed != 1:
                continue
            for op in ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"]:
                for dtype in FLOATS if shape != [3000] else FLOATS[:1]:
                    yield op, {"shape": np.array(shape, np.int32), "dtype": tf.as_dtype(dtype), "seed": seed, "seed2": seed2}
            for dtype in ["int32", "int64"]:
                t = tf.as_dtype(dtype).as_numpy_dtype
                yield "RandomUniformInt", {"shape": np.array(shape, np.int32), "minval": np.array(-7, t), "maxval": np.array(100, t), "seed": seed, "seed2": seed2}
    for seed in [[1, 2], [-5, 1 << 20]]:
        for op in ["StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"]:
            for dtype in FLOATS:
                yield op, {"shape": np.array([13], np.int32), "seed": np.array(seed, np.int64), "dtype": tf.as_dtype(dtype)}


def variables():
    for kind in ["ref", "resource"]:
        for dtype in FLOATS + ["int32", "int64"]:
            v = lambda seed=1, low=None, high=None, shape=[5, 3]: Var(values(dtype, shape, seed, low, high), kind)
            s = lambda x: np.array(x).astype(tf.as_dtype(dtype).as_numpy_dtype)
            if kind == "ref":
                yield "Assign", {"ref": v(), "value": values(dtype, [5, 3], 2)}
                yield "Assign", {"ref": v(), "value": values(dtype, [5, 3], 2), "use_locking": False}
                yield "AssignAdd", {"ref": v(), "value": values(dtype, [5, 3], 2)}
                yield "AssignSub", {"ref": v(), "value": values(dtype, [5, 3], 2)}
                yield "IsVariableInitialized", {"ref": v()}
            else:
                yield "AssignVariableOp", {"resource": v(), "value": values(dtype, [5, 3], 2)}
                yield "AssignAddVariableOp", {"resource": v(), "value": values(dtype, [5, 3], 2)}
                yield "AssignSubVariableOp", {"resource": v(), "value": values(dtype, [5, 3], 2)}
                yield "ReadVariableOp", {"resource": v(), "dtype": tf.as_dtype(dtype)}
                yield "VarIsInitializedOp", {"resource": v()}
                yield "VariableShape", {"input": v()}
            for index in ["int32", "int64"]:
                ids = np.array([4, 0, 4], index)
                for op in ["Update", "Add", "Sub", "Mul", "Div", "Min", "Max"]:
                    updates = values(dtype, [3, 3], 3, 1, 4)
                    if kind == "ref":
                        yield "Scatter" + op, {"ref": v(), "indices": ids, "updates": updates}
                    else:
                        yield "ResourceScatter" + op, {"resource": v(), "indices": ids, "updates": updates}
                if kind == "ref":
                    yield "ScatterAdd", {"ref": v(), "indices": ids, "updates": s(2)}
                    for op in ["Update", "Add", "Sub"]:
                        yield "ScatterNd" + op, {"ref": v(), "indices": np.array([[4, 1], [0, 2]], index), "updates": values(dtype, [2], 3)}
                else:
                    yield "ResourceScatterAdd", {"resource": v(), "indices": ids, "updates": s(2)}
                    yield "ResourceGather", {"resource": v(), "indices": ids, "dtype": tf.as_dtype(dtype)}
                    yield "ResourceGatherNd", {"resource": v(), "indices": np.array([[4, 1], [0, 2]], index), "dtype": tf.as_dtype(dtype)}
                    for op in ["Update", "Add", "Sub"]:
                        yield "ResourceScatterNd" + op, {"ref": v(), "indices": np.array([[4, 1], [0, 2]], index), "updates": values(dtype, [2], 3)}
            if dtype not in FLOATS:
                continue
            r, x = ("Resource", lambda **k: k) if kind == "resource" else ("", lambda **k: k)
            g = values(dtype, [5, 3], 5)
            yield r + "ApplyGradientDescent", {"var": v(), "alpha": s(0.1), "delta": g}
            for nesterov in [False, True]:
                yield r + "ApplyMomentum", {"var": v(), "accum": v(2, 0, 1), "lr": s(0.1), "grad": g, "momentum": s(0.9), "use_nesterov": nesterov}
                yield r + "ApplyAdam", {"var": v(), "m": v(2), "v": v(3, 0.1, 1), "beta1_power": s(0.9), "beta2_power": s(0.999), "lr": s(0.01), "beta1": s(0.9),
                                        "beta2": s(0.999), "epsilon": s(1e-4), "grad": g, "use_nesterov": nesterov}
                if kind == "resource":
                    yield "ResourceApplyKerasMomentum", {"var": v(), "accum": v(2, 0, 1), "lr": s(0.1), "grad": g, "momentum": s(0.9), "use_nesterov": nesterov}
            yield r + "ApplyAdagrad", {"var": v(), "accum": v(2, 0.1, 1), "lr": s(0.1), "grad": g}
            yield r + "ApplyAdagradV2", {"var": v(), "accum": v(2, 0.1, 1), "lr": s(0.1), "epsilon": s(1e-3), "grad": g}
            yield r + "ApplyRMSProp", {"var": v(), "ms": v(2, 0.1, 1), "mom": v(3), "lr": s(0.01), "rho": s(0.9), "momentum": s(0.5), "epsilon": s(1e-3), "grad": g}
            yield r + "ApplyAdadelta", {"var": v(), "accum": v(2, 0.1, 1), "accum_update": v(3, 0.1, 1), "lr": s(0.5), "rho": s(0.9), "epsilon": s(1e-3), "grad": g}
            yield r + "ApplyFtrl", {"var": v(), "accum": v(2, 0.1, 1), "linear": v(3), "grad": g, "lr": s(0.1), "l1": s(0.01), "l2": s(0.01), "lr_power": s(-0.5)}
            for index in ["int32", "int64"]:
                sg, ids = values(dtype, [2, 3], 6), np.array([3, 1], index)
                yield r + "SparseApplyMomentum", {"var": v(), "accum": v(2, 0, 1), "lr": s(0.1), "grad": sg, "indices": ids, "momentum": s(0.9)}
                yield r + "SparseApplyMomentum", {"var": v(), "accum": v(2, 0, 1), "lr": s(0.1), "grad": sg, "indices": ids, "momentum": s(0.9), "use_nesterov": True}
                yield r + "SparseApplyAdagrad", {"var": v(), "accum": v(2, 0.1, 1), "lr": s(0.1), "grad": sg, "indices": ids}
                yield r + "SparseApplyAdagradV2", {"var": v(), "accum": v(2, 0.1, 1), "lr": s(0.1), "epsilon": s(1e-3), "grad": sg, "indices": ids}
                yield r + "SparseApplyRMSProp", {"var": v(), "ms": v(2, 0.1, 1), "mom": v(3), "lr": s(0.01), "rho": s(0.9), "momentum": s(0.5), "epsilon": s(1e-3),
                                                 "grad": sg, "indices": ids}


def main():
    directory = sys.argv[1]
    os.makedirs(directory, exist_ok=True)
    for group in [arithmetic, comparisons, unary, casts, matrices, reductions, shapes, randoms, variables]:
        lines, refused = [], {}
        for op, inputs in group():
            try:
                lines.append(json.dumps(case(op, **inputs), separators=(",", ":"), sort_keys=True))
            except (TypeError, ValueError, AttributeError, KeyError, tf.errors.OpError) as e:  # TensorFlow has no such kernel
                refused.setdefault(op, []).append(str(e).split("\n")[0][:140])
        with open(os.path.join(directory, group.__name__ + ".jsonl"), "w") as f:
            f.write("\n".join(lines) + "\n")
        print(group.__name__, len(lines), "cases")
        for op, why in refused.items():
            print("  ", op, len(why), "refused:", why[0])


main()
