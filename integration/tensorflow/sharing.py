"""Programs about objects that outlive a step: which sessions find the same one.

They are part of programs.py, which gives each the function that configures a session. Each runs on a device of Tryst and on one of TensorFlow, and
the test compares.
"""

import threading

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session

v1 = tf.compat.v1
raw = tf.raw_ops
Attr = v1.AttrValue

# What an op needs that its definition does not say, or that its kernel wants to be something else than the first value allowed.
_FLOAT = Attr(type=types_pb2.DT_FLOAT)
_INT64 = Attr(type=types_pb2.DT_INT64)
_STRING = Attr(type=types_pb2.DT_STRING)
_SCALAR = Attr(shape=tf.TensorShape([]).as_proto())
_SCALARS = Attr(list=Attr.ListValue(shape=[tf.TensorShape([]).as_proto()]))
_PAIR = Attr(shape=tf.TensorShape([2]).as_proto())
WANTED = {
    "AnonymousMutableHashTableOfTensors": {"value_shape": _PAIR},
    "Barrier": {"shapes": _SCALARS},
    "ConditionalAccumulator": {"dtype": _FLOAT},
    "MutableDenseHashTable": {"key_dtype": _INT64, "value_shape": _SCALAR},
    "MutableHashTableOfTensors": {"value_shape": _PAIR},
    "MutableHashTableOfTensorsV2": {"value_shape": _PAIR},
    "PaddingFIFOQueue": {"shapes": _SCALARS},
    "PaddingFIFOQueueV2": {"shapes": _SCALARS},
    "PriorityQueue": {"component_types": Attr(list=Attr.ListValue(type=[types_pb2.DT_INT64])), "shapes": _SCALARS},
    "PriorityQueueV2": {"component_types": Attr(list=Attr.ListValue(type=[types_pb2.DT_INT64])), "shapes": _SCALARS},
    "RandomShuffleQueue": {"capacity": Attr(i=9)},
    "RandomShuffleQueueV2": {"capacity": Attr(i=9)},
    "ResourceConditionalAccumulator": {"dtype": _FLOAT, "shape": _SCALAR},
    "SparseConditionalAccumulator": {"dtype": _FLOAT},
}


@tf.function
def _dataset():
    return tf.data.Dataset.range(3)._variant_tensor


def _definitions():
    ops = op_def_pb2.OpList()
    ops.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {op.name: op for op in ops.op}


def make(op, name, given):
    """Makes a node of an op with whatever attributes and inputs it takes, and those that are given."""
    attrs, types = {}, {}
    for a in op.attr:
        if a.name in given:
            attrs[a.name] = given[a.name]
        elif a.name in WANTED.get(op.name, {}):
            attrs[a.name] = WANTED[op.name][a.name]
        elif not a.HasField("default_value"):
            v = Attr()
            if a.type == "type":
                allowed = a.allowed_values.list.type
                v.type = types_pb2.DT_INT64 if not allowed or types_pb2.DT_INT64 in allowed else allowed[0]
                if a.name == "key_dtype" and "Dense" not in op.name:
                    v = _STRING
            elif a.type == "list(type)":
                v.list.type.append(types_pb2.DT_INT64)
            elif a.type == "shape":
                v = _SCALAR
            elif a.type == "list(shape)":
                v = _SCALARS
            elif a.type == "string":
                v.s = b"" if a.name in ("shared_name", "container") else b"x"
            elif a.type == "list(string)":
                v.list.s.append(b"x")
            elif a.type == "int":
                v.i = 1
            elif a.type == "func":
                f = _dataset.get_concrete_function()
                f.add_to_graph()
                v.func.name = f.name
            attrs[a.name] = v
        if a.name in attrs and a.type == "type":
            types[a.name] = attrs[a.name].type
    inputs = []
    for i in op.input_arg:
        t = i.type or types[i.type_attr]
        if t == types_pb2.DT_RESOURCE:
            inputs.append(raw.DummySeedGenerator())
        elif t == types_pb2.DT_BOOL:
            inputs.append(tf.constant(True))
        elif t == types_pb2.DT_STRING:
            inputs.append(tf.constant("x"))
        else:
            inputs.append(tf.constant(3 + len(inputs), dtype=tf.dtypes.as_dtype(t)))  # the two keys of a dense table differ
    return v1.get_default_graph().create_op(op.name, inputs, attrs=attrs, name=name)


def name_of(node):
    """The name of the object of a handle. FakeQueue gives that of any resource."""
    out = node.outputs[0]
    if out.dtype == tf.resource:
        out = v1.get_default_graph().create_op("FakeQueue", [out]).outputs[0]
    return tf.identity(out)


