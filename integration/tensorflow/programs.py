"""The programs that driver.py runs.

A program builds a graph, with the parts under test on a device that the test names, runs it, and returns what a client sees as plain values. The
test runs it twice, on a device of Tryst and on one of TensorFlow, and compares.
"""

import copy
import functools
import threading
import time

import numpy as np
import tensorflow as tf

import arrays
import queues
import sharing
import tables
import tutorials

v1 = tf.compat.v1

ALL = {}


def program(f):
    """Registers a program by its name."""
    ALL[f.__name__] = f
    return f


def plain(x):
    """What JSON needs for a value of NumPy."""
    if isinstance(x, bytes):
        return {"bytes": x.hex()}
    if isinstance(x, np.generic):
        return plain(x.item()) if isinstance(x.item(), (complex, bytes)) else x.item()
    if isinstance(x, complex):
        return [x.real, x.imag]
    if isinstance(x, np.ndarray):
        return {"dtype": str(x.dtype), "shape": list(x.shape), "values": x.flatten().tolist()}
    raise TypeError(f"{type(x)}: not plain")


def config(chief, *devices, **options):
    """The configuration of a session that sees only the tasks of the devices, and the chief."""
    c = v1.ConfigProto(**options)
    c.device_filters.extend({task_of(d) for d in (chief.device, *devices)})
    return c


@program
def between(chief, program, here, **arguments):
    """Runs a program with another device in place of the chief's: its graph is then on two devices that are not the master's."""
    other = copy.copy(chief)
    other.device = here
    return ALL[program](other, **arguments)


def dense_model(variables):
    """A classifier of two dense layers over fixed data, as a loss."""
    random = np.random.RandomState(7)
    x = random.standard_normal((64, 20)).astype(np.float32)
    y = random.randint(0, 5, 64)
    with v1.variable_scope("model", use_resource=variables == "resource"):
        w1 = v1.get_variable("w1", [20, 32])
        b1 = v1.get_variable("b1", [32], initializer=v1.zeros_initializer())
        w2 = v1.get_variable("w2", [32, 5], initializer=v1.truncated_normal_initializer(stddev=0.3))
        b2 = v1.get_variable("b2", [5], initializer=v1.zeros_initializer())
    hidden = tf.nn.relu(tf.matmul(tf.constant(x), w1) + b1)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.constant(y), logits=tf.matmul(hidden, w2) + b2))


OPTIMIZERS = {
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "nesterov": lambda: v1.train.MomentumOptimizer(0.05, 0.9, use_nesterov=True),
    "adagrad": lambda: v1.train.AdagradOptimizer(0.1),
    "adam": lambda: v1.train.AdamOptimizer(0.01),
    "ftrl": lambda: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.001, l2_regularization_strength=0.001),
    "ftrl shrinkage": lambda: v1.train.FtrlOptimizer(0.1, learning_rate_power=-0.4, l2_shrinkage_regularization_strength=0.01),
    "adadelta": lambda: v1.train.AdadeltaOptimizer(1.0, epsilon=1e-3),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.9),
    "centered rmsprop": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.9, epsilon=1e-3, centered=True),
    "proximal sgd": lambda: v1.train.ProximalGradientDescentOptimizer(0.1, 0.001, 0.001),
    "proximal adagrad": lambda: v1.train.ProximalAdagradOptimizer(
        0.1, l1_regularization_strength=0.001, l2_regularization_strength=0.001),
    "adagrad dual averaging": lambda: v1.train.AdagradDAOptimizer(0.1, v1.train.get_or_create_global_step()),
}


