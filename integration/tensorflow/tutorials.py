"""Programs as TensorFlow 1's guides for parameter servers have them: a MonitoredTrainingSession with checkpoints, which goes on by itself
when a task of the ps was killed and is there again.

They are part of programs.py.
"""

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def linear(model, x, y):
    """The loss of a linear classifier of two classes."""
    weights = v1.get_variable(model, [x.shape[1], 2], initializer=v1.zeros_initializer())
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, weights)))


def points(n):
    """Points and their classes."""
    random = np.random.RandomState(5)
    x = random.standard_normal((n, 6)).astype(np.float32)
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64)


def asynchronous(chief, ps, step):
    """Each worker applies its gradients when it has them."""
    x, y = points(64)
    return v1.train.AdamOptimizer(0.01), linear("weights", tf.constant(x), tf.constant(y)), []


def synchronous(chief, ps, step):
    """A step takes the gradients of two workers."""
    x, y = points(64)
    optimizer = v1.train.SyncReplicasOptimizer(v1.train.AdamOptimizer(0.01), replicas_to_aggregate=2, total_num_replicas=2)
    return optimizer, linear("weights", tf.constant(x), tf.constant(y)), [optimizer.make_session_run_hook(chief.task == 0)]


def queues(chief, ps, step):
    """Threads fill queues on the ps, from which each step takes a batch."""
    x, y = points(200)
    with v1.device(ps):
        x, y = v1.train.slice_input_producer([tf.constant(x), tf.constant(y)], shuffle=False, capacity=32)
        x, y = v1.train.batch([x, y], 16, capacity=64)
    return v1.train.GradientDescentOptimizer(0.5), linear("weights", x, y), []


def embedding(chief, ps, step):
    """A wide and a deep model: rows of variables in parts, of which each step uses some."""
    random = np.random.RandomState(3)
    batches, size, ids, rows = 20, 32, 4, 300
    words = tf.gather(tf.constant(random.randint(0, rows, (batches, size, ids))), step % batches)
    y = tf.gather(tf.constant(random.randint(0, 2, (batches, size))), step % batches)
    parts = v1.fixed_size_partitioner(3)
    wide = v1.get_variable("wide", [rows, 2], initializer=v1.zeros_initializer(), partitioner=parts)
    deep = v1.get_variable("deep", [rows, 8], initializer=v1.random_uniform_initializer(-0.1, 0.1, seed=2), partitioner=parts)
    sparse = tf.SparseTensor(
        tf.constant([[i, j] for i in range(size) for j in range(ids)], tf.int64), tf.reshape(words, [-1]), [size, ids])
    logits = v1.nn.embedding_lookup_sparse(wide, sparse, None, combiner="sum")
    hidden = tf.reshape(v1.nn.embedding_lookup(deep, words), [size, ids * 8])
    logits += tf.matmul(hidden, v1.get_variable("out", [ids * 8, 2], initializer=v1.random_uniform_initializer(-0.3, 0.3, seed=4)))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.001), loss, []


def recurrent(chief, ps, step):
    """A recurrent network over sequences of several lengths, whose loop and its gradient run on the ps.

    dynamic_rnn makes this graph; TensorFlow has no cells for it without the Keras of its time."""
    random = np.random.RandomState(4)
    most, size, width = 9, 16, 8
    x, lengths = random.standard_normal((most, size, 5)).astype(np.float32), random.randint(1, most + 1, size)
    y = random.standard_normal((size, 3)).astype(np.float32)
    with v1.device(ps):
        kernel = v1.get_variable("kernel", [5 + width, width], initializer=v1.random_uniform_initializer(-0.3, 0.3, seed=6))
        bias = v1.get_variable("bias", [width], initializer=v1.zeros_initializer())
        out = v1.get_variable("out", [width, 3], initializer=v1.random_uniform_initializer(-0.3, 0.3, seed=7))
        inputs = tf.TensorArray(tf.float32, most).unstack(tf.constant(x))
        lengths = tf.constant(lengths, tf.int32)

        def cell(i, state, outputs):
            new = tf.tanh(tf.matmul(tf.concat([inputs.read(i), state], 1), kernel) + bias)
            live = tf.tile((i < lengths)[:, None], [1, width])
            return i + 1, tf.where(live, new, state), outputs.write(i, tf.where(live, new, tf.zeros_like(new)))

        _, state, outputs = v1.while_loop(
            lambda i, *_: i < tf.reduce_max(lengths), cell, [tf.constant(0), tf.zeros([size, width]), tf.TensorArray(tf.float32, most)])
        used = outputs.gather(tf.range(tf.reduce_max(lengths)))
        loss = tf.reduce_mean(tf.square(tf.matmul(state, out) - tf.constant(y))) + 0.01 * tf.reduce_mean(tf.square(used))
    return v1.train.AdamOptimizer(0.01), loss, []


def impatient(session_manager, *args, **options):
    """Makes a manager whose sessions look for initialised variables each second, not each 30."""
    make_manager(session_manager, *args, recovery_wait_secs=1, **options)


make_manager = v1.train.SessionManager.__init__
v1.train.SessionManager.__init__ = impatient

KINDS = {f.__name__: f for f in (asynchronous, synchronous, queues, embedding, recurrent)}


class LastStep(v1.train.SessionRunHook):
    """The global step when a session ends. What a step fetches beside its update may be of a moment before it."""

    def __init__(self, step):
        self.variable, self.step = step, 0

    def end(self, session):
        self.step = int(session.run(self.variable))


def tutorial(config, chief, ps, kind, directory, steps, tasks=1, pause=None, variables="ref"):
    """Trains until the global step, as the chief or another worker. Returns the losses of this worker, and its last step.

    Tells the test when the session of the chief is there, and when this worker has made so many steps."""
    first = chief.task == 0
    # Sessions share what has a name: each program has a container of its own.
    setter = v1.train.replica_device_setter(ps_tasks=tasks, ps_device=ps, worker_device=chief.device)
    with v1.get_default_graph().container(f"{kind}-{variables}"), v1.device(setter), v1.variable_scope("", use_resource=variables == "resource"):
        step = v1.train.get_or_create_global_step()
        optimizer, loss, hooks = KINDS[kind](chief, ps, step)
        gradients = optimizer.compute_gradients(loss, colocate_gradients_with_ops=kind == "recurrent")
        minimize = optimizer.apply_gradients(gradients, global_step=step)
    losses, last = [], LastStep(step)
    with v1.train.MonitoredTrainingSession(
        chief.target, is_chief=first, checkpoint_dir=directory, hooks=[*hooks, v1.train.StopAtStepHook(last_step=steps), last],
        save_checkpoint_steps=20, save_summaries_steps=None, log_step_count_steps=None, stop_grace_period_secs=1, config=config(chief, ps),
    ) as session:
        if first:
            chief.event("session")
        while not session.should_stop():
            if len(losses) == pause:
                chief.event("half-way")
            losses.append(float(session.run([loss, minimize])[0]))
    return {"losses": losses, "step": last.step}


PROGRAMS = [tutorial]