def handle_names(config, chief, on, op, given):
    """Which of these find the same object, as the index of the first that does: two steps, another graph of the session, a second node, another
    session at the same time, that session when the first one is closed, and a later session."""
    given = {k: Attr(b=v) if isinstance(v, bool) else Attr(s=v.encode()) for k, v in given.items()}
    with v1.device(on):
        one = name_of(make(_definitions()[op], "thing_of_" + op, given))
        second = name_of(make(_definitions()[op], "other_thing_of_" + op, given))
        more = tf.stack([one, one])[0]
    c = config(chief, on)
    first, other = (v1.Session(chief.target, config=c) for _ in range(2))
    names = [first.run(f)[1] for f in (one, one, more, second)] + [other.run(one)[1]]
    first.close()
    names.append(other.run(one)[1])
    other.close()
    with v1.Session(chief.target, config=c) as later:
        names.append(later.run(one)[1])
    return [names.index(n) for n in names]


def _queues():
    for version, size, put in ("", raw.QueueSize, raw.QueueEnqueue), ("V2", raw.QueueSizeV2, raw.QueueEnqueueV2):
        types, one, two = {"component_types": [tf.int64]}, [np.int64(1)], [np.int64(1), np.int64(1)]
        for kind, attrs, value in (
            ("FIFOQueue", types, one),
            ("PaddingFIFOQueue", {**types, "shapes": [[]]}, one),
            ("PriorityQueue", {**types, "shapes": [[]]}, two),
            ("RandomShuffleQueue", {**types, "capacity": 9}, one),
        ):
            yield kind + version, lambda name, op=kind + version, attrs=attrs, size=size, put=put, value=value: (
                put(handle=(q := getattr(raw, op)(name="thing", shared_name=name, **attrs)), components=value),
                size(handle=q),
            )


def _barrier(name):
    b = raw.Barrier(component_types=[tf.int64], shapes=[[]], name="thing", shared_name=name)
    key = tf.strings.as_string(tf.timestamp(), precision=9)  # a new one in each step
    return raw.BarrierInsertMany(handle=b, keys=[key], values=np.ones(1, np.int64), component_index=0), raw.BarrierReadySize(handle=b)


def _accumulator(op, apply, look, sparse=False):
    def build(name):
        a = getattr(raw, op)(dtype=tf.float32, shape=[1, 2] if sparse else [2], name="thing", shared_name=name)
        if sparse:
            put = raw.SparseAccumulatorApplyGradient(
                handle=a, local_step=np.int64(0), gradient_indices=np.zeros(1, np.int64), gradient_values=np.ones([1, 2], np.float32),
                gradient_shape=np.array([1, 2], np.int64), has_known_shape=True)
        else:
            put = getattr(raw, apply)(handle=a, local_step=np.int64(0), gradient=np.ones(2, np.float32))
        return put, getattr(raw, look)(handle=a)

    return build


def _table(op, sharing):
    def build(name):
        attrs = {"value_dtype": tf.int64, "name": "thing", "shared_name": name, "use_node_name_sharing": sharing}
        attrs.update({"empty_key": np.int64(-1), "deleted_key": np.int64(-2)} if "Dense" in op else {"key_dtype": tf.int64})
        t = getattr(raw, op)(**attrs)
        v = "V2" if op.endswith("V2") else ""
        keys = tf.range(1, dtype=tf.int64)
        put = raw.InitializeTableV2 if v else raw.InitializeTable
        if op.startswith("Mutable"):
            put = raw.LookupTableInsertV2 if v else raw.LookupTableInsert
        return put(table_handle=t, keys=keys, values=keys), (raw.LookupTableSizeV2 if v else raw.LookupTableSize)(table_handle=t)

    return build


def _reader(name):
    r = raw.IdentityReaderV2(name="thing", shared_name=name)
    q = raw.FIFOQueueV2(component_types=[tf.string], shared_name="work of the reader" + name)
    with tf.control_dependencies([raw.QueueEnqueueV2(handle=q, components=["a"])]):
        return raw.ReaderReadV2(reader_handle=r, queue_handle=q).key, raw.ReaderNumRecordsProducedV2(reader_handle=r)


def _iterator(name):
    types = {"output_types": [tf.int64], "output_shapes": [[]]}
    i = raw.IteratorV2(name="thing", shared_name=name, container="", **types)
    return raw.MakeIterator(dataset=tf.data.Dataset.range(100)._variant_tensor, iterator=i), raw.IteratorGetNext(iterator=i, **types)[0]


def _variable(op):
    def build(name):
        attrs = {"dtype": tf.float32, "shape": [], "name": "thing", "shared_name": name}
        v = getattr(raw, op)(**attrs)
        if op == "VarHandleOp":
            return raw.AssignVariableOp(resource=v, value=2.0), raw.ReadVariableOp(resource=v, dtype=tf.float32)
        return raw.Assign(ref=v, value=2.0), raw.Identity(input=v)

    return build