@program
def train(chief, ps, optimizer="adam", variables="ref", steps=200):
    """Trains the dense model on the chief, with its variables on the job ps. Returns the losses."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=1, ps_device=ps, worker_device=chief.device)):
        loss = dense_model(variables)
        step = v1.train.get_or_create_global_step()
        minimize = OPTIMIZERS[optimizer]().minimize(loss, global_step=step)
        init = v1.global_variables_initializer()
    with v1.Session(chief.target, config=config(chief, ps)) as session:
        session.run(init)
        losses = [session.run([loss, minimize])[0] for _ in range(steps)]
        return {"losses": losses, "step": session.run(step)}


def run(chief, on, fetches, feed=None, times=1, initialise=True, **options):
    """Fetches from a session of the chief and the task of a device; with times, a list of what each step fetches."""
    with v1.Session(chief.target, config=config(chief, task_of(on), **options)) as session:
        if initialise and v1.global_variables():
            session.run(v1.global_variables_initializer())
        values = [session.run(fetches, feed) for _ in range(times)]
    return values[0] if times == 1 else values


def task_of(device):
    """The task of a device, as device filters want it."""
    return "/".join(part for part in device.split("/") if not part.startswith(("device:", "cpu:", "CPU:")))


DTYPES = "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 string".split()


def sample(dtype, shape, seed=1):
    """Values of a type, which every type of the same kind can hold."""
    random = np.random.RandomState(seed)
    if dtype == "bool":
        return random.randint(0, 2, shape).astype(bool)
    if dtype == "string":
        return np.array([b"\x00text\xff" * int(n) for n in random.randint(0, 5, shape).flatten()], dtype=object).reshape(shape)
    if dtype.startswith("complex"):
        return (random.randint(-50, 50, shape) + 1j * random.randint(-50, 50, shape)).astype(dtype)
    low = 0 if dtype.startswith("uint") else -50
    return random.randint(low, 50, shape).astype(tf.as_dtype(dtype).as_numpy_dtype)


def comparable(x):
    """An array as JSON can have it and the test can compare it: NumPy has no JSON for bfloat16 and strings."""
    x = np.asarray(x)
    if x.dtype == object or x.dtype.kind in "SU":
        return {"dtype": "string", "shape": list(x.shape), "values": [v.hex() for v in x.flatten().tolist()]}
    return {"dtype": str(x.dtype), "shape": list(x.shape), "bytes": x.tobytes().hex()}


@program
def echo(chief, on, dtype, shape):
    """Feeds a value to the device and fetches it from there, and from the chief after a way back."""
    p = v1.placeholder(dtype, shape)
    with v1.device(on):
        there = tf.identity(p)
    with v1.device(chief.device):
        back = tf.identity(there)
    value = sample(dtype, shape)
    with v1.device(on):
        constant = tf.constant(value, dtype)
    return [comparable(v) for v in run(chief, on, [there, back, constant], {p: value})]


@program
def large(chief, on, mib):
    """A tensor of so many MiB to the device and back: returns sums that TensorFlow computes of what comes back."""
    with v1.device(chief.device):
        x = tf.reshape(tf.range(mib << 18, dtype=tf.int32), [mib, -1])
    with v1.device(on):
        there = x + 1  # Grappler would leave an Identity out, and the way with it
    with v1.device(chief.device):
        same = tf.reduce_all(tf.equal(x, there - 1))
        size = tf.size(there)
    return [v.item() for v in run(chief, on, [same, size])]


@program
def control(chief, on):
    """Control edges in both directions: the assignment runs between two reads, which run on the other side."""
    with v1.device(on):
        v = v1.get_variable("v", initializer=tf.constant([1.0, 2.0]), use_resource=False)
    with v1.device(chief.device):
        w = v1.get_variable("w", initializer=tf.constant([5.0, 6.0]), use_resource=False)
        with tf.control_dependencies([v1.assign(w, [7.0, 8.0])]):
            pass
        first = v1.assign_add(w, [1.0, 1.0]).op
    with v1.device(on), tf.control_dependencies([first]):
        second = v1.assign_add(v, [10.0, 10.0]).op
    with v1.device(chief.device), tf.control_dependencies([second]):
        third = v1.assign_add(w, [100.0, 100.0])
    with v1.device(on), tf.control_dependencies([third]):
        after = tf.raw_ops.Identity(input=v._ref())  # v itself may be read before or after the assignments
    return [x.tolist() for x in run(chief, on, [third, after], times=3)[-1]]


@program
def loop(chief, on, v2=False, n=10):
    """A loop whose body is on both sides; its condition is on the chief."""
    if v2:
        v1.enable_control_flow_v2()

    def body(i, x):
        with v1.device(on):
            y = x * 2.0 + tf.cast(i, tf.float32)
        with v1.device(chief.device):
            return i + 1, y - 1.0

    try:
        with v1.device(chief.device):
            _, x = tf.while_loop(lambda i, _: i < n, body, [tf.constant(0), tf.constant([1.0, 2.0])])
    finally:
        v1.disable_control_flow_v2()
    return run(chief, on, x).tolist()


@program
def loop_there(chief, on, n=10):
    """A loop that is on the device, inside of another."""
    with v1.device(on):

        def outer(i, x):
            _, y = tf.while_loop(lambda j, _: j < i, lambda j, y: (j + 1, y + 1.5), [tf.constant(0), x])
            return i + 1, y

        _, x = tf.while_loop(lambda i, _: i < n, outer, [tf.constant(0), tf.constant([1.0, 2.0])])
    return run(chief, on, x).tolist()


@program
def loop_accumulates(chief, on, n=5):
    """A loop on both sides with an invariant of the outside, and the gradient through it."""
    with v1.device(on):
        w = v1.get_variable("w", initializer=tf.constant([0.5, 0.25]), use_resource=False)

    def body(i, x):
        with v1.device(on):
            y = x * w
        with v1.device(chief.device):
            return i + 1, y + 1.0

    with v1.device(chief.device):
        _, x = tf.while_loop(lambda i, _: i < n, body, [tf.constant(0), tf.constant([1.0, 2.0])])
        loss = tf.reduce_sum(x)
        grad = tf.gradients(loss, x)
    return [v.tolist() for v in run(chief, on, [x, grad[0]])]


@program
def condition(chief, on, taken, v2=False):
    """A cond with a branch on each side. The other branch is dead, across the two."""
    if v2:
        v1.enable_control_flow_v2()
    p = v1.placeholder(tf.bool, [])
    with v1.device(chief.device):
        x = tf.constant([1.0, 2.0]) * v1.placeholder_with_default(3.0, [])

    def then():
        with v1.device(on):
            return x + 10.0

    def otherwise():
        with v1.device(on):
            y = x * 2.0
        with v1.device(chief.device):
            return y - 1.0

    try:
        with v1.device(chief.device):
            r = tf.cond(p, then, otherwise)
    finally:
        v1.disable_control_flow_v2()
    return run(chief, on, r, {p: taken}).tolist()


@program
def dead(chief, on, taken):
    """A Switch on the chief, a Merge on the device: one of its inputs is dead."""
    p = v1.placeholder(tf.bool, [])
    with v1.device(chief.device):
        false, true = tf.raw_ops.Switch(data=tf.constant([4.0]), pred=p)
        true = true * 3.0
    with v1.device(on):
        false = false + 1.0
        merged, index = tf.raw_ops.Merge(inputs=[false, true])
    return [v.tolist() for v in run(chief, on, [merged, index], {p: taken})]


@program
def function(chief, on):
    """A function that is called on the device, and one that it calls."""
    from tensorflow.python.framework import function as f

    @f.Defun(tf.float32, func_name="twice", noinline=True)
    def twice(x):
        return x * 2.0

    @f.Defun(tf.float32, tf.float32, func_name="sum_and_twice", noinline=True)
    def both(x, y):
        return x + y, twice(x - y)

    with v1.device(on):
        a, b = both(tf.constant([3.0, 4.0]), tf.identity(v1.placeholder_with_default([1.0, 1.0], [2])))
        c = tf.function(lambda x: tf.tanh(x) + twice(x))(a)
    return [v.tolist() for v in run(chief, on, [a, b, c])]


@program
def embedding(chief, ps, optimizer="sgd", variables="ref", steps=20, width=8):
    """Trains an embedding on the ps by gather and sparse updates. Returns the losses and the lengths of the rows."""
    random = np.random.RandomState(3)
    with v1.device(v1.train.replica_device_setter(ps_tasks=1, ps_device=ps, worker_device=chief.device)):
        name = "table" if width == 8 else f"table_of_{width}"  # a TensorFlow ps keeps variables by name
        table = v1.get_variable(name, [50, width], use_resource=variables == "resource")
        ids = v1.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        loss = tf.reduce_mean(tf.square(rows - 1.0))
        minimize = OPTIMIZERS[optimizer]().minimize(loss)
        init = v1.global_variables_initializer()
    with v1.Session(chief.target, config=config(chief, ps)) as session:
        session.run(init)
        losses = [session.run([loss, minimize], {ids: random.randint(0, 50, 16)})[0] for _ in range(steps)]
        return {"losses": losses, "rows": np.linalg.norm(session.run(table), axis=1).tolist()}


@program
def partitioned_embedding(chief, ps, tasks=1, variables="ref"):
    """An embedding in three parts, which TensorFlow puts together by DynamicPartition and DynamicStitch."""
    random = np.random.RandomState(3)
    with v1.device(v1.train.replica_device_setter(ps_tasks=tasks, ps_device=ps, worker_device=chief.device)):
        table = v1.get_variable(
            "table", [50, 8], use_resource=variables == "resource", partitioner=v1.fixed_size_partitioner(3)
        )
        ids = v1.placeholder(tf.int64, [None])
        loss = tf.reduce_mean(tf.square(tf.nn.embedding_lookup(table, ids) - 1.0))
        minimize = OPTIMIZERS["adam"]().minimize(loss)
        init = v1.global_variables_initializer()
    with v1.Session(chief.target, config=config(chief, ps)) as session:
        session.run(init)
        return [session.run([loss, minimize], {ids: random.randint(0, 50, 16)})[0] for _ in range(20)]


@program
def partial(chief, on):
    """A partial run: two feeds and two fetches in three steps, over state on both sides."""
    a, b = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [])
    with v1.device(on):
        x = a * 2.0
        y = x + b
    with v1.device(chief.device):
        z = y * 10.0
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        h = session.partial_run_setup([x, y, z], [a, b])
        first = session.partial_run(h, x, {a: 3.0})
        second = session.partial_run(h, y, {b: first + 1.0})
        third = session.partial_run(h, z)
        return [float(first), float(second), float(third)]


@program
def monitored(chief, ps, directory, steps, variables="ref", pause=None):
    """Trains in a MonitoredTrainingSession with a checkpoint at its end. Returns the losses and the step at the start.

    Tells the test when it has made so many steps."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=1, ps_device=ps, worker_device=chief.device)):
        loss = dense_model(variables)
        step = v1.train.get_or_create_global_step()
        minimize = OPTIMIZERS["adam"]().minimize(loss, global_step=step)
    with v1.train.MonitoredTrainingSession(
        chief.target, checkpoint_dir=directory, save_checkpoint_steps=50, save_summaries_steps=None, log_step_count_steps=None,
        config=config(chief, ps), hooks=[v1.train.StopAtStepHook(num_steps=steps)],
    ) as session:
        first = int(session.run_step_fn(lambda step_context: step_context.session.run(step)))
        losses = []
        while not session.should_stop():
            if len(losses) == pause:
                chief.event("half-way")
            losses.append(float(session.run([loss, minimize])[0]))
    return {"first": first, "losses": losses}


