#!/usr/bin/env python3
"""Raw requests to the edge: edge_client.py PORT CASE HOST [ARG]. Exits non-zero with what was seen when it is not what it should be."""
import base64
import hashlib
import os
import socket
import struct
import sys
import threading
import time

PORT, CASE, HOST = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode()
ARG = sys.argv[4] if len(sys.argv) > 4 else ""


def connect():
    s = socket.create_connection(("127.0.0.1", PORT), 20)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


class Reader:
    def __init__(self, s):
        self.s, self.buf = s, b""

    def until(self, mark):
        while mark not in self.buf:
            data = self.s.recv(65536)
            assert data, ("ended", self.buf)
            self.buf += data
        out, self.buf = self.buf.split(mark, 1)
        return out

    def take(self, n):
        while len(self.buf) < n:
            data = self.s.recv(65536)
            assert data, ("ended", self.buf)
            self.buf += data
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def rest(self):
        try:
            while True:
                data = self.s.recv(65536)
                if not data:
                    break
                self.buf += data
        except ConnectionResetError:
            return self.buf, True
        return self.buf, False

    def answer(self):
        head = self.until(b"\r\n\r\n").decode("latin-1")
        status = int(head.split(" ")[1])
        fields = {}
        for line in head.split("\r\n")[1:]:
            k, v = line.split(":", 1)
            fields.setdefault(k.lower(), []).append(v.strip())
        body = self.take(int(fields["content-length"][0])) if "content-length" in fields and status >= 200 else b""
        return status, fields, body


def ask(raw):
    s = connect()
    s.sendall(raw)
    return Reader(s).answer()


def get(path, host=HOST, extra=b"", method=b"GET"):
    return b"%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n" % (method, path, host, extra)


def dumped(raw):
    status, _, body = ask(raw)
    assert status == 200, (status, body)
    return body.decode("latin-1")


def forwarded():
    text = dumped(get(b"/dump", extra=b"X-Forwarded-For: 6.6.6.6\r\nx_forwarded_for: 6.6.6.6\r\nX-Forwarded-Proto: gopher\r\nForwarded: for=6.6.6.6\r\n"
                      b"X-Real-IP: 6.6.6.6\r\nConnection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: x\r\nTE: trailers\r\nProxy-Authorization: x\r\n"
                      b"Origin: http://%s:%d\r\nX-Kept: yes\r\n" % (HOST, PORT)))
    low = text.lower()
    for gone in ("6.6.6.6", "gopher", "x-secret", "keep-alive", "te:", "proxy-auth"):
        assert gone not in low, (gone, text)
    for there in ("x-forwarded-for: 127.0.0.1", "x-forwarded-host: " + HOST.decode(), "x-forwarded-proto: http", "x-kept: yes", "host: localhost:" + ARG,
                  "origin: http://localhost:" + ARG):
        assert there in low, (there, text)


def smuggling():
    post = b"POST /dump HTTP/1.1\r\nHost: " + HOST + b"\r\n"
    for raw in (
        post + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        post + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
        post + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nabcd",
        post + b"Content-Length: \r\n\r\n",
        post + b"Content-Length: +4\r\n\r\nabcd",
        post + b"Content-Length: 0x4\r\n\r\nabcd",
        post + b"Content-Length: -1\r\n\r\n",
        post + b"Content-Length: 4, 4\r\n\r\nabcd",
        post + b"Content-Length: 99999999999999999999999\r\n\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF1\r\nabc\r\n0\r\n\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n0\r\n\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
        post + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        post + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        post + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        post + b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\n5;a=\n\r\nhello\r\n0\r\n\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /dump HTTP/1.1\nHost: " + HOST + b"\n\r\n\r\n",
        b"GET /dump HTTP/1.1\r\nHost: " + HOST + b"\r\nHost: other.localhost\r\n\r\n",
        b"GET http://other.localhost/ HTTP/1.1\r\nHost: " + HOST + b"\r\n\r\n",
        b"GET /dump HTTP/1.1\r\n\r\n",
    ):
        s = connect()
        s.sendall(raw + get(b"/dump", extra=b"X-Smuggled: yes\r\n"))
        out, _ = Reader(s).rest()
        assert out.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ")), (raw, out)
        assert b"X-Smuggled" not in out and out.count(b"HTTP/1.1") == 1, (raw, out)