# By an op, a function from a shared_name to a node that puts something into the object, and a node that says what is in it.
CONTENTS = {
    **dict(_queues()),
    "Barrier": _barrier,
    "ConditionalAccumulator": _accumulator("ConditionalAccumulator", "AccumulatorApplyGradient", "AccumulatorNumAccumulated"),
    "SparseConditionalAccumulator": _accumulator("SparseConditionalAccumulator", "", "AccumulatorNumAccumulated", sparse=True),
    "ResourceConditionalAccumulator": _accumulator(
        "ResourceConditionalAccumulator", "ResourceAccumulatorApplyGradient", "ResourceAccumulatorNumAccumulated"),
    "IdentityReaderV2": _reader,
    "IteratorV2": _iterator,
    "Variable": _variable("Variable"),
    "VariableV2": _variable("VariableV2"),
    "VarHandleOp": _variable("VarHandleOp"),
}
for _op in "HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", "MutableDenseHashTableV2":
    CONTENTS[_op] = _table(_op, False)
    CONTENTS[_op + ", use_node_name_sharing"] = _table(_op, True)


def attempt(session, fetch):
    """The value of a fetch, or the kind of its error."""
    try:
        value = session.run(fetch, options=v1.RunOptions(timeout_in_ms=20000))
        return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)
    except tf.errors.OpError as e:
        return type(e).__name__


def contents(config, chief, on, case, name=""):
    """What two sessions at once and a later one find in an object that each of them puts something into."""
    with v1.device(on), v1.name_scope(case.split(",")[0]):
        put, look = CONTENTS[case](name)
    c = config(chief, on)
    put = getattr(put, "op", put)
    one, two = (v1.Session(chief.target, config=c) for _ in range(2))
    found = [attempt(one, look), attempt(one, put), attempt(one, look), attempt(two, look), attempt(two, put), attempt(one, look)]
    one.close()
    found.append(attempt(two, look))
    two.close()
    with v1.Session(chief.target, config=c) as later:
        found += [attempt(later, look), attempt(later, put), attempt(later, look)]
    return found


_KEY = np.int64(1)
_SPARSE = {"sparse_indices": np.zeros([1, 1], np.int64), "sparse_values": np.ones(1, np.float32), "sparse_shape": np.ones(1, np.int64)}
_SPARSES = {**_SPARSE, "sparse_indices": np.zeros([1, 2], np.int64), "sparse_shape": np.ones(2, np.int64)}


def _staging(kind):
    stage, types = f"{kind}Stage" if kind else "Stage", {"dtypes": [tf.float32]}
    value = [np.float32(3)]
    put = (stage, {"values": value} if not kind else {"key": _KEY, "indices": [0], "values": value, "dtypes": [tf.float32]})
    for look, inputs in {
        "": {"StageSize": {}, "StagePeek": {"index": 0}, "Unstage": {}, "StageClear": {}},
        "Map": {"Size": {}, "IncompleteSize": {}, "Peek": {"key": _KEY, "indices": [0]}, "Unstage": {"key": _KEY, "indices": [0]},
                "UnstageNoKey": {"indices": [0]}, "Clear": {}},
    }["Map" if kind else ""].items():
        yield kind + look, (put, (kind + look, {**types, **inputs}))


# By an op that gives no handle, two nodes that find one object if they have the same name or shared_name: their ops and arguments.
NAMED = {
    **dict(_staging("")),
    **dict(_staging("Map")),
    **dict(_staging("OrderedMap")),
    "Stage": (("Stage", {"values": [np.float32(3)]}), ("StageSize", {"dtypes": [tf.float32]})),
    "MapStage": (
        ("MapStage", {"key": _KEY, "indices": [0], "values": [np.float32(3)], "dtypes": [tf.float32]}), ("MapSize", {"dtypes": [tf.float32]})),
    "OrderedMapStage": (
        ("OrderedMapStage", {"key": _KEY, "indices": [0], "values": [np.float32(3)], "dtypes": [tf.float32]}),
        ("OrderedMapSize", {"dtypes": [tf.float32]})),
    "AddSparseToTensorsMap": (("AddSparseToTensorsMap", _SPARSE), ("AddSparseToTensorsMap", _SPARSE)),
    "AddManySparseToTensorsMap": (("AddManySparseToTensorsMap", _SPARSES), ("AddManySparseToTensorsMap", _SPARSES)),
    "TakeManySparseFromTensorsMap": (
        ("AddSparseToTensorsMap", _SPARSE), ("TakeManySparseFromTensorsMap", {"sparse_handles": np.zeros(1, np.int64), "dtype": tf.float32})),
}
_BATCH = {"num_batch_threads": 1, "max_batch_size": 2, "batch_timeout_micros": 1_500_000}


@tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
def _sizes(x):
    return x * tf.cast(tf.size(x), tf.float32)


