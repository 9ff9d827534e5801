"""Programs about lookup tables: what their ops give, and with which texts they fail.

They are part of programs.py, as those of queues.py are.
"""

import numpy as np
import tensorflow as tf

import queues

v1 = tf.compat.v1
raw = tf.raw_ops


class Table:
    """A table with all its ops, in one of the two versions."""

    def __init__(self, op, keys, values, version="V2", **attrs):
        self.version = version
        self.handle = getattr(raw, op + version)(key_dtype=keys, value_dtype=values, **attrs)
        self.keys, self.values = v1.placeholder(keys), v1.placeholder(values)
        self.types = {"Tkeys": keys, "Tvalues": values}
        self.find = self.op("LookupTableFind", keys=self.keys, default_value=self.values)
        self.insert = self.op("LookupTableInsert", keys=self.keys, values=self.values)
        self.load = self.op("LookupTableImport", keys=self.keys, values=self.values)
        self.fill = self.op("InitializeTable", keys=self.keys, values=self.values)
        self.size = self.op("LookupTableSize")
        self.export = self.op("LookupTableExport", **self.types)

    def op(self, name, **inputs):
        return getattr(raw, name + self.version)(table_handle=self.handle, **inputs)

    def feed(self, keys, values):
        return {self.keys: keys, self.values: values}


def content(c, label, table):
    """Notes the size of a table, and its entries by their keys: their order differs."""
    c.note(label, table.size)
    failed = c.run(table.export[0].op)  # without a fetch, whose error may be another one
    if failed:
        c.given.append([label, failed])
        return
    got = c.run(table.export)
    n = len(got[0]["values"])
    width = len(got[1]["values"]) // max(n, 1)
    rows = [str((k, got[1]["values"][i * width:(i + 1) * width])) for i, k in enumerate(got[0]["values"])]
    c.given.append([label, got[0]["shape"], got[1]["shape"], sorted(rows)])


TYPES = [
    (tf.int32, tf.float32), (tf.int32, tf.int32), (tf.int64, tf.float64), (tf.int64, tf.int64), (tf.int64, tf.string), (tf.string, tf.bool),
    (tf.string, tf.float32), (tf.string, tf.int64),
]


def some(dtype, numbers):
    if dtype == tf.string:
        return np.array([b"k%d" % n for n in np.ravel(numbers)], object).reshape(np.shape(numbers))
    return np.asarray(numbers).astype(dtype.as_numpy_dtype)


def fixed(c, build, version):
    """Tables that get their entries once."""
    for keys, values in TYPES + [(tf.string, tf.string), (tf.int32, tf.string)]:
        for way in "fill", "load":
            t = build(lambda: Table("HashTable", keys, values, version))
            k, v = some(keys, [3, 1, 2]), some(values, [1, 0, 5])
            content(c, "empty", t)
            c.note("find before", t.find, t.feed(k, some(values, 0)))
            c.note("keys twice", getattr(t, way), t.feed(some(keys, [3, 3]), some(values, [1, 0])))
            content(c, "after a failure", t)
            c.note("fill", getattr(t, way), t.feed(k, v))
            content(c, "full", t)
            c.note("find", t.find, t.feed(some(keys, [[3, 9], [2, 2]]), some(values, 7)))
            c.note("find one", t.find, t.feed(some(keys, 1), some(values, 7)))
            c.note("find none", t.find, t.feed(some(keys, []), some(values, 7)))
            c.note("find with defaults", t.find, t.feed(some(keys, [7, 8, 1]), v))
            c.note("default of a shape", t.find, t.feed(k, v[:1]))
            c.note("again", getattr(t, way), t.feed(k, v))
            c.note("other values", getattr(t, way), t.feed(k, v[::-1]))
            c.note("more", getattr(t, way), t.feed(some(keys, [1, 2, 3, 4]), some(values, [1, 2, 3, 4])))
            c.note("insert", t.insert, t.feed(k, v))
            content(c, "full", t)
    t = build(lambda: Table("HashTable", tf.int64, tf.float32, version))
    for way in "fill", "load":
        for k, v in ([1, 2], [1.0]), ([1], [1.0, 2]), (1, 1.0), ([[1]], [[1.0]]), ([], []), ([[1], [2]], [1.0, 2]), ([1, 2], [[1.0], [2.0]]):
            c.note(f"{way} {k} {v}", getattr(t, way), t.feed(k, v))
            content(c, "then", t)


def mutable(c, build, version):
    """Tables that change."""
    for keys, values in TYPES:
        t = build(lambda: Table("MutableHashTable", keys, values, version))
        content(c, "empty", t)
        c.note("find", t.find, t.feed(some(keys, [3, 1]), some(values, 0)))
        c.note("insert", t.insert, t.feed(some(keys, [3, 1, 3]), some(values, [1, 2, 0])))
        content(c, "two", t)
        c.note("insert", t.insert, t.feed(some(keys, [[1, 2]]), some(values, [[5, 1]])))
        c.note("insert one", t.insert, t.feed(some(keys, 9), some(values, 1)))
        content(c, "four", t)
        c.note("find", t.find, t.feed(some(keys, [[3, 8], [2, 2]]), some(values, 7)))
        c.note("find with defaults", t.find, t.feed(some(keys, [3, 8, 7]), some(values, [7, 6, 5])))
        c.note("default of a shape", t.find, t.feed(some(keys, [3, 8, 7]), some(values, [7, 6])))
        if version:
            c.note("remove", t.op("LookupTableRemove", keys=some(keys, [3, 3, 77])))
            content(c, "three", t)
            c.note("find", t.find, t.feed(some(keys, [9, 3, 2, 1]), some(values, 7)))
        c.note("import", t.load, t.feed(some(keys, [5, 6]), some(values, [1, 0])))
        content(c, "imported", t)
        c.note("initialise", t.fill, t.feed(some(keys, [5, 6]), some(values, [1, 0])))
        for k, v in ([1, 2], [1]), ([1], [1, 0]), ([[1], [2]], [1, 0]), (1, [1]):
            c.note(f"insert {k} {v}", t.insert, t.feed(some(keys, k), some(values, v)))
            c.note(f"import {k} {v}", t.load, t.feed(some(keys, k), some(values, v)))
        content(c, "as before", t)


