"""Asks a store through a client library of Python: `clients.py LIBRARY HOST PORT`. The first wrong answer ends it with
an exception. Libraries: pymemcache (text), pylibmc-text and pylibmc-binary (libmemcached), bmemcached (binary)."""

import sys
import time

# As many keys as one `get` of the text protocol may have here.
KEYS = 200
LONG = b"v" * (1024 * 1024 - 512)


def expect(got, expected, what):
    assert got == expected, f"{what}: {got!r:.200}, {expected!r:.200} expected"


class Pymemcache:
    def __init__(self, host, port):
        import pymemcache

        self.client = client = pymemcache.Client((host, port), default_noreply=False, timeout=20)
        self.get, self.set, self.add, self.replace = client.get, client.set, client.add, client.replace
        self.append, self.prepend, self.delete = client.append, client.prepend, client.delete
        self.incr, self.decr, self.get_many, self.set_many = client.incr, client.decr, client.get_many, client.set_many
        self.touch, self.gets, self.flush, self.delete_many = client.touch, client.gets, client.flush_all, client.delete_many

    def cas(self, key, value, unique):
        return self.client.cas(key, value, unique)

    def pipelined(self):
        """Commands without a reply, and then one with it."""
        for n in range(2000):
            self.client.set("last", b"%d" % n, noreply=True)
            self.client.incr("count", 1, noreply=True)
        expect(self.client.get_many(["last", "count"]), {"last": b"1999", "count": b"2000"}, "noreply")

    def rest(self):
        if hasattr(self.client, "gat"):
            expect(self.client.gat("k", 100), b"value", "gat")
            expect(self.client.gats("k", 0), self.client.gets("k"), "gats")
        assert self.client.version() and self.client.stats()[b"cmd_get"] > 0


class Pylibmc:
    def __init__(self, host, port, binary):
        import pylibmc

        self.not_found = pylibmc.NotFound
        behaviors = {"cas": True, "tcp_nodelay": True, "no_block": False}
        self.client = client = pylibmc.Client([f"{host}:{port}"], binary=binary, behaviors=behaviors)
        self.get, self.gets, self.add = client.get, client.gets, client.add
        self.append, self.prepend, self.delete, self.touch = client.append, client.prepend, client.delete, client.touch
        self.get_many, self.set_many, self.flush = client.get_multi, client.set_multi, client.flush_all
        self.delete_many, self.is_binary = client.delete_multi, binary

    def found(self, function, *arguments):
        try:
            return function(*arguments)
        except self.not_found:
            return None

    def replace(self, key, value):
        return self.found(self.client.replace, key, value)

    def set(self, key, value, expire=0):
        return self.client.set(key, value, time=expire)

    def incr(self, key, by):
        return self.found(self.client.incr, key, by)

    def decr(self, key, by):
        return self.found(self.client.decr, key, by)

    def cas(self, key, value, unique):
        return self.found(self.client.cas, key, value, unique)

    def pipelined(self):
        """A multi-set is many requests; a binary multi-get too, and then one that has a reply in any case."""
        pairs = {f"p{n}": b"%d" % n for n in range(2000)}
        expect(self.client.set_multi(pairs), [], "multi-set")
        keys = list(pairs) if self.is_binary else list(pairs)[-KEYS:]
        expect(self.client.get_multi(keys), {key: pairs[key] for key in keys}, "multi-get")

    def rest(self):
        # Flags say which are numbers, text and objects.
        for value in [7, "text", {"a": [1, None]}]:
            self.client.set("typed", value)
            expect(self.client.get("typed"), value, "flags")
        assert self.client.get_stats()


