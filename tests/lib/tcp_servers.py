#!/usr/bin/env python3
"""Servers and clients of the forward tests, standard library alone.

serve KIND ADDRESS PORT…: one server per port in this process. Kinds: echo; late (reads to the end, waits, sends 10 MiB);
reset (answers "x", then resets); who (says its address); slow (sends without end, reads nothing).
bulk PORT N: sends N bytes through an echo while reading, checks them. reset PORT: 0 when the connection ends by a reset.
"""
import errno
import hashlib
import os
import socket
import struct
import sys
import threading
import time

MIB = 1 << 20


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def reset(conn):
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    conn.close()


def echo(conn, _):
    while True:
        data = conn.recv(65536)
        if not data:
            break
        conn.sendall(data)
    conn.shutdown(socket.SHUT_WR)


def late(conn, _):
    n = 0
    while True:
        data = conn.recv(65536)
        if not data:
            break
        n += len(data)
    time.sleep(0.3)
    block = bytes(MIB)
    for _i in range(10):
        conn.sendall(block)


def resets(conn, _):
    conn.sendall(b"x")
    conn.recv(1)
    reset(conn)


def who(conn, address):
    conn.recv(1)
    conn.sendall(address.encode())


def slow(conn, _):
    sent = 0
    conn.settimeout(0.2)
    try:
        while True:
            sent += conn.send(bytes(65536))
    except OSError:
        pass
    with open(os.path.join(os.environ["SBX_DIR"], "sent"), "w", encoding="ascii") as f:
        f.write(str(sent))
    time.sleep(60)


KINDS = {"echo": echo, "late": late, "reset": resets, "who": who, "slow": slow}


def one(kind, conn, address):
    try:
        KINDS[kind](conn, address)
    except OSError:
        pass
    finally:
        conn.close()


def serve(kind, address, port):
    s = socket.socket(family_of(address), socket.SOCK_STREAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, port))
    s.listen(128)
    while True:
        conn, _ = s.accept()
        threading.Thread(target=one, args=(kind, conn, address), daemon=True).start()


def bulk(port, total):
    c = socket.create_connection(("127.0.0.1", port), 30)
    block = hashlib.sha256(b"bulk").digest() * 2048
    want, got = hashlib.sha256(), hashlib.sha256()

    def send():
        left = total
        while left:
            piece = block[: min(left, len(block))]
            want.update(piece)
            c.sendall(piece)
            left -= len(piece)
        c.shutdown(socket.SHUT_WR)

    t = threading.Thread(target=send)
    t.start()
    n = 0
    while True:
        data = c.recv(65536)
        if not data:
            break
        got.update(data)
        n += len(data)
    t.join()
    assert n == total, (n, total)
    assert got.digest() == want.digest()
    print(n)


def expect_reset(port):
    c = socket.create_connection(("127.0.0.1", port), 30)
    try:
        c.sendall(b"a")
        while True:
            data = c.recv(100)
            if not data:
                sys.exit("ended in order")
    except OSError as e:
        if e.errno != errno.ECONNRESET:
            raise


def main():
    verb = sys.argv[1]
    if verb == "serve":
        kind, address = sys.argv[2:4]
        threads = [threading.Thread(target=serve, args=(kind, address, int(p))) for p in sys.argv[4:]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    elif verb == "bulk":
        bulk(int(sys.argv[2]), int(sys.argv[3]))
    elif verb == "reset":
        expect_reset(int(sys.argv[2]))


main()
