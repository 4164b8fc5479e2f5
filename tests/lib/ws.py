#!/usr/bin/env python3
"""A bare WebSocket client for the tests: one command over GET /v1/mux, or one rule broken on purpose.

ws.py URL TOKEN CAFILE ACTION [SANDBOX ARGV...]
exec     runs ARGV in SANDBOX; its output and exit status become this program's
time     the milliseconds of a second command on the same connection, median of 20
unmasked, text, noprotocol, badkey, version, origin, split, ping, junk
         breaks that rule (or uses that freedom) and prints what the server did
"""
import base64, hashlib, os, socket, ssl, struct, sys, time
from urllib.parse import urlsplit

HELLO, OPEN, ACCEPT, DATA, EOF, WINDOW, CONTROL, CLOSE, PING, PONG = range(1, 11)


def field(number, value):
    if isinstance(value, int):
        value = value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
    if isinstance(value, str):
        value = value.encode()
    return struct.pack(">HI", number, len(value)) + value


def frame(kind, stream=0, channel=0, payload=b""):
    return struct.pack(">BBHII", kind, channel, 0, stream, len(payload)) + payload


def fields(payload):
    out, at = {}, 0
    while at < len(payload):
        number, n = struct.unpack_from(">HI", payload, at)
        out.setdefault(number, payload[at + 6:at + 6 + n])
        at += 6 + n
    return out