@program
def save_parts(chief, ps, prefix, parts, save):
    """Saves or restores a variable in parts and others on two tasks, by a Saver that writes a file for each. Returns the values."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=2, ps_device=ps, worker_device=chief.device)):
        table = v1.get_variable("table", [50, 8], initializer=v1.random_uniform_initializer(seed=1), partitioner=v1.fixed_size_partitioner(parts))
        others = [
            v1.get_variable("half", initializer=tf.constant(np.arange(12).reshape(3, 4) / 7, tf.float16)),
            v1.get_variable("brain", [5], tf.bfloat16, v1.constant_initializer(1.5)),
            v1.get_variable("text", initializer=tf.constant(["a", "", "long" * 100])),
            v1.get_variable("step", initializer=tf.constant(2**40, tf.int64), use_resource=True),
            v1.get_variable("flags", initializer=tf.constant([True, False]), use_resource=True),
            v1.get_variable("empty", [0, 7], use_resource=True),
        ]
        saver = v1.train.Saver(sharded=True)
    with v1.Session(chief.target, config=config(chief, ps, isolate_session_state=True)) as session:
        if save:
            session.run(v1.global_variables_initializer())
            saver.save(session, prefix)
        else:
            saver.restore(session, prefix)
        values = session.run([tf.convert_to_tensor(table), *others])
    return [v.astype(str if v.dtype == object else float).tolist() for v in map(np.asarray, values)]


@program
def sync_replicas(chief, ps, steps, pause=0, variables="ref"):
    """Trains as one of two workers, the first of which is the chief, on gradients that are averaged on two tasks (SyncReplicasOptimizer).

    Tells the test when the session is there, and when this worker has made so many steps. Returns its first and last loss, and the last step."""
    first = chief.task == 0
    device = v1.train.replica_device_setter(ps_tasks=2, ps_device=ps, worker_device=chief.device)
    with v1.device(device), v1.get_default_graph().container(f"sync-{variables}"):  # whose chief closes its queue
        with v1.variable_scope("", use_resource=variables == "resource"):
            step = v1.train.get_or_create_global_step()
            loss = dense_model(variables)
            optimizer = v1.train.SyncReplicasOptimizer(OPTIMIZERS["adam"](), replicas_to_aggregate=2, total_num_replicas=2)
            minimize = optimizer.minimize(loss, global_step=step)
    with v1.train.MonitoredTrainingSession(
        chief.target, is_chief=first, hooks=[optimizer.make_session_run_hook(first), v1.train.StopAtStepHook(last_step=steps)],
        save_summaries_steps=None, log_step_count_steps=None, stop_grace_period_secs=1, config=config(chief, ps),
    ) as session:
        chief.event("session")
        losses, last = [], 0
        while not session.should_stop():
            if len(losses) == pause:
                chief.event("half-way")
            x, _, last = session.run([loss, minimize, step])
            losses.append(float(x))
    return {"first": losses[0], "last": losses[-1], "step": last}


@program
def model_there(chief, on, steps=50, variables="ref", optimizer="adam"):
    """The whole dense model on the device: also its forward and backward pass."""
    with v1.device(on):
        loss = dense_model(variables)
        minimize = OPTIMIZERS[optimizer]().minimize(loss)
        init = v1.global_variables_initializer()
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        session.run(init)
        return [session.run([loss, minimize])[0] for _ in range(steps)]


@program
def read_after_update(chief, on, size, steps=3):
    """Values that were read from variables before an update, by nodes that run after it: what is read is the memory of the variable."""
    with v1.device(on):
        v = v1.get_variable(f"v{size}", [size], initializer=v1.zeros_initializer(), use_resource=False)
        flag = v1.get_variable("flag", [], dtype=tf.bool, initializer=v1.zeros_initializer(), use_resource=False)
        read, flag_read = tf.identity(v), tf.identity(flag)
    with v1.device(chief.device):
        delta, yes = v1.placeholder(tf.float32, [size]), v1.placeholder(tf.bool, [])
    with v1.device(on):
        with tf.control_dependencies([v1.assign_add(v, delta), v1.assign(flag, yes)]):
            sums = tf.reduce_sum(read + 1), tf.reduce_sum(v + 1)
            handed_on = tf.reduce_sum(tf.stop_gradient(tf.identity(read)))
            branch = tf.cond(yes, lambda: tf.reduce_sum(read) + 1, lambda: tf.reduce_sum(v) - 1)
            flagged = tf.cond(flag_read, lambda: tf.constant(1), lambda: tf.constant(2))
            loop = tf.while_loop(lambda x: x < 100.0, lambda x: x + tf.reduce_sum(read) + 1, [tf.reduce_sum(v)])
            sent = tf.identity(read)
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        session.run(v1.global_variables_initializer())
        fetches = [*sums, handed_on, branch, flagged, loop, sent]
        return [[np.ravel(x).tolist() for x in session.run(fetches, {delta: np.full([size], i + 1.0), yes: i % 2 == 0})] for i in range(steps)]


@program
def initialisers(chief, on):
    """The values of initialisers with a seed, which are the same on any machine."""
    makers = {
        "glorot_uniform": v1.glorot_uniform_initializer(seed=3),
        "glorot_normal": v1.glorot_normal_initializer(seed=4),
        "truncated_normal": v1.truncated_normal_initializer(stddev=0.1, seed=5),
        "random_normal": v1.random_normal_initializer(seed=6),
        "random_uniform": v1.random_uniform_initializer(-1.0, 1.0, seed=7),
        "variance_scaling": v1.variance_scaling_initializer(seed=8),
        "orthogonal": None,
        "zeros": v1.zeros_initializer(),
        "ones": v1.ones_initializer(),
        "constant": v1.constant_initializer(0.25),
    }
    with v1.device(on):
        values = {k: m([13, 7], dtype=tf.float32) for k, m in makers.items() if m is not None}
        values["random_int"] = tf.random.uniform([13, 7], maxval=100, dtype=tf.int32, seed=9)
        values["random_double"] = tf.random.normal([13], dtype=tf.float64, seed=10)
    return {k: v.flatten().tolist() for k, v in run(chief, on, values).items()}


@program
def random_twice(chief, on, isolated=False):
    """Random nodes that are fetched by three graphs of a session, and by those of another session in between, with seeds of the node and of the graph."""

    def graph():
        with tf.Graph().as_default() as g, v1.device(on):
            v1.set_random_seed(11)
            size = v1.placeholder_with_default([5], [1])
            nodes = {
                "uniform": tf.random.uniform([7], seed=3),
                "normal": tf.random.normal([2, 3], seed=4),
                "truncated": tf.random.truncated_normal([9], seed=5, dtype=tf.float64),
                "int": tf.random.uniform([5], maxval=1000, dtype=tf.int32, seed=6),
                "of the graph's seed": tf.random.normal(size),
                "the same again": tf.random.normal(size),
            }
            nodes["in a loop"] = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x + tf.random.uniform([2], seed=7)), [0, tf.zeros([2])])[1]
            nodes["in a branch"] = tf.cond(size[0] > 4, lambda: tf.random.normal([2], seed=8), lambda: tf.zeros([2]))
            nodes["dropout"] = v1.nn.dropout(tf.ones([20]) * nodes["normal"][0][0], rate=0.5, seed=9)
            nodes["of both"] = tf.random.uniform([3]) + nodes["uniform"][:3]
        return g, nodes

    built = [graph() for _ in range(2)]
    opened = [v1.Session(chief.target, graph=g, config=config(chief, task_of(on), isolate_session_state=isolated)) for g, _ in built]
    alone, some, every = ["uniform"], ["uniform", "normal", "of the graph's seed"], list(built[0][1])
    values = []
    for turn in ([alone, every], [some, alone], [every, some], [alone, every], [every, every]):
        for session, (_, nodes), names in zip(opened, built, turn):
            values.append({k: v.flatten().tolist() for k, v in session.run({k: nodes[k] for k in names}).items()})
    for session in opened:
        session.close()
    return values


@program
def random_in_function(chief, on):
    """A random node in a function that is not inlined. Nodes call it in two graphs of each of two sessions, and two nodes in one graph."""
    noise = tf.function(lambda x: x + v1.random_uniform([4], seed=8), autograph=False, experimental_attributes={"_noinline": True})
    with v1.device(on):
        x = v1.placeholder_with_default(10.0, [])
        first = noise(x)
        with tf.control_dependencies([first]):
            second = noise(x * 2.0)
    opened = [v1.Session(chief.target, config=config(chief, task_of(on))) for _ in range(2)]
    turns = [(0, [first]), (0, [first]), (1, [first]), (0, [first, x]), (1, [first]), (0, [first, second]), (0, [first, second]), (0, [first])]
    values = [[v.flatten().tolist() for v in opened[i].run(fetches)] for i, fetches in turns]
    for session in opened:
        session.close()
    return values


@program
def sessions(chief, on, isolated=False, steps=50):
    """Two sessions at once, in threads, each with a variable of the same name. Returns the sums; a shared variable has the steps of both."""

    def graph():
        with tf.Graph().as_default() as g, v1.device(on):
            v = v1.get_variable("both", initializer=tf.constant(0), use_resource=False)
            add = v1.assign_add(v, 1, use_locking=True)
        return g, v, add

    built = [graph() for _ in range(2)]
    opened = [v1.Session(chief.target, graph=g, config=config(chief, task_of(on), isolate_session_state=isolated)) for g, _, _ in built]
    for s, (_, v, _) in zip(opened, built):
        s.run(v.initializer)
    threads = [
        threading.Thread(target=lambda s=s, add=add: [s.run(add.op) for _ in range(steps)]) for s, (_, _, add) in zip(opened, built)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    values = [int(s.run(v)) for s, (_, v, _) in zip(opened, built)]
    for s in opened:
        s.close()
    return values


@program
def reset(chief, on, container=""):
    """Session.reset of all containers or of one: which of two variables are initialised before and after."""
    with v1.device(on):
        a = v1.get_variable("default_one", initializer=tf.constant(1.0), use_resource=False)
        with v1.container("box"):
            b = v1.get_variable("boxed_one", initializer=tf.constant(2.0), use_resource=False)
        has = [v1.is_variable_initialized(v) for v in (a, b)]

    def look(init):
        with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
            if init:
                session.run(v1.global_variables_initializer())
            return [bool(v) for v in session.run(has)]

    before = look(True)
    still = look(False)
    v1.Session.reset(chief.target, [container] if container else None, config=config(chief, task_of(on)))
    return [before, still, look(False)]


@program
def filters(chief, on):
    """A node on a task that the session's filters exclude; then a session that includes it."""
    with v1.device(on):
        x = tf.constant(1.0) + v1.placeholder_with_default(1.0, [])
    c = v1.ConfigProto()
    c.device_filters.append(chief.device)
    try:
        with v1.Session(chief.target, config=c) as session:
            refused = str(session.run(x))
    except tf.errors.InvalidArgumentError as e:
        refused = "Cannot assign a device" in e.message
    return [refused, float(run(chief, on, x))]


