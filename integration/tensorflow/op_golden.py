"""Runs ops with TensorFlow and writes inputs and outputs to tensorflow/ops/testdata/golden.json.

    python integration/tensorflow/op_golden.py tensorflow/ops/testdata/golden.json

TestKernelsComputeWhatTensorFlowComputes in tensorflow/ops reads the file. Each case is one node. A case of
an optimiser or scatter runs on resource variables; its reference form has the same kernel.
"""

import inspect
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

raw = tf.raw_ops
f32, f64, i32, i64, u8 = np.float32, np.float64, np.int32, np.int64, np.uint8
half, brain = np.float16, tf.bfloat16.as_numpy_dtype
cases = []
rng = np.random.default_rng(1)


def encode(x):
    x = np.asarray(x)
    d = tf.as_dtype(x.dtype) if x.dtype.kind not in "OSU" else tf.string
    if d == tf.string:
        values = [v.decode("latin1") if isinstance(v, bytes) else str(v) for v in x.ravel()]
    elif d.is_complex:
        values = [repr(v) for w in x.ravel() for v in (float(w.real), float(w.imag))]
    elif d.is_floating:
        values = [repr(float(v)) for v in x.ravel()]
    elif d == tf.bool:
        values = [bool(v) for v in x.ravel()]
    else:
        values = [str(int(v)) for v in x.ravel()]
    return {"dtype": tf.dtypes.as_dtype(d).name, "shape": list(x.shape), "values": values}


def attr(v):
    if isinstance(v, tf.DType):
        return {"type": v.name}
    if isinstance(v, bool):
        return {"bool": v}
    if isinstance(v, int):
        return {"int": v}
    if isinstance(v, float):
        return {"float": v}
    if isinstance(v, str):
        return {"string": v}
    if isinstance(v, list) and v and isinstance(v[0], str):
        return {"strings": v}
    if isinstance(v, list):
        return {"ints": v}
    raise ValueError(v)


def record(op, inputs, outputs, attrs, **more):
    cases.append({
        "op": op,
        "attrs": {k: attr(v) for k, v in attrs.items()},
        "inputs": [encode(x) for x in inputs],
        "outputs": [encode(x) for x in outputs],
        **more,
    })


def flatten(out):
    if out is None:
        return []
    if isinstance(out, (list, tuple)):
        return [y for x in out for y in flatten(x)]
    return [out.numpy()]


def case(op, *inputs, lists=None, **attrs):
    """Runs one op. lists maps the index of an argument to how many inputs it takes."""
    d = tf.raw_ops.__dict__[op]
    names = list(inspect.signature(d).parameters)
    args, at = {}, 0
    flat = [np.asarray(x) for x in inputs]
    i = 0
    while at < len(flat):
        n = (lists or {}).get(i)
        if n is None:
            args[names[i]] = tf.constant(flat[at])
            at += 1
        else:
            args[names[i]] = [tf.constant(x) for x in flat[at:at + n]]
            at += n
        i += 1
    try:
        out = d(**args, **attrs)
    except (tf.errors.NotFoundError, tf.errors.UnimplementedError):
        print("TensorFlow has no kernel:", op, [x.dtype for x in flat], attrs)
        return
    record(op, flat, flatten(out), attrs)


def update(op, variables, inputs, dtype_attr="dtype", **attrs):
    """Runs an op that changes resource variables; its outputs are their values afterwards."""
    handles = [tf.Variable(v, dtype=np.asarray(v).dtype) for v in variables]
    d = tf.raw_ops.__dict__[op]
    names = list(inspect.signature(d).parameters)
    args = dict(zip(names, [h.handle for h in handles] + [tf.constant(np.asarray(x)) for x in inputs]))
    d(**args, **attrs)
    record(op, [np.asarray(v) for v in variables] + [np.asarray(x) for x in inputs], [h.numpy() for h in handles], attrs,
           variables=len(handles))


def numbers(shape, dtype=f32, low=-3.0, high=3.0):
    return rng.uniform(low, high, shape).astype(dtype)


