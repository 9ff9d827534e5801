"""Programs about queues and accumulators: what their ops give, when they wait, and with which texts they fail.

They are part of programs.py, which gives each the function that configures a session. Each runs on a device of Tryst and on one of TensorFlow, and
the test compares.
"""

import re
import threading

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
raw = tf.raw_ops


def plain(value):
    """A fetched value as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (np.ndarray, np.generic)):
        a = np.asarray(value)
        return {"shape": list(a.shape), "values": [plain(v) if isinstance(v, bytes) else float(v) for v in a.flatten()]}
    return value


def failure(e):
    """An error without what differs between two tasks: where the graph was made, the job, and the numbers in the names of private objects."""
    found = re.search(r"([^\n]*)\n\t? ?\[\[\{\{node", e.message)
    text = found.group(1) if found else e.message
    text = re.sub(r"([' ])_\d+_", r"\1_N_", re.sub("Table (go|tf) ", "Table JOB ", text))
    return f"{type(e).__name__}: {text}"


class Client:
    """A session, and what its steps gave."""

    def __init__(self, session):
        self.session, self.given, self.threads = session, [], []

    def run(self, fetch, feed=None, timeout=60000):
        try:
            return plain(self.session.run(fetch, feed, options=v1.RunOptions(timeout_in_ms=timeout)))
        except tf.errors.OpError as e:
            return failure(e)

    def note(self, label, fetch, feed=None, **options):
        self.given.append([label, self.run(fetch, feed, **options)])

    def begin(self, label, fetch, feed=None, **options):
        """Runs a step that waits. Returns a function that waits for its end, and notes what it gave."""
        result = []
        thread = threading.Thread(target=lambda: result.append(self.run(fetch, feed, **options)))
        thread.start()

        def end():
            thread.join(90)
            self.given.append([label, result[0] if result else "it does not end"])

        return end

    def until(self, fetch, value):
        """Waits until a fetch has a value."""
        while self.session.run(fetch) != value:
            pass


class Queue:
    """A queue with all its ops, in one of the two versions."""

    def __init__(self, op, types, version="V2", **attrs):
        self.version, self.types = version, types
        given = types[1:] if op == "PriorityQueue" else types
        self.handle = getattr(raw, op + version)(component_types=given, **attrs)
        self.inputs = [v1.placeholder(t) for t in types]
        self.n = v1.placeholder(tf.int32)
        self.enqueue = self.op("QueueEnqueue", components=self.inputs)
        self.enqueue_many = self.op("QueueEnqueueMany", components=self.inputs)
        self.dequeue = self.op("QueueDequeue", component_types=types)
        self.dequeue_many = self.op("QueueDequeueMany", n=self.n, component_types=types)
        self.dequeue_up_to = self.op("QueueDequeueUpTo", n=self.n, component_types=types)
        self.close = self.op("QueueClose")
        self.close_now = self.op("QueueClose", cancel_pending_enqueues=True)
        self.size = self.op("QueueSize")
        self.closed = self.op("QueueIsClosed")

    def op(self, name, **inputs):
        return getattr(raw, name + self.version)(handle=self.handle, **inputs)

    def feed(self, *values):
        return dict(zip(self.inputs, values))


def orders(c, build, version):
    """The order in which each kind of queue gives its elements, in steps that do not wait."""
    for op, attrs in {
        "FIFOQueue": {}, "PaddingFIFOQueue": {}, "PriorityQueue": {}, "RandomShuffleQueue": {"seed": 4, "seed2": 7, "min_after_dequeue": 2, "capacity": 30},
    }.items():
        q = build(lambda: Queue(op, [tf.int64, tf.string], version, shapes=[[]] if op == "PriorityQueue" else [[], []], **attrs))
        texts = [b"%d" % i for i in range(20)]
        c.note(op, q.enqueue_many, q.feed([i * 7 % 5 for i in range(20)], texts))
        c.note(op, q.dequeue)
        c.note(op, q.dequeue_many, {q.n: 10})
        c.note(op, q.enqueue, q.feed(1, b"more"))
        c.note(op, q.size)
        c.note(op, q.enqueue_many, q.feed([2] * 4, texts[:4]))
        c.note(op, q.dequeue_many, {q.n: 0})
        c.note(op, q.closed)
        c.note(op, q.close)
        c.note(op, q.closed)
        c.note(op, q.dequeue_many, {q.n: 100})
        c.note(op, q.dequeue_up_to, {q.n: 5})
        c.note(op, q.dequeue_up_to, {q.n: 3})
        c.note(op, q.dequeue_up_to, {q.n: 100})
        c.note(op, q.size)
        c.note(op, q.dequeue_up_to, {q.n: 100})
        c.note(op, q.dequeue)
        c.note(op, q.dequeue_many, {q.n: 0})
        c.note(op, q.enqueue, q.feed(1, b"late"))
        c.note(op, q.enqueue_many, q.feed([1, 2], texts[:2]))
        c.note(op, q.enqueue_many, q.feed(np.zeros([0], np.int64), np.zeros([0], object)))
        c.note(op, q.close)
        c.note(op, q.close_now)


def padded(c, build, version):
    """Batches of elements of different shapes, and elements without declared shapes."""
    q = build(lambda: Queue("PaddingFIFOQueue", [tf.int32, tf.string, tf.float32], version, shapes=[[None, 2], [None], []]))
    for i in range(4):
        c.note("enqueue", q.enqueue, q.feed(np.arange(2 * i).reshape(i, 2), [b"s"] * (3 - i), i))
    c.note("of none", q.dequeue_many, {q.n: 0})
    c.note("one", q.dequeue)
    c.note("batch", q.dequeue_many, {q.n: 3})
    c.note("many at once", q.enqueue_many, q.feed(np.ones([2, 1, 2]), [[b"a"], [b"b"]], [1, 2]))
    c.note("batch", q.dequeue_up_to, {q.n: 2})
    c.note("wrong extent", q.enqueue, q.feed([[1, 2, 3]], [], 1))
    c.note("wrong rank", q.enqueue, q.feed([1, 2], [], 1))
    c.note("wrong batch", q.enqueue_many, q.feed([[1, 2]], [[]], [1]))
    wide = build(lambda: Queue("PaddingFIFOQueue", [tf.int32], version, shapes=[[None, 3, None, 2]]))
    for shape in (1, 3, 2, 2), (2, 3, 1, 2), (0, 3, 4, 2):
        c.note("wide", wide.enqueue, wide.feed(np.arange(np.prod(shape)).reshape(shape)))
    c.note("wide batch", wide.dequeue_many, {wide.n: 3})
    loose = build(lambda: Queue("FIFOQueue", [tf.int32, tf.string], version))
    c.note("any shape", loose.enqueue, loose.feed([[1, 2]], b"x"))
    c.note("any shape", loose.enqueue_many, loose.feed([1, 2], [[b"x"], [b"y"]]))
    c.note("different batches", loose.enqueue_many, loose.feed([1, 2], [b"x"]))
    for _ in range(3):
        c.note("any shape", loose.dequeue)
    c.note("no batch", loose.dequeue_many, {loose.n: 1})
    c.note("no batch", loose.dequeue_many, {loose.n: 0})


def wrong_uses(c, build, version):
    """Types, numbers and shapes that do not fit, and nodes that do not fit a queue that exists."""
    types, shapes = [tf.int32, tf.string], [[], [2]]
    q = build(lambda: Queue("FIFOQueue", types, version, shapes=shapes, capacity=3))
    pair = np.array([b"a", b"b"])
    for label, op, arguments in (
        ("type", "QueueEnqueue", {"components": [np.float32(1), pair]}),
        ("number", "QueueEnqueue", {"components": [np.int32(1)]}),
        ("shape", "QueueEnqueue", {"components": [np.int32(1), pair[:1]]}),
        ("type of many", "QueueEnqueueMany", {"components": [np.zeros([1], np.float32), pair[None]]}),
        ("shape of many", "QueueEnqueueMany", {"components": [np.zeros([2], np.int32), pair]}),
        ("number of many", "QueueEnqueueMany", {"components": [np.zeros([2], np.int32), pair[None]]}),
        ("types out", "QueueDequeue", {"component_types": [tf.int32]}),
        ("types out", "QueueDequeueMany", {"n": 1, "component_types": [tf.int32, tf.int32]}),
        ("timeout", "QueueDequeue", {"component_types": types, "timeout_ms": 5}),
    ):
        c.note(label, build(lambda: q.op(op, **arguments)))
    c.note("negative", q.dequeue_many, {q.n: -1})
    c.note("negative", q.dequeue_up_to, {q.n: -1})
    name = lambda kind: f"shared {kind} {version}"
    made = {}
    for kind, first, others in (
        ("FIFOQueue", {"component_types": [tf.int32], "shapes": [[2]], "capacity": 3}, [
            {"capacity": -3}, {"component_types": [tf.int64, tf.float32], "shapes": [[2], []]}, {"shapes": [[3, 4]]}, {"shapes": []},
            {"op": "RandomShuffleQueue"}, {"op": "PaddingFIFOQueue"}, {"op": "PriorityQueue"}, {}]),
        ("PaddingFIFOQueue", {"component_types": [tf.int32], "shapes": [[None, 2]], "capacity": 3}, [
            {"op": "FIFOQueue", "shapes": [[2]]}, {"shapes": [[None, 3]]}, {"shapes": [[4, 2]]}, {"shapes": [[2]]}, {}]),
        ("RandomShuffleQueue", {"component_types": [tf.int32], "min_after_dequeue": 1, "seed": 4, "seed2": 5, "capacity": 3}, [
            {"min_after_dequeue": 2}, {"seed2": 6}, {"seed": 0, "seed2": 0}, {"capacity": 4}, {"component_types": [tf.string]}, {}]),
        ("PriorityQueue", {"component_types": [tf.int32], "shapes": [[2]], "capacity": 3}, [
            {"component_types": [tf.int64]}, {"shapes": [[3]]}, {"capacity": 7}, {}]),
    ):
        for change in [{}, *others]:
            attrs = {**first, **change}
            op = attrs.pop("op", kind)
            size = build(lambda: getattr(raw, "QueueSize" + version)(handle=getattr(raw, op + version)(shared_name=name(kind), **attrs)))
            c.note(f"{kind} {change}", size)
    for op, attrs in (
        ("PaddingFIFOQueue", {"component_types": [tf.int32]}),
        ("PaddingFIFOQueue", {"component_types": [tf.int32], "shapes": [None]}),
        ("FIFOQueue", {"component_types": [tf.int32], "shapes": [[None, 2]]}),
        ("FIFOQueue", {"component_types": [tf.int32], "shapes": [None]}),
        ("FIFOQueue", {"component_types": [tf.int32, tf.float32], "shapes": [[2]]}),
        ("FIFOQueue", {"component_types": [tf.int32], "capacity": 0}),
        ("RandomShuffleQueue", {"component_types": [tf.int32], "min_after_dequeue": -1, "capacity": 3}),
        ("RandomShuffleQueue", {"component_types": [tf.int32], "min_after_dequeue": 3, "capacity": 3}),
        ("PriorityQueue", {"component_types": [tf.int32], "shapes": []}),
    ):
        c.note(f"{op} {attrs}", build(lambda: getattr(raw, "QueueSize" + version)(handle=getattr(raw, op + version)(**attrs))))


def waits(c, build, version):
    """Steps that wait for others. No result depends on which of two begins first."""
    for op in "FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue":
        made = lambda capacity, **attrs: build(lambda: Queue(op, [tf.int32], version, shapes=[[]], capacity=capacity, **attrs))
        q = made(3)
        more = c.begin(op + " enqueues more than fit", q.enqueue_many, q.feed(list(range(8))))
        c.until(q.size, 3)
        close = c.begin(op + " closes behind them", q.close)
        got = []
        for _ in range(8):
            got += c.run(q.dequeue)[0]["values"]
        c.given.append([op, sorted(got)])
        more()
        close()
        c.note(op, q.closed)
        c.note(op, q.dequeue)

        q = made(3)
        more = c.begin(op + " is closed over them", q.enqueue_many, q.feed(list(range(8))))
        c.until(q.size, 3)
        c.note(op, q.close_now)
        more()
        c.note(op, q.size)

        q = made(9)
        c.note(op, q.enqueue_many, q.feed([7, 7]))
        many = c.begin(op + " has not enough", q.dequeue_many, {q.n: 5})
        c.until(q.size, 0)
        c.note(op, q.close)
        many()
        c.note(op + " has them again", q.dequeue_up_to, {q.n: 5})

        q = made(9)
        c.note(op, q.enqueue_many, q.feed([7, 7]))
        many = c.begin(op + " has not enough, and any number will do", q.dequeue_up_to, {q.n: 5})
        c.until(q.size, 0)
        c.note(op, q.close)
        many()

        q = made(9)
        c.note(op, q.enqueue_many, q.feed([7, 7]))
        many = c.begin(op + " loses what a step that ends has taken", q.dequeue_many, {q.n: 5}, timeout=1500)
        c.until(q.size, 0)
        many()
        c.note(op, q.size)
        c.note(op, q.enqueue_many, q.feed([7, 7]))
        c.note(op, q.dequeue)

        q = made(2)
        ends = [c.begin(op + " for each", q.dequeue) for _ in range(4)]
        c.note(op, q.enqueue_many, q.feed([7] * 4))
        for end in ends:
            end()

    q = build(lambda: Queue("PriorityQueue", [tf.int64, tf.int32], version, shapes=[[]]))
    c.note("priority", q.enqueue_many, q.feed([5, 3], [1, 2]))
    many = c.begin("priority takes nothing before all is there", q.dequeue_many, {q.n: 3})
    c.note("priority", q.size)
    c.note("priority", q.enqueue, q.feed(1, 3))
    many()
    q = build(lambda: Queue("RandomShuffleQueue", [tf.int32], version, shapes=[[]], capacity=9, min_after_dequeue=2))
    c.note("shuffled", q.enqueue_many, q.feed([7] * 3))
    c.note("shuffled", q.dequeue)
    one = c.begin("shuffled keeps some until it is closed", q.dequeue)
    c.note("shuffled", q.size)
    c.note("shuffled", q.close)
    one()
    c.note("shuffled", q.size)


def accumulators(c, build, version):
    """What accumulators add, drop and give, and the texts of their errors."""
    prefix = "Resource" if version == "V2" else ""
    step = v1.placeholder(tf.int64)
    for dtype in tf.float32, tf.float64, tf.half:
        for reduction in "MEAN", "SUM":
            grad, required = v1.placeholder(dtype), v1.placeholder(tf.int32)
            handle = build(lambda: getattr(raw, prefix + "ConditionalAccumulator")(dtype=dtype, shape=[None, 2], reduction_type=reduction))
            op = lambda name, **inputs: build(lambda: getattr(raw, prefix + "Accumulator" + name)(handle=handle, **inputs))
            put = op("ApplyGradient", local_step=step, gradient=grad)
            take = op("TakeGradient", num_required=required, dtype=dtype)
            count = op("NumAccumulated")
            set_step = op("SetGlobalStep", new_global_step=step)
            for s, g in (0, [[0.1, 2]]), (0, [[0.3, 5.5]]), (7, [[0.7, 3.25]]), (-1, [[9, 9]]), (0, [[1, 2, 3]]), (0, [[1, 2], [3, 4]]), (-1, [[1, 2, 3]]):
                c.note(f"apply {s} {g}", put, {step: s, grad: g})
                c.note("count", count)
            c.note("take", take, {required: 2})
            c.note("count", count)
            c.note("stale", put, {step: 0, grad: [[9, 9]]})
            c.note("count", count)
            c.note("another shape", put, {step: 1, grad: [[1, 2], [3, 4]]})
            c.note("take", take, {required: 1})
            c.note("none required", take, {required: 0})
            c.note("fewer than none required", take, {required: -1})
            c.note("set", set_step, {step: 9})
            c.note("stale", put, {step: 8, grad: [[1, 2]]})
            c.note("count", count)
            c.note("set back", set_step, {step: 3})
            c.note("apply", put, {step: 3, grad: [[1, 2]]})
            c.note("count", count)
            wait = c.begin("waits for more", take, {required: 3})
            for _ in range(2):
                c.note("apply", put, {step: 5, grad: [[1, 2.5]]})
            wait()
            wait = c.begin("waits in vain", take, {required: 3}, timeout=1000)
            wait()
            c.note("apply", put, {step: 5, grad: [[1, 2.5]]})
            c.note("take", take, {required: 1})
            c.note("a shape without batch", put, {step: 9, grad: [1, 2]})
            other = np.int32 if dtype == tf.float32 else np.float32
            if reduction == "SUM":  # in TensorFlow it counts as a gradient all the same, or ends the process
                c.note("another type", build(lambda: getattr(raw, prefix + "AccumulatorApplyGradient")(handle=handle, local_step=np.int64(-1), gradient=other([[1, 2]]))))
            if dtype == tf.float32:
                shared = [build(lambda: getattr(raw, prefix + "AccumulatorNumAccumulated")(handle=getattr(raw, prefix + "ConditionalAccumulator")(
                    dtype=d, shape=s, shared_name="shared" + reduction + version))) for d, s in ((tf.float32, [2]), (tf.float64, [3]))]
                for s in shared:
                    c.note("shared", s)


def sparse_accumulators(c, build, version):
    """The same for sparse gradients."""
    step, index, shape, required = (v1.placeholder(t) for t in (tf.int64, tf.int64, tf.int64, tf.int32))
    for dtype in tf.float32, tf.float64, tf.half:
        for reduction in "MEAN", "SUM":
            for declared, known in ([4, 2], True), ([4, 2], False), ([None, 2], False), (None, False), ([None, 2], True):
                values = v1.placeholder(dtype)
                handle = build(lambda: raw.SparseConditionalAccumulator(dtype=dtype, shape=declared, reduction_type=reduction))
                put = build(lambda: raw.SparseAccumulatorApplyGradient(
                    handle=handle, local_step=step, gradient_indices=index, gradient_values=values, gradient_shape=shape, has_known_shape=known))
                take = build(lambda: raw.SparseAccumulatorTakeGradient(handle=handle, num_required=required, dtype=dtype))
                count = build(lambda: raw.AccumulatorNumAccumulated(handle=handle))
                gradients = (
                    ([0, 2], [[0.1, 2], [3, 4]], [4, 2]), ([1, 2], [[5, 6], [0.7, 8]], [4, 2]), ([3, 3, 0], [[1, 1], [2, 2], [3, 3]], [4, 2]),
                    ([[0]], [[1, 2]], [4, 2]), ([0], 3.0, [4, 2]), ([0, 1], [[1, 2]], [4, 2]), ([0], [[1, 2]], [4]), ([0], [[1, 2]], [5, 2]),
                    ([0], [[1, 2]], [4, 2, 3]), ([4], [[1, 2]], [4, 2]), ([0], [[1, 2, 3]], [4, 2]), ([0], [1], [4, 2]),
                    (np.zeros([0], np.int64), np.zeros([0, 2]), [4, 2]), ([0], [[[1], [2]]], [4, 2]),
                )
                for g in gradients:
                    c.note(f"{declared} apply {g}", put, dict(zip((step, index, values, shape), (0, *g))))
                c.note("count", count)
                c.note("take", take, {required: 1})
                c.note("stale", put, dict(zip((step, index, values, shape), (0, *gradients[0]))))
                c.note("count", count)
                for g in gradients[-2:] + gradients[10:12] + gradients[:1]:
                    c.note(f"{declared} apply {g}", put, dict(zip((step, index, values, shape), (1, *g))))
                    if c.run(count)["values"] != [0.0]:
                        c.note("take", take, {required: 1})
                    c.note("set", build(lambda: raw.AccumulatorSetGlobalStep(handle=handle, new_global_step=np.int64(0))))


def handles(c, build, version):
    """What the handle of the first version is: the container, which is the job of the task if the node names none, and the name."""
    for name in "", "given a name " + version:
        handle = build(lambda: tf.identity(raw.FIFOQueue(component_types=[tf.int32], shared_name=name, container="box" if name else "", name="thing")))
        container, found = c.run(handle)["values"]
        c.given.append([name, f"/job:{container}/" in handle.device or container, re.sub(r"^_\d+_", "_N_", found)])


def steps(config, chief, on, part, version):
    """What the steps of a function give, which builds its graph on a device."""

    def build(make):
        with v1.device(on):
            return make()

    with v1.Session(chief.target, config=config(chief, on)) as session:
        c = Client(session)
        part(c, build, version)
        return c.given


def behaviour(config, chief, on, part, version):
    """What the steps of a part of this file give."""
    return steps(config, chief, on, {f.__name__: f for f in (orders, padded, wrong_uses, waits, accumulators, sparse_accumulators, handles)}[part], version)


def runners(config, chief, on, kind):
    """A program whose input comes from queues that threads fill (start_queue_runners). Returns its batches in order, and how it ended."""
    n, batch = 60, 8
    with v1.device(on):
        with v1.device(chief.device):
            rows = tf.random.stateless_uniform([n, 3], seed=[1, 2])
        source = v1.FIFOQueue(20, [tf.int64, tf.float32], [[], [3]])
        numbers = tf.constant(np.arange(n), tf.int64)
        fill = source.enqueue_many([numbers, rows])
        v1.train.add_queue_runner(v1.train.QueueRunner(source, [fill]))  # its thread begins again and again
        number, row = source.dequeue()
        if kind == "batch":
            out = v1.train.batch([number, row * 2], batch, num_threads=1, capacity=16)
        else:
            out = v1.train.shuffle_batch([number, row * 2], batch, capacity=40, min_after_dequeue=16, num_threads=3, seed=3)
    with v1.Session(chief.target, config=config(chief, on)) as session:
        session.run(v1.global_variables_initializer())
        coordinator = v1.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator)
        batches = [session.run(out) for _ in range(30)]
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=30)
        if kind == "batch":
            return [b[0].tolist() for b in batches] + [float(sum(b[1].sum() for b in batches))]
        seen = np.concatenate([b[0] for b in batches])
        return [len(seen), int(seen.min()), int(seen.max()), bool((np.diff(seen) != 1).any())]


PROGRAMS = [behaviour, runners]