def _batch_function(**named):
    """A function of a batch. Each of its elements is the size of the batch."""
    f = _sizes.get_concrete_function()
    f.add_to_graph()
    return raw.BatchFunction(in_tensors=[np.ones(1, np.float32)], captured_tensors=[], f=f, Tout=[tf.float32], **_BATCH, **named)[0]


# The same for one that waits for the other: they run at once.
TOGETHER = {
    "BatchFunction": _batch_function,
}


def named(config, chief, on, op, name=""):
    """What a node finds that another one of the same name has put there: in a session at the same time, and in a later one."""
    c = config(chief, on)

    def session(build):
        with tf.Graph().as_default() as g, v1.device(on):
            node = build()
        return v1.Session(chief.target, graph=g, config=c), node

    if op in TOGETHER:
        opened = [session(lambda: TOGETHER[op](name="thing_of_" + op, shared_name=name)) for _ in range(2)]
        found = {}
        threads = [threading.Thread(target=lambda i=i, s=s, n=n: found.__setitem__(i, attempt(s, n))) for i, (s, n) in enumerate(opened)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for s, _ in opened:
            s.close()
        later, node = session(lambda: TOGETHER[op](name="thing_of_" + op, shared_name=name))
        with later:
            return [sorted(found.values(), key=str), attempt(later, node)]
    (put, put_args), (look, look_args) = NAMED[op]
    one, first = session(lambda: getattr(raw, put)(name="thing_of_" + op, shared_name=name, **put_args))
    two, second = session(lambda: getattr(raw, look)(name="thing_of_" + op, shared_name=name, **look_args))
    found = [attempt(one, first), attempt(two, second), attempt(one, first)]
    one.close()
    two.close()
    later, third = session(lambda: getattr(raw, look)(name="thing_of_" + op, shared_name=name, **look_args))
    with later:
        return found + [attempt(later, third)]


def one_shot(config, chief, on):
    """A one-shot iterator in two sessions at once, in two graphs of each, and in a later one."""
    with v1.device(on):
        x = v1.data.make_one_shot_iterator(tf.data.Dataset.range(4).map(lambda x: x * x)).get_next()
        y = x + 100
    c = config(chief, on)
    one, two = (v1.Session(chief.target, config=c) for _ in range(2))
    found = [attempt(one, x), attempt(two, x), attempt(one, y), attempt(one, x), attempt(two, y), attempt(one, x), attempt(one, x)]
    one.close()
    found.append(attempt(two, x))
    two.close()
    with v1.Session(chief.target, config=c) as later:
        return found + [attempt(later, x)]


def handle_in_loop(config, chief, on, chosen):
    """Queues of the kind whose handle is a reference, in a loop and in a branch of TensorFlow 1."""
    with v1.device(on):
        left, right = (raw.FIFOQueue(component_types=[tf.int64], name=n) for n in ("left", "right"))
        pred = v1.placeholder_with_default(chosen, [])
        l, r = raw.RefSwitch(data=left, pred=pred), raw.RefSwitch(data=right, pred=pred)
        merged = raw.RefMerge(inputs=[l.output_true, r.output_false])
        branch = raw.QueueEnqueue(handle=merged.output, components=[np.int64(7)])

        def body(i):
            with tf.control_dependencies([raw.QueueEnqueue(handle=left, components=[tf.cast(i, tf.int64)])]):
                return i + 1

        loop = v1.while_loop(lambda i: i < 5, body, [tf.constant(0)], parallel_iterations=1)
        sizes = [raw.QueueSize(handle=q) for q in (left, right)]
    with v1.Session(chief.target, config=config(chief, on)) as session:
        session.run([loop])
        session.run(branch)
        return [int(n) for n in session.run(sizes)]


def leave(config, chief, on, sessions, mib):
    """Sessions that leave a full queue, barrier and accumulator behind, one after another."""
    n = mib << 18
    with v1.device(on):
        value = v1.placeholder_with_default(tf.zeros([1]), [None])
        filled = tf.fill([n], 1.0)
        queue = raw.FIFOQueueV2(component_types=[tf.float32])
        barrier = raw.Barrier(component_types=[tf.float32], shapes=[[n]])
        accumulator = raw.ConditionalAccumulator(dtype=tf.float32, shape=[n])
        put = tf.group(
            raw.QueueEnqueueV2(handle=queue, components=[filled]),
            raw.BarrierInsertMany(handle=barrier, keys=["a"], values=filled[None], component_index=0),
            raw.AccumulatorApplyGradient(handle=accumulator, local_step=np.int64(0), gradient=filled))
    for _ in range(sessions):
        with v1.Session(chief.target, config=config(chief, on)) as session:
            session.run(put)
    return sessions


PROGRAMS = [handle_names, contents, named, one_shot, handle_in_loop, leave]
