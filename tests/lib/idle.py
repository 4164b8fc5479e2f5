#!/usr/bin/env python3
"""Connections that say nothing for a long time: idle.py SECONDS KIND@HOST:PORT[/NAME]…

KIND: websocket and sse through an edge, https or not (wss, ssse), for the tunnel's host NAME; raw to a forwarded port. Each says something,
is left alone for SECONDS, and must then go on as if nothing had been. One line per connection; status 1 when one did not.
idle.py front LISTEN TO SECONDS: a proxy that cuts a connection when TO's side says nothing for SECONDS, as nginx does after 60.
"""
import select
import socket
import ssl
import sys
import threading
import time


def until(s, mark, seen=b""):
    while mark not in seen:
        data = s.recv(65536)
        if not data:
            raise EOFError(f"ended after {seen!r}")
        seen += data
    return seen.split(mark, 1)


def connect(kind, host, port, name):
    s = socket.create_connection((host, port), 60)
    if kind in ("wss", "ssse"):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        s = context.wrap_socket(s, server_hostname=name.split(":")[0])
    return s


def echoes(s, text):
    s.sendall(text)
    until(s, text)


def stay(kind, host, port, name, seconds):
    s = connect(kind, host, port, name)
    if kind in ("sse", "ssse"):
        s.sendall(f"GET /quiet/{seconds} HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        _, rest = until(s, b"data: before\n\n")
        s.settimeout(seconds + 60)
        until(s, b"data: after\n\n", rest)
        return
    s.sendall(f"GET /upgrade HTTP/1.1\r\nHost: {name}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
    until(s, b"welcome")
    echoes(s, b"before")
    time.sleep(seconds)
    echoes(s, b"after")
    s.close()


def run(words, seconds, failed):
    kind, rest = words.split("@")
    address, _, name = rest.partition("/")
    host, port = address.rsplit(":", 1)
    try:
        stay(kind, host, int(port), name or "localhost", seconds)
        print(f"{words}: went on after {seconds} s", flush=True)
    except (OSError, EOFError) as e:
        print(f"{words}: {e!r}", flush=True)
        failed.append(words)


def pump(a, to, limit):
    b = socket.create_connection(("127.0.0.1", to))
    heard = time.monotonic()
    while time.monotonic() - heard < limit:
        for s in select.select([a, b], [], [], 1)[0]:
            data = s.recv(65536)
            if not data:
                return
            if s is b:
                heard = time.monotonic()
            (a if s is b else b).sendall(data)


def front(listen, to, limit):
    def one(a):
        try:
            pump(a, to, limit)
        except OSError:
            pass
        a.shutdown(socket.SHUT_RDWR)
    server = socket.create_server(("127.0.0.1", listen))
    while True:
        threading.Thread(target=one, args=(server.accept()[0],), daemon=True).start()


def main():
    if sys.argv[1] == "front":
        front(*map(int, sys.argv[2:]))
    failed = []
    threads = [threading.Thread(target=run, args=(w, int(sys.argv[1]), failed)) for w in sys.argv[2:]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    sys.exit(1 if failed else 0)


main()
