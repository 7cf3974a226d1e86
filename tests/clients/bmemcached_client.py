"""Speaks to a memcached server or proxy with python-binary-memcached, a client we did not write.

Usage: bmemcached_client.py HOST:PORT. Prints `ok N` after N checks; any wrong answer is a traceback.
Its multi-key reads are quiet requests that a non-quiet one ends: they come out right only if replies keep the order of
requests, whatever backend they are from.
"""

import sys

import bmemcached

checks = 0


def expect(actual, wanted, what):
    """Compares, and counts."""
    global checks
    assert actual == wanted, f"{what}: {actual!r}, not {wanted!r}"
    checks += 1


def main():
    """Runs every operation of the client."""
    client = bmemcached.Client((sys.argv[1],), compression=None)
    for index in range(200):
        key, value = f"key-{index}", f"value of {index} " * (index % 40 + 1)
        expect(client.get(key), None, "a miss")
        expect(client.set(key, value), True, "set")
        expect(client.get(key), value, "get")
        expect(client.add(key, "other"), False, "add of a key that is there")
        expect(client.replace(key, value[::-1]), True, "replace")
        expect(client.get(key), value[::-1], "get after replace")
    expect(client.set("counter", "41"), True, "set of a number")
    expect(client.incr("counter", 1), 42, "incr")
    expect(client.decr("counter", 2), 40, "decr")
    value, cas = client.gets("key-1")
    expect(client.cas("key-1", "swapped", cas), True, "cas")
    expect(client.cas("key-1", "again", cas), False, "cas with the old token")
    for size in (1, 1000, 16 * 1024, 64 * 1024, 300_000, 1_000_000):
        blob = bytes(index * 7 % 251 for index in range(size))
        expect(client.set("large", blob), True, f"set of {size} bytes")
        expect(client.get("large"), blob, f"get of {size} bytes")
    pairs = {f"multi-{index}": f"v{index}" for index in range(100)}
    expect(client.set_multi(pairs), [], "set_multi")
    expect(client.get_multi([*pairs, "not there"]), pairs, "get_multi")
    for index in range(200):
        expect(client.delete(f"key-{index}"), True, "delete")
        expect(client.get(f"key-{index}"), None, "get after delete")
    client.disconnect_all()
    print(f"ok {checks}")


main()