def rows(c, build, version):
    """Tables whose values are vectors."""
    for keys, values in (tf.int64, tf.float32), (tf.string, tf.int64), (tf.int64, tf.string):
        t = build(lambda: Table("MutableHashTableOfTensors", keys, values, version, value_shape=[2]))
        content(c, "empty", t)
        c.note("insert", t.insert, t.feed(some(keys, [3, 1]), some(values, [[1, 2], [3, 4]])))
        c.note("find", t.find, t.feed(some(keys, [[3, 8]]), some(values, [7, 6])))
        c.note("find with defaults", t.find, t.feed(some(keys, [9, 8]), some(values, [[7, 6], [5, 4]])))
        for d in 7, [7], [[7, 6]], [1, 2, 3]:
            c.note(f"default {d}", t.find, t.feed(some(keys, [3, 8]), some(values, d)))
        c.note("of scalars", t.insert, t.feed(some(keys, [3, 1]), some(values, [1, 2])))
        if version:
            c.note("remove", t.op("LookupTableRemove", keys=some(keys, [3])))
        content(c, "one", t)
        c.note("import", t.load, t.feed(some(keys, [5, 6, 7]), some(values, [[1, 0], [2, 0], [3, 0]])))
        content(c, "three", t)
    for shape in [], [2, 2], [None]:
        c.note(f"values of {shape}", build(lambda: getattr(raw, "LookupTableSize" + version)(table_handle=getattr(
            raw, "MutableHashTableOfTensors" + version)(key_dtype=tf.int64, value_dtype=tf.float32, value_shape=shape))))


def wrong(c, build, version):
    """Types that do not fit, and tables that exist."""
    for op in "HashTable", "MutableHashTable":
        t = build(lambda: Table(op, tf.string, tf.int64, version))
        c.note("fill", t.load, t.feed([b"a"], [1]))
        if op == "MutableHashTable" and version:
            continue  # Python finds the types of these
        text, number = np.array([b"a"], object), np.array([1], np.int64)
        for name, inputs in (
            ("LookupTableFind", {"keys": number, "default_value": np.int64(0)}), ("LookupTableFind", {"keys": text, "default_value": np.float32(0)}),
            ("LookupTableInsert", {"keys": number, "values": number}), ("LookupTableImport", {"keys": text, "values": text}),
            ("InitializeTable", {"keys": text, "values": text}),
        ):
            c.note(f"{op} {name}", build(lambda: t.op(name, **inputs)))
        if version:
            c.note(f"{op} remove", build(lambda: t.op("LookupTableRemove", keys=number)))
            c.note(f"{op} remove", build(lambda: t.op("LookupTableRemove", keys=text)))
    size = lambda op, k, v, **attrs: build(lambda: getattr(raw, "LookupTableSize" + version)(
        table_handle=getattr(raw, op + version)(key_dtype=k, value_dtype=v, **attrs)))
    for op in "HashTable", "MutableHashTable":
        for k, v in (tf.string, tf.int64), (tf.string, tf.float32), (tf.int64, tf.int64), (tf.string, tf.int64):
            c.note(f"shared {op}", size(op, k, v, shared_name="shared" + version))
    for name in "", "named":
        for sharing in False, True:
            made = lambda: build(lambda: Table("MutableHashTable", tf.int64, tf.int64, version, shared_name=name and name + version, use_node_name_sharing=sharing))
            first, second = made(), made()
            c.note("insert", first.insert, first.feed([1], [2]))
            content(c, "first", first)
            content(c, "second", second)


def lookups(config, chief, on, part, version):
    """What the steps of a part of this file give."""
    return queues.steps(config, chief, on, {f.__name__: f for f in (fixed, mutable, rows, wrong)}[part], version)


def static_table(config, chief, on):
    """A vocabulary, the embedding that it leads to, and a mutable table, as programs use them."""
    with v1.device(on):
        table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(["a", "b", "c"]), tf.constant([0, 1, 2], tf.int64)), 3)
        counts = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
        words = v1.placeholder(tf.string, [None])
        ids = table.lookup(words)
        with v1.variable_scope("static", use_resource=True):
            embedding = v1.get_variable("embedding", [4, 2], initializer=v1.constant_initializer(np.arange(8).reshape(4, 2)))
        rows = tf.nn.embedding_lookup(embedding, ids)
        seen, _, number = tf.unique_with_counts(words, tf.int64)
        count = counts.insert(seen, counts.lookup(seen) + number)
        all_counts = counts.lookup(tf.constant(["a", "b", "c", "d"]))
        sizes = [table.size(), counts.size()]
    with v1.Session(chief.target, config=config(chief, on)) as session:
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        given = []
        for text in ["a", "c", "c", "x"], ["b"], ["x", "x", "a"]:
            given.append(session.run([ids, rows], {words: text}))
            session.run(count, {words: text})
        return given + [session.run(all_counts), session.run(sizes)]


PROGRAMS = [lookups, static_table]