@program
def propagation(chief, on, cluster):
    """A session that brings its own cluster, in which tasks have other names."""
    with v1.device(on):
        v = v1.get_variable("v", initializer=tf.constant([1.0, 2.0]), use_resource=False)
        add = v1.assign_add(v, [10.0, 10.0])
    with v1.device("/job:boss/task:0"):
        out = add * 2.0
    c = v1.ConfigProto(cluster_def=tf.train.ClusterSpec(cluster).as_cluster_def())
    with v1.Session(chief.target, config=c) as session:
        session.run(v.initializer)
        values = [session.run(out).tolist() for _ in range(3)]
        return [values, sorted(d.name for d in session.list_devices())]


@program
def propagation_between(chief, on, here, cluster):
    """A session that brings its own cluster: small and large values between two of its devices, both ways, with a variable on one."""
    with v1.device(on):
        v = v1.get_variable("v", initializer=tf.constant([1.0, 2.0]), use_resource=False)
        small = v1.assign_add(v, [10.0, 10.0])
        large = tf.tile(small, [1 << 19])
    with v1.device(here):
        total = tf.reduce_sum(tf.reshape(large, [-1, 2]), 0) / float(1 << 19)
        back = large * 2.0
    with v1.device(on):
        out = tf.concat([total, small * 3.0, back[:3]], 0)
    c = v1.ConfigProto(cluster_def=tf.train.ClusterSpec(cluster).as_cluster_def())
    with v1.Session(chief.target, config=c) as session:
        session.run(v.initializer)
        return [session.run(out).tolist() for _ in range(3)]


