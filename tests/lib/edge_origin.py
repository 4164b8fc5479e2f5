#!/usr/bin/env python3
"""The server inside a sandbox that the tests of tunnels reach: edge_origin.py PORT NAME. Standard library alone.

It speaks HTTP/1.1 by hand, so that what arrives is shown as it arrived:
/dump the request's head and body; /sse ten events; /quiet/N two events, N seconds apart; /close an answer without a length; /chunks; /big N bytes; /slow; /early answers
before it reads; /cut half an answer; /cl-te a broken answer; /upgrade echoes after 101; /cookie; /redirect; /status/N; else NAME.
"""
import socket
import sys
import threading
import time


class Conn:
    def __init__(self, sock):
        self.s = sock
        self.buf = b""

    def fill(self):
        data = self.s.recv(65536)
        if not data:
            raise EOFError
        self.buf += data

    def until(self, mark):
        while mark not in self.buf:
            self.fill()
        head, self.buf = self.buf.split(mark, 1)
        return head

    def take(self, n):
        while len(self.buf) < n:
            self.fill()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out


def read_body(c, headers):
    if b"transfer-encoding" in headers:
        out = b""
        while True:
            n = int(c.until(b"\r\n"), 16)
            if n == 0:
                while c.until(b"\r\n"):
                    pass
                return out
            out += c.take(n)
            c.until(b"\r\n")
    left, out = int(headers.get(b"content-length", b"0")), b""
    if left > 1 << 20:  # counted, not kept
        total = 0
        while left:
            if not c.buf:
                c.fill()
            n = min(left, len(c.buf))
            c.buf = c.buf[n:]
            left -= n
            total += n
        return str(total).encode()
    return c.take(left)


def answer(c, body, extra=b"", status=b"200 OK"):
    c.s.sendall(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), extra, body))


def events(c, chunked):
    c.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + (b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"Connection: close\r\n\r\n"))
    for i in range(4):
        time.sleep(0.3)
        event = b"data: %d\n\n" % i
        c.s.sendall(b"%x\r\n%s\r\n" % (len(event), event) if chunked else event)
    if chunked:
        c.s.sendall(b"0\r\n\r\n")
    return chunked


def quiet(c, seconds):
    c.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n10\r\ndata: before\n\n  \r\n")
    time.sleep(seconds)
    c.s.sendall(b"d\r\ndata: after\n\n\r\n0\r\n\r\n")
    return True


def upgrade(c, headers):
    extensions = headers.get(b"sec-websocket-extensions")
    extra = b"Sec-WebSocket-Extensions: %s\r\n" % extensions if extensions else b""
    c.s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n%s\r\nwelcome" % extra)
    if c.buf:
        c.s.sendall(c.buf)
    while True:
        data = c.s.recv(65536)
        if not data:
            break
        c.s.sendall(data)
    c.s.sendall(b"bye")
    return False


def special(c, path, headers):
    """True: go on; False: close; None: not a special path."""
    if path.startswith("/sse"):
        return events(c, path.endswith("chunked"))
    if path.startswith("/quiet/"):
        return quiet(c, float(path[7:]))
    if path == "/upgrade":
        return upgrade(c, headers)
    if path == "/early":
        answer(c, b"early", b"Connection: close\r\n", b"413 Content Too Large")
        time.sleep(0.2)
        return False
    if path == "/expect":
        if headers.get(b"expect") == b"100-continue":
            c.s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return None
    return None


def after_body(c, name, method, path, raw, body):
    if path == "/dump":
        answer(c, raw + b"\r\n\r\n" + body)
    elif path == "/close":
        c.s.sendall(b"HTTP/1.1 200 OK\r\n\r\nno length")
        return False
    elif path == "/chunks":
        c.s.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n")
    elif path.startswith("/big/"):
        n = int(path[5:])
        c.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % n)
        if method != b"HEAD":
            block = bytes(65536)
            while n:
                k = min(n, len(block))
                c.s.sendall(block[:k])
                n -= k
    elif path == "/cut":
        c.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        return False
    elif path == "/cl-te":
        c.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        return False
    elif path == "/more":
        c.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen")
    elif path == "/cookie":
        answer(c, b"", b"Set-Cookie: own=1; Path=/\r\nSet-Cookie: parent=1; Domain=localhost\r\nSet-Cookie: sandbox_visitor=x\r\n")
    elif path == "/redirect":
        answer(c, b"", b"Location: http://localhost:%d/there?x=1\r\n" % c.s.getsockname()[1], b"302 Found")
    elif path == "/echo" or path == "/expect":
        answer(c, body)
    elif method == b"HEAD":
        c.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")
    else:
        answer(c, name + b"\n")
    return True


def serve(sock, name):
    c = Conn(sock)
    try:
        while True:
            raw = c.until(b"\r\n\r\n")
            lines = raw.split(b"\r\n")
            method, target, _ = lines[0].split(b" ")
            headers = {}
            for line in lines[1:]:
                k, v = line.split(b":", 1)
                headers[k.strip().lower()] = v.strip()
            path = target.decode("latin-1").split("?")[0]
            done = special(c, path, headers)
            if done is None:
                done = after_body(c, name, method, path, raw, read_body(c, headers))
            if not done:
                break
    except (EOFError, OSError, ValueError):
        pass
    finally:
        sock.close()


def main():
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    s.listen(512)
    while True:
        conn, _ = s.accept()
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(conn, sys.argv[2].encode()), daemon=True).start()


main()