class Socket:
    """The connection and the WebSocket layer."""

    def __init__(self, url, token, cafile, extra=None, drop=(), path="/v1/mux"):
        u = urlsplit(url)
        port = u.port or (443 if u.scheme == "https" else 80)
        self.s = socket.create_connection((u.hostname, port), timeout=20)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if u.scheme == "https":
            self.s = ssl.create_default_context(cafile=cafile).wrap_socket(self.s, server_hostname=u.hostname)
        self.key = base64.b64encode(os.urandom(16)).decode()
        headers = {
            "Host": u.netloc, "Authorization": "Bearer " + token, "Connection": "Upgrade", "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": self.key, "Sec-WebSocket-Protocol": "other, sandbox-mux",
        }
        headers.update(extra or {})
        for name in drop:
            del headers[name]
        head = "GET %s%s HTTP/1.1\r\n" % (u.path.rstrip("/"), path) + "".join("%s: %s\r\n" % h for h in headers.items())
        self.s.sendall(head.encode() + b"\r\n")
        self.buf = b""
        while b"\r\n\r\n" not in self.buf:
            self.more()
        head, self.buf = self.buf.split(b"\r\n\r\n", 1)
        lines = head.decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {k.lower(): v.strip() for k, v in (l.split(":", 1) for l in lines[1:])}
        self.closed = None
        self.pongs = 0

    def good(self):
        digest = hashlib.sha1((self.key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        assert self.headers["sec-websocket-accept"] == base64.b64encode(digest).decode(), "wrong accept key"
        assert self.headers["sec-websocket-protocol"] == "sandbox-mux", "wrong protocol"

    def more(self):
        got = self.s.recv(65536)
        if not got:
            raise EOFError
        self.buf += got

    def need(self, n):
        while len(self.buf) < n:
            self.more()
        out, self.buf = self.buf[:n], self.buf[n:]
        return out

    def send(self, payload, opcode=2, fin=1, masked=True):
        n, m = len(payload), 0x80 if masked else 0
        head = bytes([fin << 7 | opcode])
        head += bytes([m | n]) if n < 126 else bytes([m | 126]) + struct.pack(">H", n) if n < 65536 else bytes([m | 127]) + struct.pack(">Q", n)
        if masked:
            key = os.urandom(4)
            long = (key * (n // 4 + 1))[:n]
            payload = (int.from_bytes(payload, "big") ^ int.from_bytes(long, "big")).to_bytes(n, "big") if n else b""
            head += key
        self.s.sendall(head + payload)

    def recv(self):
        """The payload of the next binary message; None when the peer closed."""
        while True:
            a, b = self.need(2)
            assert not b & 0x80, "a server must not mask"
            n = b & 0x7f
            if n == 126:
                n, = struct.unpack(">H", self.need(2))
            elif n == 127:
                n, = struct.unpack(">Q", self.need(8))
            body = self.need(n)
            op = a & 15
            if op == 2:
                return body
            if op == 8:
                self.closed = struct.unpack(">H", body[:2])[0] if n >= 2 else 1005
                return None
            if op == 9:
                self.send(body, 10)
            if op == 10:
                self.pongs += 1


class Mux:
    def __init__(self, ws):
        self.ws, self.buf, self.next = ws, b"", 1
        ws.send(frame(HELLO, payload=field(1, 1) + field(2, 1) + field(3, 262144)))

    def frame(self):
        while True:
            if len(self.buf) >= 12:
                kind, channel, _, stream, n = struct.unpack_from(">BBHII", self.buf)
                if len(self.buf) >= 12 + n:
                    payload, self.buf = self.buf[12:12 + n], self.buf[12 + n:]
                    return kind, channel, stream, payload
            got = self.ws.recv()
            if got is None:
                raise EOFError
            self.buf += got

    def run(self, sandbox, argv, out=sys.stdout.buffer, err=sys.stderr.buffer, cwd=None):
        """The exit status of a command, -1 with a message when it was refused."""
        stream, self.next = self.next, self.next + 2
        seen = {1: 0, 2: 0}
        self.ws.send(frame(OPEN, stream, payload=field(10, 1) + field(11, 1 << 20) + field(12, sandbox) + b"".join(field(14, a) for a in argv)
                             + (field(16, cwd) if cwd else b"")))
        while True:
            kind, channel, at, payload = self.frame()
            if kind == PING:
                self.ws.send(frame(PONG))
            if at != stream:
                continue
            if kind == DATA:
                (out if channel == 1 else err).write(payload)
                seen[channel] += len(payload)
                self.ws.send(frame(WINDOW, stream, channel, struct.pack(">Q", seen[channel])))
            if kind == CLOSE:
                f = fields(payload)
                out.flush()
                if 34 in f and 31 not in f:
                    print(f.get(35, b"refused").decode(), file=sys.stderr)
                    return -1
                return int.from_bytes(f.get(31, b"\xff"), "big")


def ended(ws):
    try:
        while ws.recv() is not None:
            pass
        return "closed %d" % ws.closed
    except (EOFError, ConnectionError):
        return "cut"


def main():
    url, token, cafile, action, *rest = sys.argv[1:]
    cafile = cafile or None
    extra, drop = {}, []
    if action == "noprotocol":
        drop = ["Sec-WebSocket-Protocol"]
    if action == "badkey":
        extra = {"Sec-WebSocket-Key": "short"}
    if action == "version":
        extra = {"Sec-WebSocket-Version": "8"}
    if action == "origin":
        extra = {"Origin": "https://evil.example"}
    ws = Socket(url, token, cafile, extra, drop)
    if ws.status != 101:
        print("status %d" % ws.status)
        return 1
    ws.good()
    if action == "exec":
        return Mux(ws).run(rest[0], rest[1:])
    if action == "time":
        mux, times = Mux(ws), []
        for i in range(21):
            t = time.perf_counter()
            assert mux.run(rest[0], rest[1:]) == 0
            times.append((time.perf_counter() - t) * 1000)
        print("%.2f" % sorted(times[1:])[10])
        return 0
    if action == "split":
        hello = frame(HELLO, payload=field(1, 1) + field(2, 1) + field(3, 262144))
        for i, byte in enumerate(hello):
            ws.send(bytes([byte]), 2 if i == 0 else 0, fin=i == len(hello) - 1)
            ws.send(b"between", 9)
        print("hello back" if ws.recv()[0] == HELLO else "no hello")
        return 0
    if action == "ping":
        ws.send(b"are you there", 9)
        ws.send(b"", 8)
        print(ended(ws), "pongs", ws.pongs)
        return 0
    if action == "unmasked":
        ws.send(b"x", masked=False)
    if action == "text":
        ws.send(b"x", 1)
    if action == "junk":
        ws.send(b"this is no mux frame, whatever the carriage says")
    print(ended(ws))
    return 0


if __name__ == "__main__":
    sys.exit(main())