@program
def server_def(chief, cluster, job, task, filters):
    """What a master that propagates a cluster sends to a task: the ServerDef, in hexadecimal, with device filters for the task as TensorFlow writes them."""
    from tensorflow.python.training import server_lib

    f = server_lib.ClusterDeviceFilters()
    f.set_device_filters(job, task, filters)
    d = tf.train.ServerDef(cluster=tf.train.ClusterSpec(cluster).as_cluster_def(), job_name=job, task_index=task, protocol="grpc")
    d.cluster_device_filters.CopyFrom(f._as_cluster_device_filters())
    return d.SerializeToString().hex()


FAILURES = {
    "gather": lambda: tf.gather(tf.constant([1.0, 2.0, 3.0]), v1.placeholder_with_default([1, 9], [2])),
    "reshape": lambda: tf.reshape(tf.constant([1.0, 2.0, 3.0]), v1.placeholder_with_default([2, 2], [2])),
    "divide": lambda: v1.div(tf.constant([4, 6]), v1.placeholder_with_default([2, 0], [2])),
    "uninitialised": lambda: tf.raw_ops.AddV2(x=v1.get_variable("never", [2], use_resource=False)._ref(), y=[1.0, 2.0]),
    "uninitialised resource": lambda: tf.raw_ops.ReadVariableOp(resource=v1.get_variable("never", [2], use_resource=True).handle, dtype=tf.float32),
    "add": lambda: tf.raw_ops.AddV2(x=v1.placeholder_with_default([1.0, 2.0], [None]), y=v1.placeholder_with_default([1.0, 2.0, 3.0], [None])),
}


@program
def failure(chief, on, kind, where):
    """A kernel that fails on the device or on the chief, while the other side waits for a value that depends on it."""
    # The kernel on the chief fails after the step has begun on the device: a master can lose the cancel of a call that it has not sent yet.
    with v1.device(on):
        begun = v1.placeholder_with_default(1.0, []) + 1.0
    with v1.device(on if where == "there" else chief.device), tf.control_dependencies([begun]):
        x = FAILURES[kind]()
    with v1.device(chief.device if where == "there" else on):
        y = tf.identity(x) * tf.constant(2, x.dtype)
    return run(chief, on, y, initialise=False).tolist()