class Bmemcached:
    def __init__(self, host, port):
        import bmemcached

        self.client = client = bmemcached.Client((f"{host}:{port}",))
        self.get, self.add, self.replace, self.delete = client.get, client.add, client.replace, client.delete
        self.incr, self.decr, self.get_many, self.delete_many = client.incr, client.decr, client.get_multi, client.delete_multi
        self.gets, self.flush, self.append = client.gets, client.flush_all, None

    def set(self, key, value, expire=0):
        return self.client.set(key, value, time=expire)

    def set_many(self, pairs):
        return self.client.set_multi(pairs)

    def cas(self, key, value, unique):
        return self.client.cas(key, value, unique)

    def touch(self, key, expire):
        return self.client.touch(key, expire) if hasattr(self.client, "touch") else True

    def pipelined(self):
        """Its multi commands are quiet requests with one that is not behind them."""
        self.client.set_multi({f"p{n}": b"%d" % n for n in range(2000)})
        got = self.client.get_multi([f"p{n}" for n in range(2000)])
        expect(got, {f"p{n}": b"%d" % n for n in range(2000)}, "2,000 quiet gets")

    def rest(self):
        for value in [7, "text", {"a": [1, None]}]:
            self.client.set("typed", value)
            expect(self.client.get("typed"), value, "flags")
        assert self.client.stats()


def simple(store):
    expect(store.get("k"), None, "a miss")
    assert store.set("k", b"value")
    expect(store.get("k"), b"value", "a hit")
    expect((bool(store.add("k", b"x")), bool(store.replace("k", b"value"))), (False, True), "add and replace")
    expect(bool(store.replace("none", b"x")), False, "replace without an item")
    if store.append:
        assert store.append("k", b">") and store.prepend("k", b"<")
        expect(store.get("k"), b"<value>", "append and prepend")
    assert store.set("empty", b"")
    expect(store.get("empty"), b"", "no bytes")
    key = "k" * 250
    assert store.set(key, b"1")
    expect(store.get(key), b"1", "the longest key")
    assert store.delete(key)
    expect(store.get(key), None, "a deleted item")
    assert store.set("k", b"value")


def compare_and_swap(store):
    assert store.set("c", b"1")
    value, unique = store.gets("c")
    expect(value, b"1", "gets")
    expect(bool(store.cas("c", b"2", unique)), True, "cas")
    expect(bool(store.cas("c", b"3", unique)), False, "cas of a changed item")
    expect(store.get("c"), b"2", "what cas has stored")
    store.delete("c")
    expect(bool(store.cas("c", b"4", unique)), False, "cas without an item")


def counters(store):
    assert store.set("n", b"10" if store.append else "10")
    expect((store.incr("n", 5), store.decr("n", 3), store.decr("n", 100)), (15, 12, 0), "counters")


def many(store):
    pairs = {f"m{n}": b"%d" % n for n in range(KEYS)}
    store.set_many(pairs)
    expect(store.get_many([*list(pairs)[:-1], "none"]), dict(list(pairs.items())[:-1]), "many")
    store.delete_many(list(pairs))
    expect(store.get_many(list(pairs)), {}, "many deleted")


def long_values(store):
    assert store.set("long", LONG)
    assert store.get("long") == LONG, "a long value"
    for _ in range(20):
        assert store.set("k", LONG[:100_000]) and store.get("k") == LONG[:100_000]
    assert store.set("k", b"value")


def lifetimes(store):
    assert store.set("gone", b"1", expire=1) and store.set("stays", b"1", expire=100)
    assert store.set("touched", b"1", expire=1) and store.touch("touched", 100)
    deadline = time.monotonic() + 10
    while store.get("gone") is not None:
        assert time.monotonic() < deadline, "it does not expire"
        time.sleep(0.05)
    expect(store.get("stays"), b"1", "an item that lives")


def main(library, host, port):
    libraries = {
        "pymemcache": lambda: Pymemcache(host, int(port)),
        "pylibmc-text": lambda: Pylibmc(host, port, False),
        "pylibmc-binary": lambda: Pylibmc(host, port, True),
        "bmemcached": lambda: Bmemcached(host, port),
    }
    store = libraries[library]()
    store.flush()
    for part in [simple, compare_and_swap, counters, many, long_values, lifetimes]:
        part(store)
    if library == "pymemcache":
        store.set("count", b"0")
    store.pipelined()
    store.rest()
    store.flush()
    expect(store.get("k"), None, "a flushed item")
    print(library, "ok")


main(*sys.argv[1:])