def elementwise():
    for dtype in (f32, f64, half, brain):
        x, y = numbers((2, 3), dtype), numbers((2, 3), dtype)
        for op in ("AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "SquaredDifference", "FloorDiv", "FloorMod", "DivNoNan"):
            case(op, x, y)
        for op in ("Less", "LessEqual", "Greater", "GreaterEqual", "Equal", "NotEqual"):
            case(op, np.array([1, 2, 3], dtype), np.array([3, 2, 1], dtype))
        for op in ("Neg", "Abs", "Square", "Sign", "Floor", "Ceil", "Rint", "Round", "Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Expm1"):
            case(op, x)
        for op in ("Sqrt", "Rsqrt", "Log", "Log1p", "Reciprocal"):
            case(op, np.abs(x) + dtype(0.5))
        for op in ("Relu", "Relu6", "Softplus", "Softsign", "Elu", "Selu"):
            case(op, x)
        for op in ("TanhGrad", "SigmoidGrad"):
            case(op, x, y)
        case("SqrtGrad", np.abs(x) + dtype(0.5), y)
        case("RsqrtGrad", np.abs(x) + dtype(0.5), y)
        case("ReluGrad", x, y)
        case("Relu6Grad", x, y)
        case("EluGrad", x, y)
        case("SoftplusGrad", x, y)
        case("AddN", x, y, x, lists={0: 3})
        case("IsNan", np.array([1, np.nan, np.inf], dtype))
        case("IsFinite", np.array([1, np.nan, np.inf], dtype))
        case("IsInf", np.array([1, np.nan, -np.inf], dtype))
        case("Pow", np.abs(x) + dtype(0.5), y)
    for dtype in (np.int8, np.int16, i32, i64):
        x, y = np.array([7, -7, 7, -7, 0], dtype), np.array([2, 2, -2, -2, 5], dtype)
        for op in ("AddV2", "Sub", "Mul", "FloorDiv", "TruncateDiv", "FloorMod", "Maximum", "Minimum", "BitwiseAnd", "BitwiseOr", "BitwiseXor"):
            case(op, x, y)
        case("Neg", x)
        case("Abs", x)
        case("Sign", x)
        case("Invert", x)
        case("Pow", x, np.array([2, 3, 2, 3, 0], dtype))
    for dtype in (u8, np.uint16, np.uint32, np.uint64):
        case("AddV2", np.array([200, 5], dtype), np.array([100, 6], dtype))
        case("Sub", np.array([200, 5], dtype), np.array([100, 6], dtype))
        case("Mul", np.array([200, 5], dtype), np.array([100, 6], dtype))
    case("AddV2", np.array([1 + 2j], np.complex64), np.array([3 - 1j], np.complex64))
    case("Mul", np.array([1 + 2j], np.complex128), np.array([3 - 1j], np.complex128))
    shapes = [((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 1, 3), (4, 1)), ((), (2, 2)), ((2, 2), ()), ((1, 3), (2, 1)), ((0, 3), (1, 3)),
              ((2, 3, 1, 5), (3, 4, 1)), ((1, 1), (3,))]
    for a, b in shapes:
        case("AddV2", numbers(a), numbers(b))
        case("Sub", numbers(a), numbers(b))
        case("Less", numbers(a), numbers(b))
        case("SelectV2", numbers(a) > 0, numbers(a), numbers(b))
    case("LogicalAnd", np.array([True, True, False]), np.array([True, False, False]))
    case("LogicalOr", np.array([True, True, False]), np.array([True, False, False]))
    case("LogicalNot", np.array([True, False]))
    case("Equal", np.array(["a", "b"], object), np.array(["a", "c"], object))
    case("Select", np.array([True, False]), numbers((2, 3)), numbers((2, 3)))
    case("Select", np.array(True), numbers((2, 3)), numbers((2, 3)))
    case("Select", np.array([[True]]), np.array([["y"]], object), np.array([["z"]], object))
    case("ClipByValue", numbers((2, 3)), f32(-1), f32(1))
    case("Where", np.array([[True, False], [False, True]]))
    case("Where", np.array([0, 1, 2], f32))
    case("Atan2", numbers(3), numbers(3))
    case("CheckNumerics", numbers(3), message="m")


def casts():
    values = {
        f32: np.array([1.5, -2.5, 3e9, 65504, 1e-7, 0.1], f32), f64: np.array([1.5, -2.5, 1e300, 1e-300], f64),
        half: np.array([1.5, -2.5, 6e-8, 65504], half), brain: np.array([1.5, -2.5, 3e38], brain),
        i32: np.array([1, -2, 2**31 - 1], i32), i64: np.array([1, -2, 2**62 + 1], i64), u8: np.array([0, 255], u8),
        np.int8: np.array([-128, 127], np.int8), np.bool_: np.array([True, False]),
    }
    for src, x in values.items():
        for dst in (f32, f64, half, brain, i64, np.bool_):
            if src != dst:
                y = x[np.abs(x.astype(f64)) < 2e9] if dst == i64 else x
                case("Cast", y, DstT=tf.as_dtype(dst))
        for dst in (i32, u8, np.int8, np.int16):
            if src != dst:
                y = x[np.abs(x.astype(f64)) < 100]
                case("Cast", y if dst != u8 else np.abs(y) if src != np.bool_ else y, DstT=tf.as_dtype(dst))


def reductions():
    x = numbers((2, 3, 4))
    for op in ("Sum", "Mean", "Prod", "Max", "Min"):
        for axes in ([0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2], [-1], []):
            case(op, x, np.array(axes, i32))
        case(op, x, np.array([1], i64), keep_dims=True)
        case(op, numbers((2, 3), f64), np.array([0], i32))
        case(op, numbers((4, 3), half), np.array([0], i32))
        case(op, numbers((4, 3), brain), np.array([0], i32))
        case(op, np.array([[5, -2], [3, 4]], i32), np.array([0], i32))
        case(op, np.array([[5, -2], [3, 4]], i64), np.array([1], i32))
        case(op, np.zeros((0, 2), f32), np.array([0], i32))
        case(op, f32(3), np.array([], i32))
    b = np.array([[True, False], [True, True]])
    for op in ("All", "Any"):
        for axes in ([0], [1], [0, 1]):
            case(op, b, np.array(axes, i32))
    for op in ("ArgMax", "ArgMin"):
        for axis in (0, 1, -1):
            case(op, x, i32(axis))
        case(op, np.array([3, 1, 3], i32), i32(0), output_type=tf.int32)
    case("L2Loss", x)


def products():
    for dtype in (f32, f64, half, brain, i32):
        for ta in (False, True):
            for tb in (False, True):
                a, b = numbers((3, 2) if ta else (2, 3), dtype), numbers((4, 3) if tb else (3, 4), dtype)
                case("MatMul", a, b, transpose_a=ta, transpose_b=tb)
    case("MatMul", np.zeros((2, 0), f32), np.zeros((0, 3), f32))
    case("MatMul", np.zeros((0, 2), f32), numbers((2, 3)))
    case("BatchMatMulV2", numbers((2, 2, 3)), numbers((2, 3, 4)))
    case("BatchMatMulV2", numbers((2, 1, 2, 3)), numbers((3, 3, 4)))
    case("BatchMatMulV2", numbers((2, 3, 2)), numbers((4, 3)), adj_x=True, adj_y=True)
    case("BatchMatMul", numbers((2, 2, 3), f64), numbers((2, 3, 4), f64))


def shapes():
    x = numbers((2, 3, 4))
    for out in (tf.int32, tf.int64):
        case("Shape", x, out_type=out)
        case("Size", x, out_type=out)
    case("ShapeN", x, f32(1), lists={0: 2})
    case("Rank", x)
    case("Reshape", x, np.array([4, -1], i32))
    case("Reshape", x, np.array([24], i64))
    case("Reshape", np.array(["a", "b"], object), np.array([2, 1], i32))
    case("ExpandDims", x, i32(1))
    case("ExpandDims", x, i64(-1))
    case("Squeeze", numbers((1, 2, 1)))
    case("Squeeze", numbers((1, 2, 1)), axis=[0])
    for perm in ([2, 0, 1], [0, 2, 1], [1, 0, 2], [2, 1, 0], [0, 1, 2]):
        case("Transpose", x, np.array(perm, i32))
    case("Transpose", np.array([["a", "b"], ["c", "d"]], object), np.array([1, 0], i32))
    case("BroadcastTo", numbers((2, 1)), np.array([3, 2, 4], i32))
    for a, b in (([2, 3], [3]), ([2, 3], [2, 1]), ([2, 3], [2, 3]), ([2, 1], [1, 3]), ([], [4]), ([1, 1], [1, 1]), ([1, 3], [1, 1])):
        case("BroadcastGradientArgs", np.array(a, i32), np.array(b, i32))
    case("BroadcastArgs", np.array([2, 1], i32), np.array([3], i32))
    case("ConcatOffset", i32(1), np.array([2, 3], i32), np.array([2, 4], i32), lists={1: 2})
    case("InvertPermutation", np.array([2, 0, 1], i32))


def arrays():
    x = numbers((2, 3))
    case("Tile", x, np.array([2, 3], i32))
    case("Tile", x, np.array([0, 1], i64))
    case("Pad", x, np.array([[1, 0], [2, 1]], i32))
    case("PadV2", x, np.array([[1, 0], [2, 1]], i32), f32(7))
    case("ReverseV2", x, np.array([1], i32))
    case("ReverseV2", x, np.array([0, -1], i32))
    case("OneHot", np.array([0, 2, -1, 5], i32), i32(3), f32(1), f32(0))
    case("OneHot", np.array([[0, 2]], i64), i32(3), f32(5), f32(-1), axis=0)
    case("OneHot", np.array([[0, 2]], i64), i32(3), f32(5), f32(-1), axis=1)
    case("Range", i32(3), i32(10), i32(3))
    case("Range", i32(3), i32(-4), i32(-2))
    case("Range", f32(0), f32(1), f32(0.3))
    case("LinSpace", f32(0), f32(1), i32(4))
    case("Fill", np.array([2, 3], i32), f32(1.5))
    case("Fill", np.array([2], i64), np.array("s", object))
    case("ZerosLike", x)
    case("OnesLike", numbers((2,), half))
    case("OnesLike", np.array([5], i64))
    for dim in (0, 1, -1):
        case("ConcatV2", x, x + 1, i32(dim), lists={0: 2})
    case("ConcatV2", numbers((2, 3)), numbers((2, 0)), numbers((2, 1)), i32(1), lists={0: 3})
    case("ConcatV2", np.array(["a"], object), np.array(["b", "c"], object), i32(0), lists={0: 2})
    for axis in (0, 1, 2, -1):
        case("Pack", x, x + 1, lists={0: 2}, axis=axis)
    case("Unpack", x, num=3, axis=1)
    case("Unpack", x, num=2, axis=0)
    case("Split", i32(1), numbers((2, 6)), num_split=3)
    case("SplitV", numbers((2, 6)), np.array([1, -1, 2], i32), i32(1), num_split=3)
    case("Slice", x, np.array([0, 1], i32), np.array([2, -1], i32))
    y = numbers((4, 5, 6))
    for b, e, s, masks in (
            ([1, 0, 2], [3, 5, 6], [1, 2, 3], {}), ([-1, 4, 5], [-4, 0, -7], [-1, -2, -1], {}),
            ([1], [2], [1], {"shrink_axis_mask": 1}), ([0, 1], [0, 3], [1, 1], {"ellipsis_mask": 1}),
            ([0, 0, 1], [0, 0, 4], [1, 1, 1], {"new_axis_mask": 1, "begin_mask": 2, "end_mask": 2}),
            ([3, 0], [0, 0], [-1, 1], {"begin_mask": 1, "end_mask": 3}), ([-2], [0], [1], {"shrink_axis_mask": 1}),
            ([3], [1], [1], {}), ([-100], [100], [1], {})):
        case("StridedSlice", y, np.array(b, i32), np.array(e, i32), np.array(s, i32), **masks)
    case("StridedSliceGrad", np.array([4, 3], i32), np.array([1], i32), np.array([3], i32), np.array([1], i32), numbers((2, 3)))
    case("StridedSliceGrad", np.array([4], i32), np.array([-1], i32), np.array([-5], i32), np.array([-2], i32), numbers((2,)))


def network():
    x = numbers((3, 4))
    for dtype in (f32, f64, half):
        case("Softmax", x.astype(dtype))
        case("LogSoftmax", x.astype(dtype))
        case("SparseSoftmaxCrossEntropyWithLogits", x.astype(dtype), np.array([0, 3, 1], i64))
        case("SoftmaxCrossEntropyWithLogits", x.astype(dtype), np.eye(4, dtype=dtype)[:3])
        case("BiasAdd", x.astype(dtype), numbers((4,), dtype))
        case("BiasAddGrad", x.astype(dtype))
    case("SparseSoftmaxCrossEntropyWithLogits", x * 100, np.array([0, 3, 1], i32))
    for dtype in (f32, f64):  # TensorFlow rounds each step to half; its gradients lose digits
        logits, labels = x.astype(dtype), (np.abs(x) / 4).astype(dtype)
        for a, b in ((3, 1), (1, 3)):
            case("SoftmaxCrossEntropyWithLogits", logits[:a], labels[:b])
            case("SoftmaxCrossEntropyWithLogits", logits[:, :1 if a == 1 else 4], labels[:, :1 if b == 1 else 4])
        case("SoftmaxCrossEntropyWithLogits", logits[:, :1], labels[:1])
        case("SoftmaxCrossEntropyWithLogits", logits, labels[0])
        case("SoftmaxCrossEntropyWithLogits", logits, labels[0, 0])
        case("SoftmaxCrossEntropyWithLogits", logits[:0], labels[:1])
        case("SoftmaxCrossEntropyWithLogits", logits[:, :0], labels[:, :0])
    case("BiasAdd", numbers((2, 3, 4)), numbers((4,)))
    case("BiasAdd", numbers((2, 3, 4, 5)), numbers((3,)), data_format="NCHW")
    case("BiasAddGrad", numbers((2, 3, 4, 5)), data_format="NCHW")
    case("InTopKV2", x, np.array([0, 3, 1], i32), i32(2))


def rows():
    x = numbers((4, 3))
    case("GatherV2", x, np.array([3, 0, 0], i32), i32(0))
    case("GatherV2", x, np.array([[2, 0]], i64), i32(1))
    case("GatherV2", numbers((2, 3, 2)), np.array([[2, 0], [1, 1]], i32), i32(1), batch_dims=1)
    case("GatherV2", np.array(["a", "b"], object), np.array([1, 0], i32), i32(0))
    case("Gather", x, np.array([1], i32))
    case("GatherNd", x, np.array([[1, 2], [0, 0]], i32))
    case("GatherNd", x, np.array([[[1]], [[3]]], i64))
    case("ScatterNd", np.array([[1], [3], [1]], i32), numbers((3, 2)), np.array([4, 2], i32))
    case("TensorScatterUpdate", x, np.array([[1]], i32), numbers((1, 3)))
    case("TensorScatterAdd", x, np.array([[1, 2], [1, 2]], i32), numbers((2,)))
    case("TensorScatterSub", x, np.array([[1, 2]], i32), numbers((1,)))
    case("UnsortedSegmentSum", x, np.array([1, 0, 1, -1], i32), i32(3))
    case("UnsortedSegmentSum", x, np.array([[1, 0, 1]] * 4, i32), i32(2))
    case("SegmentSum", x, np.array([0, 0, 2, 2], i32))
    for op in ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"):
        case(op, x, np.array([3, 0, 1], i32), np.array([0, 0, 2], i32))
    case("Unique", np.array([3, 1, 3, 2, 1], i32))
    case("Unique", np.array(["x", "y", "x"], object), out_idx=tf.int64)
    case("UniqueWithCounts", np.array([3, 1, 3], i64))
    case("DynamicStitch", np.array([0, 2], i32), np.array([[1, 3]], i32), numbers((2, 2)), numbers((1, 2, 2)), lists={0: 2, 1: 2})
    case("DynamicPartition", x, np.array([1, 0, 1, 1], i32), num_partitions=3)


def updates():
    v, idx = numbers((4, 3)), np.array([2, 0, 2], i32)
    for op in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max"):
        rest = numbers((3, 3))
        if op == "Update":
            rest[2] = rest[0]
        update("ResourceScatter" + op, [v], [idx, rest])
        update("ResourceScatter" + op, [v], [idx, f32(2)])
    update("ResourceScatterAdd", [np.arange(6, dtype=i64)], [np.array([1, 1], i64), np.array([10, 20], i64)])
    update("ResourceScatterNdUpdate", [v], [np.array([[1, 1], [3, 0]], i32), numbers((2,))])
    update("ResourceScatterNdAdd", [v], [np.array([[1], [1]], i32), numbers((2, 3))])
    update("ResourceScatterNdSub", [v], [np.array([[1], [0]], i32), numbers((2, 3))])
    for dtype in (f32, f64):
        def n(shape):
            return numbers(shape, dtype)
        v, g, pos = n((5, 3)), n((5, 3)), np.abs(n((5, 3))) + dtype(0.1)
        h = [dtype(x) for x in (0.1, 0.9, 0.95, 0.01)]
        update("ResourceApplyGradientDescent", [v], [h[0], g])
        for nesterov in (False, True):
            update("ResourceApplyMomentum", [v, n((5, 3))], [h[0], g, h[1]], use_nesterov=nesterov)
            update("ResourceApplyKerasMomentum", [v, n((5, 3))], [h[0], g, h[1]], use_nesterov=nesterov)
            update("ResourceApplyAdam", [v, n((5, 3)), pos], [h[1], h[2], h[0], h[1], h[2], h[3], g], use_nesterov=nesterov)
        for slots in (True, False):
            update("ResourceApplyAdagrad", [v, pos], [h[0], g], update_slots=slots)
            update("ResourceApplyAdagradV2", [v, pos], [h[0], h[3], g], update_slots=slots)
        update("ResourceApplyRMSProp", [v, pos, n((5, 3))], [h[0], h[1], h[2], h[3], g])
        rows, at = n((3, 3)), np.array([4, 1, 4], i64)
        update("ResourceSparseApplyMomentum", [v, n((5, 3))], [h[0], rows, at, h[1]], use_nesterov=True)
        update("ResourceSparseApplyMomentum", [v, n((5, 3))], [h[0], rows, at, h[1]])
        update("ResourceSparseApplyAdagrad", [v, pos], [h[0], rows, at])
        update("ResourceSparseApplyAdagradV2", [v, pos], [h[0], h[3], rows, at])
        update("ResourceSparseApplyRMSProp", [v, pos, n((5, 3))], [h[0], h[1], h[2], h[3], rows, np.array([4, 1, 0], i64)])
    update("AssignAddVariableOp", [numbers((3,), half)], [numbers((3,), half)])
    update("AssignSubVariableOp", [np.array([5], i32)], [np.array([7], i32)])


def random():
    for dtype in (tf.float32, tf.float64):
        for shape in ([7], [3, 5], [101]):
            s = np.array(shape, i32)
            for op in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
                # TensorFlow caches kernels by their attributes: equal seeds would go on where the last case ended.
                case(op, s, dtype=dtype, seed=87654321, seed2=42 + sum(shape))
            for op in ("StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"):
                case(op, s, np.array([3, -7], i64), dtype=dtype)
    case("StatelessRandomGetKeyCounter", np.array([3, -7], i64))
    case("StatelessRandomGetKeyCounterAlg", np.array([3, 7], i32))
    case("StatelessRandomGetAlg")
    for op in ("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2"):
        case(op, np.array([9], i32), np.array([2**40 + 5], np.uint64), np.array([2**33 + 1, 2**63 + 9], np.uint64), i32(1), dtype=tf.float32)
    for t in (i32, i64):
        case("RandomUniformInt", np.array([9], i32), t(-5), t(1000), seed=1, seed2=2)


def forms(dtype):
    """Returns a function that makes hyperparameters, and one that runs the dense and the sparse form of an optimiser:
    dense on nine elements, a vector of TensorFlow and one more, and on rows of three elements and of one, for which it
    has other loops. slots says which slots are positive; gradient and indices are between the hyperparameters
    before and after."""
    def h(*values):
        return [np.asarray(x, dtype) for x in values]

    def both(op, slots, before, after, **attrs):
        for shape, index in (((9,), None), ((4, 3), [3, 1, 3]), ((4,), [0, 3, 0])):
            name = "ResourceApply" + op if index is None else "ResourceSparseApply" + op
            if not hasattr(raw, name):
                continue
            v = [numbers(shape, dtype)]
            for positive in slots:
                x = numbers(shape, dtype)
                v.append(np.abs(x) + dtype(0.25) if positive else x)
            g = [numbers(shape, dtype)] if index is None else [numbers((3,) + shape[1:], dtype), np.array(index, i64)]
            try:
                update(name, v, before + g + after, **attrs)
            except tf.errors.InvalidArgumentError as e:
                if "No OpKernel was registered" not in str(e):
                    raise
                print("TensorFlow has no kernel:", name, np.dtype(dtype).name)

    return h, both


def optimisers16():
    for dtype in (half, brain):
        h, both = forms(dtype)
        both("GradientDescent", [], h(0.1), [])
        for nesterov in (False, True):
            both("Momentum", [False], h(0.1), h(0.9), use_nesterov=nesterov)
            both("Adam", [False, True], h(0.9, 0.75, 0.1, 0.9, 0.95, 0.01), [], use_nesterov=nesterov)
        for slots in (True, False):
            both("Adagrad", [True], h(0.1), [], update_slots=slots)
            both("AdagradV2", [True], h(0.1, 0.01), [], update_slots=slots)
        both("RMSProp", [True, False], h(0.1, 0.9, 0.8, 0.01), [])


def single_rows():
    for dtype in (f32, f64):
        h, both = forms(dtype)
        both("Momentum", [False], h(0.1), h(0.9), use_nesterov=True)
        both("Adagrad", [True], h(0.1), [])
        both("AdagradV2", [True], h(0.1, 0.01), [])
        both("RMSProp", [True, False], h(0.1, 0.9, 0.8, 0.01), [])


FLOATS = (f32, f64, half, brain)


def odd(dtype):
    return np.array([np.nan, np.inf, -np.inf, 0, 1], dtype)


def keras_momentum():
    for dtype in FLOATS:
        h, both = forms(dtype)
        for nesterov in (False, True):
            both("KerasMomentum", [False], h(0.1), h(0.9), use_nesterov=nesterov)


def ftrl():
    for dtype in FLOATS:
        h, both = forms(dtype)
        for multiply in (False, True):
            for power in (-0.5, -0.3, 0.0):
                both("Ftrl", [True, False], [], h(0.1, 0.2, 0.3, power), multiply_linear_by_lr=multiply)
                both("FtrlV2", [True, False], [], h(0.1, 0.2, 0.3, 0.05, power), multiply_linear_by_lr=multiply)
            both("Ftrl", [True, False], [], h(0.1, 0.0, 0.0, -0.5), multiply_linear_by_lr=multiply)
        both("Ftrl", [True, False], [], h(0.0, 0.2, 0.3, -0.5), multiply_linear_by_lr=True)
        none = np.zeros(5, dtype)
        for l1 in (0.2, -0.2):
            update("ResourceApplyFtrl", [numbers(5, dtype), none, none], [odd(dtype)] + h(0.1, l1, 0.0, -0.5))
        update("ResourceSparseApplyFtrl", [numbers(5, dtype), none, none], [odd(dtype), np.arange(5)] + h(0.1, 0.2, 0.0, -0.5))


def adadelta():
    for dtype in FLOATS:
        h, both = forms(dtype)
        both("Adadelta", [True, True], h(0.5, 0.9, 0.01), [])


def proximal():
    for dtype in (f32, f64):
        h, both = forms(dtype)
        for l1 in (0.0, 0.3):
            both("ProximalGradientDescent", [], h(0.1, l1, 0.2), [])
            both("ProximalAdagrad", [True], h(0.1, l1, 0.2), [])
            both("AdagradDA", [False, True], [], h(0.1, l1, 0.2) + [i64(7)])
            update("ResourceApplyProximalAdagrad", [numbers(5, dtype), numbers(5, dtype) ** 2], h(0.1, l1, 0.2) + [odd(dtype)])
            update("ResourceApplyAdagradDA", [numbers(5, dtype), numbers(5, dtype), numbers(5, dtype) ** 2],
                   [odd(dtype)] + h(0.1, l1, 0.2) + [i64(7)])


def averages():
    for dtype in FLOATS:
        h, both = forms(dtype)
        both("CenteredRMSProp", [False, True, False], h(0.1, 0.9, 0.8, 16.0), [])
        both("AdaMax", [False, True], h(0.9, 0.1, 0.9, 0.95, 0.01), [])
        both("AdamWithAmsgrad", [False, True, True], h(0.9, 0.75, 0.1, 0.9, 0.95, 0.01), [])
    three = [numbers(5) ** 2 for _ in range(3)]
    update("ResourceApplyAdaMax", [numbers(5)] + three[:2], [f32(x) for x in (0.9, 0.1, 0.9, 0.95, 0.01)] + [odd(f32)])
    update("ResourceApplyAdamWithAmsgrad", [numbers(5)] + three, [f32(x) for x in (0.9, 0.75, 0.1, 0.9, 0.95, 0.01)] + [odd(f32)])


def signs():
    for dtype in FLOATS:
        h, both = forms(dtype)
        both("AddSign", [False], h(0.1, 1.5, 0.9, 0.8), [])
        both("PowerSign", [False], h(0.1, 2.0, 0.3, 0.8), [])
        for op in ("AddSign", "PowerSign"):
            update("ResourceApply" + op, [numbers(5, dtype)] * 2, h(0.1, 2.0, 0.3, 0.8) + [odd(dtype)])


def sparse():
    for dtype in FLOATS:
        for op in ("Sum", "Mean", "SqrtN"):
            case("SparseSegment" + op + "Grad", numbers((3, 2), dtype), np.array([3, 0, 3, 1], i32), np.array([0, 0, 2, 2], i32), i32(5))
            case("SparseSegment" + op + "WithNumSegments", numbers((4, 2), dtype), np.array([3, 0, 3], i64), np.array([0, 0, 2], i32), i32(5))
    at = np.array([[0, 1], [1, 0], [1, 2], [1, 2]], i64)
    for dtype in (f32, f64, i32):
        for a in (False, True):
            for b in (False, True):
                rows = 2 if a else 3
                x = numbers((4, rows) if b else (rows, 4), dtype)
                case("SparseTensorDenseMatMul", at, numbers((4,), dtype), np.array([2, 3], i64), x, adjoint_a=a, adjoint_b=b)


def scans():
    for dtype in FLOATS + (i32, i64, u8, np.complex64):
        for op in ("Cumsum", "Cumprod"):
            for exclusive in (False, True):
                for reverse in (False, True):
                    case(op, np.abs(numbers((2, 3, 2)) + 2).astype(dtype), i32(1), exclusive=exclusive, reverse=reverse)
        if dtype != np.complex64:
            case("TopKV2", numbers((3, 7)).astype(dtype), i32(3))
    case("Cumsum", np.zeros((0, 3), f32), i64(-1))
    case("TopKV2", np.array([1, 2, 2, 1, 2], i64), i32(4), index_type=tf.int64)
    case("TopKV2", numbers((2, 3)), i32(0))


def summaries():
    tags = np.array(["loss", "", "a/b"], object)
    for dtype in FLOATS + (i32, i64, u8):
        case("ScalarSummary", tags, np.array([1.5, 0, 200], dtype))
    case("ScalarSummary", np.array("loss", object), f32(-1))
    merged = [raw.ScalarSummary(tags=[t], values=[v]).numpy() for t, v in (("x", 1.0), ("", 2.0), ("", 3.0))]
    case("MergeSummary", *[np.array(m, object) for m in merged], np.array([b"", raw.ScalarSummary(tags="y", values=5).numpy()], object), lists={0: 4})


def uniques():
    rows = np.array([[1, 2, 1, 0], [3, 4, 3, 0], [1, 2, 1, 0], [1, 2, 1, 1]])
    for dtype in FLOATS + (np.int8, u8, np.int16, np.uint16, i32, np.uint32, i64, np.uint64, bool, object):
        x = rows.astype(dtype) if dtype != object else rows.astype(str).astype(object)
        case("Unique", x.ravel())
        case("UniqueWithCounts", x.ravel(), out_idx=tf.int64)
        case("UniqueV2", x.ravel(), np.array([], i32))
        case("UniqueV2", x, np.array([0], i64))
        case("UniqueWithCountsV2", x, np.array([-1], i32), out_idx=tf.int64)
        case("UniqueWithCountsV2", x.reshape(2, 4, 2), np.array([1], i64))
        case("UniqueV2", x[:, :1], np.array([0], i64))
    for dtype in FLOATS:
        x = np.array([[np.nan, 1], [np.nan, 1], [0, 1], [-0.0, 1]], dtype)
        case("UniqueV2", x, np.array([0], i64))
        case("UniqueV2", x[:, :1], np.array([0], i64))
    for shape, axis in (((3, 0), 0), ((3, 0), 1), ((0, 3), 0), ((0,), 0)):
        case("UniqueWithCountsV2", np.zeros(shape, f32), np.array([axis], i64))


def strings():
    # FarmHash has other loops for each class of lengths: up to 16, 32 and 64 bytes, and longer ones.
    texts = [bytes(rng.integers(0, 256, n, u8)) for n in [*range(70), 127, 128, 129, 191, 192, 193, 255, 256, 257, 1000, 4096]]
    case("StringToHashBucketFast", np.array(texts, object), num_buckets=2**63 - 1)
    case("StringToHashBucketFast", np.array([texts[:2], texts[2:4]], object), num_buckets=10)
    parted = np.array(["a,b,,c", " x \t y\n z ", "1<>2<><>3", "", " ", "\x0b\x0cq", ",", "<><"], object)
    for skip in (True, False):
        for delimiter in (",", " ", ",<", ""):
            case("StringSplit", parted, np.array(delimiter, object), skip_empty=skip)
    for sep in ("", ",", "<>"):
        for most in (-2, -1, 0, 1, 2):
            case("StringSplitV2", parted, np.array(sep, object), maxsplit=most)
    case("StringSplitV2", parted[:0], np.array(",", object))


def formats():
    for x in (np.arange(5), np.arange(60).reshape(3, 4, 5), np.arange(8).reshape(4, 2), np.arange(6, dtype=i64).reshape(3, 2),
              np.zeros((2, 0), f32), np.zeros((0, 2), f32), np.array(True), np.array([1.5, np.nan, 1e20, -0.0], f32), np.array([0.1]),
              np.array([0.1, 300], half), np.array(["a\"\n", "b"], object), np.array([1 + 2j, 3])):
        for summarize in (-1, 0, 1, 2, 3):
            case("StringFormat", x, lists={0: 1}, summarize=summarize)
    case("StringFormat", i32(1), f32(2.5), np.array("s", object), lists={0: 3}, template="a {} b {}{}", placeholder="{}")


def checkpoints():
    for base, shard, count in (("a/b", 1, 2), ("", 0, 123456), ("x", 100000, 7), ("x", -1, -2)):
        case("ShardedFilename", np.array(base, object), i32(shard), i32(count))


for group in (elementwise, casts, reductions, products, shapes, arrays, network, rows, updates, random,
              optimisers16, single_rows, keras_momentum, ftrl, adadelta, proximal, averages, signs, sparse, scans, summaries, uniques, strings, formats,
              checkpoints):
    group()
with open(sys.argv[1], "w") as f:
    f.write('{"tensorflow": "%s", "cases": [\n' % tf.__version__)
    f.write(",\n".join(json.dumps(c) for c in cases))
    f.write("\n]}\n")
print(len(cases), "cases")