@program
def aggregated(chief, on, where, other, order):
    """A kernel fails on one side, while the other is in an op that takes its time or in a receive."""
    failing, rest = (on, chief.device) if where == "there" else (chief.device, on)
    with v1.device(rest):
        begun = v1.placeholder_with_default(1.0, []) + 1.0
    with v1.device(failing), tf.control_dependencies([begun] if order == "after" else []):
        x = FAILURES["gather"]()
    with v1.device(rest):
        if other == "receive":
            y = tf.identity(x) * 2.0
        elif rest == chief.device:  # a cancelled dequeue of TensorFlow would be an error of its own
            with tf.control_dependencies([begun]):
                y = tf.numpy_function(lambda: np.float32(time.sleep(0.2) or 1.0), [], tf.float32)
        else:
            queue = v1.FIFOQueue(1, tf.float32, [[]], shared_name=f"never_fed_{where}_{order}")
            with tf.control_dependencies([begun]):
                y = queue.dequeue() + 1.0
    return run(chief, on, [x, y], initialise=False)


@program
def devices(chief, on):
    """What the master reports of the devices of a task: type and memory."""
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        return sorted([d.name.split("/")[-1], d.device_type, d.memory_limit_bytes] for d in session.list_devices() if task_of(on) in d.name.replace("/replica:0", ""))


def waiting(chief, on, how="receive"):
    """A graph that runs for good on both sides: first it adds one to a variable on the device. Then the device waits for the chief (receive), or
    in a kernel of its own (dequeue), or computes in a loop, which may be in a function (loop, called_loop)."""
    with v1.device(on):
        started = v1.get_variable(f"started_{how}", initializer=tf.constant(0), use_resource=False)
        with tf.control_dependencies([v1.assign_add(started, 1)]):
            begun = tf.constant(1.0)
    if how == "receive":
        with v1.device(chief.device):
            value = NEVER[how]()
    else:
        with v1.device(on), tf.control_dependencies([begun]):
            value = NEVER[how]()
    with v1.device(on):
        out = value + begun
    return started, out


def endless(x):
    """A loop without an end."""
    return tf.while_loop(lambda x: x > 0.0, lambda x: 3.0 - x, [x])


def called_endless():
    """A call of a function with such a loop."""
    from tensorflow.python.framework import function as f

    return f.Defun(tf.float32, func_name="endless", noinline=True)(endless)(tf.constant(1.0))


def never_fed():
    """An element of a queue that has none."""
    return v1.FIFOQueue(1, tf.float32, [[]], shared_name="never_fed").dequeue()


NEVER = {"receive": never_fed, "dequeue": never_fed, "loop": lambda: endless(tf.constant(1.0)), "called_loop": called_endless}


def run_in_thread(session, fetch, *more):
    """Runs a fetch in a thread. Returns a function that waits for its end, and returns the error's code."""
    ended = []

    def body():
        try:
            session.run(fetch, *more)
            ended.append(0)
        except tf.errors.OpError as e:
            ended.append(e.error_code)
        except RuntimeError:  # of a session that the client has closed
            ended.append(-1)

    thread = threading.Thread(target=body)
    thread.start()

    def wait():
        thread.join(60)
        return ended[0] if ended else "it does not end"

    return wait


@program
def closed_in_step(chief, on, how="receive"):
    """A session is closed while a step waits. The step ends, and another session works."""
    started, out = waiting(chief, on, how)
    with v1.Session(chief.target, config=config(chief, task_of(on))) as other:
        other.run(started.initializer)
        session = v1.Session(chief.target, config=config(chief, task_of(on)))
        wait = run_in_thread(session, out)
        while other.run(started) == 0:
            pass
        session.close()
        return [wait() != 0, int(other.run(started))]


@program
def timeout_in_step(chief, on, how="receive"):
    """A step that waits has a timeout."""
    started, out = waiting(chief, on, how)
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        session.run(started.initializer)
        wait = run_in_thread(session, out, None, v1.RunOptions(timeout_in_ms=2000))
        return [wait(), int(session.run(started))]


@program
def killed_between_steps(chief, on):
    """The test kills the device's process and starts it again, between two steps. The session ends with an error, the next one works."""
    with v1.device(on):
        v = v1.get_variable("v", initializer=tf.constant(1.0), use_resource=False)
        add = v1.assign_add(v, 1.0)
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        session.run(v.initializer)
        first = float(session.run(add))
        chief.event("between steps")
        codes = []
        try:
            session.run(add)
        except tf.errors.OpError as e:
            codes.append(e.error_code)
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        initialised = bool(session.run(v1.is_variable_initialized(v)))
        session.run(v.initializer)
        return {"first": first, "codes": codes, "initialised": initialised, "second": float(session.run(add))}


@program
def killed_in_step(chief, on, how="receive"):
    """The test kills the device's process in a step. The step ends with an error, and with the process back another session works."""
    started, out = waiting(chief, on, how)
    session = v1.Session(chief.target, config=config(chief, task_of(on)))
    session.run(started.initializer)
    wait = run_in_thread(session, out)
    with v1.Session(chief.target, config=config(chief, task_of(on))) as other:
        while other.run(started) == 0:
            pass
    chief.event("in a step")
    code = wait()
    chief.event("step ended")
    try:
        session.close()
    except tf.errors.OpError:
        pass
    with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
        session.run(started.initializer)
        return [code, int(session.run(started))]


@program
def two_devices(chief, on, here):
    """An edge between two devices and one back. Returns the value, and the devices in the trace of the step."""
    with v1.device(on):
        x = v1.placeholder_with_default([1.0, 2.0], [2]) * 2.0
    with v1.device(here):
        y = x + 1.0
    with v1.device(on):
        z = y * x
    with v1.Session(chief.target, config=config(chief, on, here)) as session:
        metadata = v1.RunMetadata()
        value = session.run(z, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=metadata)
        kernels = {d.device for d in metadata.step_stats.dev_stats for n in d.node_stats if n.node_name.endswith(("mul", "add"))}
        return [value.tolist(), sorted(kernels)]


