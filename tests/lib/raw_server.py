#!/usr/bin/env python3
"""A TCP server that answers every request with the bytes of DIR/answer, and is a CONNECT proxy: `raw_server.py PORT DIR`.

The heads of all requests are appended to DIR/requests. DIR/proxy, when there, is the answer to CONNECT instead of a tunnel.
"""
import os, socket, sys, threading

port, folder = int(sys.argv[1]), sys.argv[2]


def pipe(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    try:
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(c):
    head = b""
    while b"\r\n\r\n" not in head:
        got = c.recv(65536)
        if not got:
            return c.close()
        head += got
    with open(os.path.join(folder, "requests"), "ab") as f:
        f.write(head.split(b"\r\n\r\n")[0] + b"\n\n")
    proxy = os.path.join(folder, "proxy")
    if head.startswith(b"CONNECT ") and not os.path.exists(proxy):
        host, to = head.split()[1].decode().rsplit(":", 1)
        up = socket.create_connection(("127.0.0.1", int(to)))
        c.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=pipe, args=(up, c), daemon=True).start()
        return pipe(c, up)
    name = proxy if head.startswith(b"CONNECT ") else os.path.join(folder, "answer")
    with open(name, "rb") as f:
        c.sendall(f.read())
    c.shutdown(socket.SHUT_WR)
    while c.recv(65536):
        pass
    c.close()


s = socket.create_server(("127.0.0.1", port))
print("ready", flush=True)
while True:
    threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
