#!/usr/bin/env python3
"""Counts the words of a file with eight mappers and a reducer around the service: try.py FILE"""
import socket, sys, threading
from itertools import groupby

MAPPERS, SERVICE, REDUCER = 8, ("127.0.0.1", 9000), ("127.0.0.1", 9001)


def vint(number):  # Hadoop's integer of variable length, for lengths
    if number <= 127:
        return bytes([number])
    size = (number.bit_length() + 7) // 8
    return bytes([(-112 - size) & 0xFF]) + number.to_bytes(size, "big")


def take_vint(data, at):
    first = data[at] - 256 if data[at] > 127 else data[at]
    if first >= -112:
        return first, at + 1
    end = at + 1 - 112 - first
    return int.from_bytes(data[at + 1 : end], "big"), end


def mapper(words):
    counted = ((word, str(len(list(same))).encode()) for word, same in groupby(sorted(words)))
    with socket.create_connection(SERVICE) as conn:
        conn.sendall(b"".join(vint(len(k)) + vint(len(v)) + k + v for k, v in counted))
        conn.shutdown(socket.SHUT_WR)
        conn.recv(1)  # the service closes when the job is complete, and resets the connection when it has failed


words = open(sys.argv[1], "rb").read().split()
with socket.create_server(REDUCER) as server:
    for number in range(MAPPERS):
        threading.Thread(target=mapper, args=(words[number::MAPPERS],)).start()
    conn, _ = server.accept()
    with conn:
        data = b"".join(iter(lambda: conn.recv(65536), b""))
at = 0
while at < len(data):
    key_len, at = take_vint(data, at)
    value_len, at = take_vint(data, at)
    key, value, at = data[at : at + key_len], data[at + key_len : at + key_len + value_len], at + key_len + value_len
    print(f"{value.decode():>7} {key.decode()}")