@program
def same_names(chief, on, variables="ref"):
    """Two variables with one name for others to share, on two devices: each device has its own."""
    values = []
    for i, device in enumerate([on, chief.device]):
        with v1.device(device):
            if variables == "ref":
                v = tf.raw_ops.VariableV2(shape=[], dtype=tf.float32, shared_name="same_name")
                init = tf.raw_ops.Assign(ref=v, value=float(i))
            else:
                v = tf.raw_ops.VarHandleOp(shape=[], dtype=tf.float32, shared_name="same_name_too")
                init = tf.raw_ops.AssignVariableOp(resource=v, value=tf.constant(float(i)))
            values.append((init, tf.raw_ops.Identity(input=v) if variables == "ref" else tf.raw_ops.ReadVariableOp(resource=v, dtype=tf.float32)))
    with v1.Session(chief.target, config=config(chief, on)) as session:
        for init, _ in values:
            session.run(init)
        return [float(session.run(v)) for _, v in values]


@program
def kernel_process_killed(chief, ps, steps=20):
    """Trains. Then the test kills the process of the kernels in a step that waits in one. Trains again in a new session. Returns the losses of both, and
    the code and text of the error between them."""
    first = train(chief, ps, steps=steps)["losses"]
    with v1.device(ps + "/task:0"):
        started = v1.get_variable("started", initializer=tf.constant(0), use_resource=False)
        queue = v1.FIFOQueue(1, tf.float32, [[]], shared_name="never_fed")
        with tf.control_dependencies([v1.assign_add(started, 1)]):
            never = queue.dequeue()
    errors = []

    def step(session):
        try:
            session.run(never)
        except tf.errors.OpError as e:
            errors.append([e.error_code, e.message])

    with v1.Session(chief.target, config=config(chief, ps)) as session:
        session.run(started.initializer)
        thread = threading.Thread(target=step, args=(session,))
        thread.start()
        while session.run(started) == 0:
            pass
        chief.event("in a step")
        thread.join(60)
    with tf.Graph().as_default():
        v1.set_random_seed(1)
        return {"first": first, "error": errors, "second": train(chief, ps, steps=steps)["losses"]}


@program
def failed_check(chief, on):
    """A step that fails an internal check of TensorFlow, with which it ends its process: the index of a list must be a scalar, and its shape is not known
    before the step. Returns the code and text of the error, and what another session gets."""
    with v1.device(on):
        items = tf.raw_ops.TensorListFromTensor(tensor=v1.placeholder_with_default([[1.0], [2.0]], [2, 1]), element_shape=[1])
        index = v1.placeholder_with_default([0, 1], None)
        item = tf.raw_ops.TensorListGetItem(input_handle=items, index=index, element_shape=[1], element_dtype=tf.float32)
    try:
        error = [0, str(run(chief, on, item))]
    except tf.errors.OpError as e:
        error = [e.error_code, e.message]
    return {"error": error, "after": run(chief, on, item, {index: 1}).tolist()}


@program
def touch_file(chief, on, path, how):
    """A graph that reads or writes a file on the task, in one of several ways. Returns the error of the step, or its value."""
    name = v1.placeholder_with_default(path, [])
    with v1.device(on):
        if how == "read":
            out = tf.io.read_file(name)
        elif how == "write":
            with tf.control_dependencies([tf.io.write_file(name, "written")]):
                out = tf.constant("done")
        elif how == "function":
            out = tf.function(lambda n: tf.io.read_file(n))(name)
        elif how == "nested":
            out = tf.cond(tf.strings.length(name) > 0, lambda: tf.function(lambda n: tf.io.read_file(n))(name), lambda: tf.constant(""))
        elif how == "print":
            with tf.control_dependencies([tf.print("written", output_stream="file://" + path)]):
                out = tf.constant("done")
        elif how == "print to stderr":
            with tf.control_dependencies([tf.print("a line of a test")]):
                out = tf.constant("done")
        else:
            data = tf.data.Dataset.from_tensors("value")
            if how == "map":
                data = data.map(lambda _: tf.io.read_file(path))
            elif how == "cache":
                data = data.cache(path)
            elif how == "cache in memory":
                data = data.cache()
            iterator = v1.data.make_initializable_iterator(data)
            out = iterator.get_next()
    try:
        with v1.Session(chief.target, config=config(chief, task_of(on))) as session:
            if how in ("map", "cache", "cache in memory"):
                session.run(iterator.initializer)
            return [0, session.run(out).decode()]
    except tf.errors.OpError as e:
        return [e.error_code, e.message]


@program
def wait_in_step(chief, on, how="receive"):
    """Waits in a step for good: the test kills this process."""
    started, out = waiting(chief, on, how)
    session = v1.Session(chief.target, config=config(chief, task_of(on)))
    session.run(started.initializer)
    run_in_thread(session, out)
    with v1.Session(chief.target, config=config(chief, task_of(on))) as other:
        while other.run(started) == 0:
            pass
    chief.event("in a step")