def listed():
    """Connection can name any header, but not take away what says who asks or where a message ends."""
    text = dumped(b"POST /dump HTTP/1.1\r\nHost: " + HOST + b"\r\nAuthorization: Basic YTpi\r\nCookie: a=b\r\nX-Hop: 1\r\nContent-Length: 4\r\n"
                  b"Connection: X-Hop, Content-Length, Host\r\n\r\nabcd")
    assert "x-hop" not in text.lower() and "abcd" in text and "host: localhost:" in text.lower(), text


def long_line():
    """A request line of a megabyte."""
    s = connect()
    try:
        s.sendall(b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: " + HOST + b"\r\n\r\n")
    except OSError:
        pass
    out, _ = Reader(s).rest()
    assert out == b"" or out.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 414 ")), out


def drip():
    """A header line a second, for ever: the time a head may take ends it, whatever comes."""
    s = connect()
    s.settimeout(1)
    s.sendall(b"GET / HTTP/1.1\r\nHost: " + HOST + b"\r\n")
    start = time.time()
    while time.time() - start < 120:
        try:
            s.sendall(b"X-%d: y\r\n" % int(time.time()))
            if s.recv(4096) == b"":
                return
        except socket.timeout:
            pass
        except OSError:
            return
    raise AssertionError("still connected after two minutes")


def reroute():
    """One connection, two names in turn."""
    s = connect()
    r = Reader(s)
    for _ in range(20):
        for host in (HOST, ARG.encode()):
            s.sendall(get(b"/", host))
            status, _f, body = r.answer()
            assert status == 200 and body.decode().strip() == host.decode().split(".")[0], (host, body)
    s.sendall(get(b"/") + get(b"/", ARG.encode()) + get(b"/"))  # pipelined
    seen = [r.answer()[2].decode().strip() for _ in range(3)]
    assert seen == [HOST.decode().split(".")[0], ARG.split(".")[0], HOST.decode().split(".")[0]], seen


def sse():
    for method in (b"GET", b"POST"):
        for path in (b"/sse", b"/sse-chunked"):
            s = connect()
            s.sendall(b"%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\n\r\n" % (method, path, HOST))
            r = Reader(s)
            start = time.time()
            r.until(b"\r\n\r\n")
            assert time.time() - start < 0.25, "the head waited"
            times = []
            for i in range(4):
                r.until(b"data: %d\n\n" % i)
                times.append(time.time())
            gaps = [b - a for a, b in zip(times, times[1:])]
            assert min(gaps) > 0.1, gaps


def upgraded():
    s = connect()
    s.sendall(get(b"/upgrade", extra=b"Connection: Upgrade\r\nUpgrade: echo\r\n"))
    r = Reader(s)
    head = r.until(b"\r\n\r\n").lower()
    assert b" 101 " in head and b"upgrade: echo" in head and b"connection: upgrade" in head, head
    assert r.take(7) == b"welcome"
    blob = os.urandom(3 << 20)
    t = threading.Thread(target=lambda: (s.sendall(blob), s.shutdown(socket.SHUT_WR)))
    t.start()
    out, reset = r.rest()
    t.join()
    assert not reset and out == blob + b"bye", (len(out), reset)


def frames():
    """What the ends agreed on is theirs: compressed frames of every length form, a fragmented message with a ping inside, closes with a reason."""
    def frame(first, payload, mask=b"\x01\x02\x03\x04"):
        n = len(payload)
        length = bytes([0x80 | n]) if n < 126 else struct.pack(">BH", 0xfe, n) if n < 65536 else struct.pack(">BQ", 0xff, n)
        return bytes([first]) + length + mask + payload

    for offer in (b"permessage-deflate; client_max_window_bits", b""):
        s = connect()
        extension = b"Sec-WebSocket-Extensions: %s\r\n" % offer if offer else b""
        s.sendall(get(b"/upgrade", extra=b"Connection: Upgrade\r\nUpgrade: echo\r\n" + extension))
        r = Reader(s)
        head = r.until(b"\r\n\r\n")
        assert (b"Sec-WebSocket-Extensions: " + offer in head) == bool(offer), head
        assert r.take(7) == b"welcome"
        kinds = [frame(0xc1 if offer else 0x81, os.urandom(n)) for n in (0, 125, 126, 65535, 65536, 1 << 20)]
        kinds += [frame(0x01, b"one"), frame(0x89, b"ping"), frame(0x00, b"two"), frame(0x80, b"three")]
        kinds += [frame(0x88, struct.pack(">H", code) + b"why") for code in (1000, 1001, 4000)]
        for one in kinds:
            t = threading.Thread(target=s.sendall, args=(one,))
            t.start()
            assert r.take(len(one)) == one
            t.join()


def ahead():
    """Bytes sent with the request for an upgrade are not lost, and not taken for a request. No way to HTTP/2."""
    s = connect()
    s.sendall(get(b"/upgrade", extra=b"Connection: Upgrade\r\nUpgrade: echo\r\n") + b"GET / HTTP/1.1\r\n\r\n")
    r = Reader(s)
    r.until(b"\r\n\r\n")
    assert r.take(7 + 18) == b"welcomeGET / HTTP/1.1\r\n\r\n"
    assert "upgrade" not in dumped(get(b"/dump", extra=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n")).lower()


def not_asked():
    s = connect()
    s.sendall(get(b"/upgrade"))
    assert b" 502 " in Reader(s).until(b"\r\n")


def old():
    s = connect()
    s.sendall(b"GET /chunks HTTP/1.0\r\nHost: " + HOST + b"\r\n\r\n")
    out, _ = Reader(s).rest()
    head, body = out.split(b"\r\n\r\n", 1)
    assert body == b"hello world" and b"transfer-encoding" not in head.lower() and b"connection: close" in head.lower(), out
    s = connect()
    s.sendall(b"GET / HTTP/1.0\r\nHost: " + HOST + b"\r\nConnection: keep-alive\r\n\r\n")
    r = Reader(s)
    assert r.answer()[0] == 200
    s.sendall(b"GET / HTTP/1.0\r\nHost: " + HOST + b"\r\n\r\n")
    assert r.answer()[0] == 200
    assert r.rest() == (b"", False)


def bodies():
    s = connect()
    r = Reader(s)
    s.sendall(get(b"/", method=b"HEAD") + get(b"/"))
    head = r.until(b"\r\n\r\n")
    assert b"Content-Length: 12345" in head, head
    assert r.answer()[0] == 200
    s.sendall(get(b"/chunks"))
    assert b"chunked" in r.until(b"\r\n\r\n")
    assert r.until(b"0\r\nX-Sum: 1\r\n\r\n") == b"5\r\nhello\r\n6\r\n world\r\n"
    s.sendall(b"POST /echo HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" % HOST)
    time.sleep(0.1)
    s.sendall(b"4\r\ndefg\r\n0\r\n\r\n")
    assert r.answer()[2] == b"abcdefg"
    s.sendall(get(b"/close"))
    out, reset = r.rest()
    assert out.endswith(b"no length") and b"Connection: close" in out and not reset, out


def expect():
    s = connect()
    s.sendall(b"POST /expect HTTP/1.1\r\nHost: %s\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n" % HOST)
    r = Reader(s)
    assert b" 100 " in r.until(b"\r\n\r\n")
    s.sendall(b"hello")
    assert r.answer()[2] == b"hello"
    assert ask(get(b"/", extra=b"Expect: magic\r\n"))[0] == 417


def broken():
    """Half an answer is not a whole one; two readings of one are refused; what follows one is nobody's."""
    s = connect()
    s.sendall(get(b"/cut"))
    _, reset = Reader(s).rest()
    assert reset, "the cut answer ended in order"
    assert ask(get(b"/cl-te"))[0] == 502
    s = connect()
    r = Reader(s)
    s.sendall(get(b"/more"))
    assert r.answer()[2] == b"ok"
    for _ in range(5):
        s.sendall(get(b"/"))
        assert b"stolen" not in r.answer()[2]


def early():
    s = connect()
    s.sendall(b"POST /early HTTP/1.1\r\nHost: %s\r\nContent-Length: 100000000\r\n\r\n" % HOST)
    status, fields, body = Reader(s).answer()
    assert (status, body) == (413, b"early") and fields["connection"] == ["close"], (status, fields)


def cookies():
    _, fields, _ = ask(get(b"/cookie"))
    assert fields.get("set-cookie") == ["own=1; Path=/"], fields
    _, fields, _ = ask(get(b"/redirect"))
    assert fields["location"] == ["http://%s:%d/there?x=1" % (HOST.decode(), PORT)], fields


def websockets():
    """ARG of them at once, each with one message; they stay."""
    def frame(text):
        mask = os.urandom(4)
        return struct.pack("BB", 0x81, 0x80 | len(text)) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(text))
    socks = []
    for i in range(int(ARG)):
        s = connect()
        key = base64.b64encode(os.urandom(16))
        s.sendall(get(b"/upgrade", extra=b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: %s\r\n" % key))
        r = Reader(s)
        assert b" 101 " in r.until(b"\r\n\r\n")
        assert r.take(7) == b"welcome"
        text = frame(b"hello %d" % i)
        s.sendall(text)
        assert r.take(len(text)) == text
        socks.append(s)
    print("open", flush=True)
    sys.stdin.readline()


def half_open():
    """ARG connections that send nothing or a part of a head; another is served meanwhile."""
    socks = []
    for i in range(int(ARG)):
        s = connect()
        if i % 2:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x")
        socks.append(s)
        if i % 500 == 499:
            start = time.time()
            assert ask(get(b"/"))[0] == 200
            assert time.time() - start < 3


def big_head():
    assert ask(get(b"/", extra=b"X-Big: " + b"a" * 40000 + b"\r\n"))[0] == 431
    assert ask(get(b"/", extra=b"".join(b"X-%d: y\r\n" % i for i in range(200))))[0] == 431
    assert ask(get(b"/", extra=b"X-Big: " + b"a" * 20000 + b"\r\n"))[0] == 200
    assert ask(get(b"/" + b"a" * 20000))[0] == 200


def hosts():
    for host in (b"nosuch.localhost", b"localhost", b"x." + HOST, b".localhost", HOST + b".evil.example", b"..", b"a" * 300, b"127.0.0.1", HOST + b"\x00", HOST + b" x", b"u@" + HOST, b"%6fne.localhost", HOST + b":99999", HOST + b":x",
                 b"[" + HOST + b"]", b"\xff\xfe", HOST + b"/", HOST + b"#", HOST + b"," + HOST, b""):
        status, _, body = ask(get(b"/", host))
        assert status in (400, 404) and HOST.split(b".")[0] != body.strip(), (host, status, body)
    assert ask(get(b"/", HOST.upper() + b".:%d" % PORT))[0] == 200


def latency():
    """The median of ARG sequential requests on one connection, in microseconds."""
    s = connect()
    r = Reader(s)
    times = []
    for _ in range(int(ARG)):
        start = time.perf_counter()
        s.sendall(get(b"/"))
        r.answer()
        times.append(time.perf_counter() - start)
    print(int(sorted(times)[len(times) // 2] * 1e6))


globals()[CASE]()