@program
def train_with_pause(chief, ps, at=None, steps=60, optimizer="adam"):
    """Trains, and tells the test when it has made so many steps. Returns the losses."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=1, ps_device=ps, worker_device=chief.device)):
        loss = dense_model("ref")
        minimize = OPTIMIZERS[optimizer]().minimize(loss)
        init = v1.global_variables_initializer()
    losses = []
    with v1.Session(chief.target, config=config(chief, ps)) as session:
        session.run(init)
        for i in range(steps):
            if i == at:
                chief.event("half-way")
            losses.append(float(session.run([loss, minimize])[0]))
    return losses


@program
def trace(chief, ps, several):
    """A step with FULL_TRACE, or several: the kernels and transfers of the device, from the step stats that the master collects."""
    with v1.device(v1.train.replica_device_setter(ps_tasks=1, ps_device=ps, worker_device=chief.device)):
        loss = dense_model("ref")
        minimize = OPTIMIZERS["adam"]().minimize(loss)
        init = v1.global_variables_initializer()
    with v1.Session(chief.target, config=config(chief, ps)) as session:
        session.run(init)
        session.run(minimize)
        nodes, transfers, timed, quiet = set(), set(), True, 0
        for _ in range(100):
            metadata, before = v1.RunMetadata(), len(nodes) + len(transfers)
            session.run([loss, minimize], options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=metadata)
            for n in (n for d in metadata.step_stats.dev_stats if d.device.startswith(ps + "/") for n in d.node_stats):
                timed = timed and n.all_start_micros > 0 and n.all_end_rel_micros >= 0
                if n.node_name == "RecvTensor":
                    transfers.add(n.timeline_label.split("] ")[-1])
                else:
                    nodes.add(n.node_name)
            quiet = 0 if not transfers or len(nodes) + len(transfers) > before else quiet + 1
            if quiet == 5 or not several:
                break
    from tensorflow.python.client import timeline

    chrome = timeline.Timeline(metadata.step_stats).generate_chrome_trace_format()
    return {"nodes": sorted(nodes), "transfers": sorted(transfers), "timed": timed, "chrome": len(chrome) > 1000,
            "devices": sorted({d.device for d in metadata.step_stats.dev_stats})}


def collective_session(chief, leader):
    """A session whose steps have collectives."""
    c = v1.ConfigProto()
    c.experimental.collective_group_leader = leader
    return v1.Session(chief.target, config=c)


@program
def all_reduce(chief, job, size, instance, n, dtype="float32", v2=True, merge="Add", final="Div", steps=3):
    """All-reduce of n elements among the first tasks of a job, one device each. Each call needs an instance key of its own. Returns what each task got at each step."""
    from tensorflow.python.ops import collective_ops

    results = []
    for i in range(size):
        with v1.device(f"/job:{job}/task:{i}"):
            x = tf.constant(sample(dtype, [n], seed=i + 1)) * tf.cast(v1.placeholder_with_default(1.0, [], name=f"scale{i}"), dtype)
            if v2:
                results.append(collective_ops.all_reduce_v2(x, size, 7, instance, merge_op=merge, final_op=final, communication_hint="ring"))
            else:
                results.append(collective_ops.all_reduce(x, size, 7, instance, merge, final, subdiv_offsets=(0,), communication_hint="ring"))
    with collective_session(chief, f"/job:{job}/replica:0/task:0") as session:
        options = v1.RunOptions()
        options.experimental.collective_graph_key = 5
        return [[r.tolist() for r in session.run(results, options=options)] for _ in range(steps)]


@program
def broadcast_and_gather(chief, job, size, instance, source, n=10):
    """A broadcast from a task and a gather among the first tasks of a job."""
    from tensorflow.python.ops import collective_ops

    results = []
    for i in range(size):
        with v1.device(f"/job:{job}/task:{i}"):
            x = tf.constant(sample("float32", [2, n], seed=i + 1))
            if i == source:
                results.append(collective_ops.broadcast_send_v2(x, size, 7, instance))
            else:
                results.append(collective_ops.broadcast_recv_v2([2, n], tf.float32, size, 7, instance))
            results.append(collective_ops.all_gather_v2(x, size, 7, instance + 1))
    with collective_session(chief, f"/job:{job}/replica:0/task:0") as session:
        options = v1.RunOptions()
        options.experimental.collective_graph_key = 6
        return [r.tolist() for r in session.run(results, options=options)]


def timed_graph(chief, on, kind, mib, ops):
    """The graph of a measurement: what initialises it, what a step fetches."""
    n = mib << 18
    with v1.device(on):
        if kind == "empty":
            return tf.no_op()
        if kind == "chain":
            x = v = v1.get_variable("v", initializer=tf.ones([2]), use_resource=False)
            for _ in range(ops):
                x = tf.raw_ops.AddV2(x=x, y=v)
            return x.op
        if kind == "from":  # the chief receives a tensor from the device
            v = v1.get_variable("v", initializer=tf.ones([n]), use_resource=False)
            with v1.device(chief.device):
                return v1.strided_slice(v, [0], [1]).op
        if kind == "to":  # the device receives a tensor from the chief
            with v1.device(chief.device):
                v = v1.get_variable("v", initializer=tf.ones([n]), use_resource=False)
            return v1.strided_slice(v, [0], [1]).op
        if kind == "small":  # 500 tensors of 8 bytes in a step
            vs = [v1.get_variable(f"v{i}", initializer=tf.ones([2]), use_resource=False) for i in range(500)]
            with v1.device(chief.device):
                return tf.add_n(vs).op
        if kind == "variables":  # small ones: pull, push gradients, Adam
            vs = [v1.get_variable(f"v{i}", initializer=tf.ones([16, 16]), use_resource=False) for i in range(ops)]
            optimizer = OPTIMIZERS["adam"]()
            with v1.device(chief.device):
                gradients = [v * 0.5 for v in vs]
            return optimizer.apply_gradients(zip(gradients, vs))
        if kind == "ps":  # pull, push a gradient, Adam
            v = v1.get_variable("v", initializer=tf.ones([n]), use_resource=False)
            optimizer = OPTIMIZERS["adam"]()
            with v1.device(chief.device):
                gradient = v * 0.5
            return optimizer.apply_gradients([(gradient, v)])
    raise ValueError(kind)


@program
def timed(chief, on, kind, steps, mib=0, ops=0):
    """The seconds of each of some steps."""
    with v1.variable_scope(f"{kind}{mib}-{ops}"):  # sessions share variables by their names
        fetch = timed_graph(chief, on, kind, mib, ops)
    init = v1.global_variables_initializer()
    c = config(chief, task_of(on))
    c.graph_options.rewrite_options.disable_meta_optimizer = kind == "chain"  # else it becomes one AddN
    with v1.Session(chief.target, config=c) as session:
        session.run(init)
        run = session.make_callable(fetch)
        for _ in range(3):
            run()
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        return times


for f in queues.PROGRAMS + tables.PROGRAMS + arrays.PROGRAMS + sharing.PROGRAMS + tutorials.PROGRAMS:
    ALL[f.__name__] = functools.partial(f, config)
