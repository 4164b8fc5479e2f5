"""Hostile clients of the daemon: hostile.py SOCKET SANDBOX [SEED [ATTACK…]]. After each the daemon must still answer."""
import os, random, socket, struct, sys, time

SOCK, BOX = sys.argv[1], sys.argv[2]
random.seed(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
FRAME_MAX = 256 * 1024
HELLO, OPEN, ACCEPT, DATA, EOF, WINDOW, CONTROL, CLOSE, PING, PONG = range(1, 11)

def dial(timeout=10):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(timeout)
    s.connect(SOCK)
    return s

def alive():
    s = dial()
    s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    data = b""
    while True:
        p = s.recv(65536)
        if not p:
            break
        data += p
    assert data.startswith(b"HTTP/1.1 200"), data[:200]

def push(s, data):
    """The daemon may have hung up already: then the rest is not for it."""
    try:
        s.sendall(data)
        return True
    except (BrokenPipeError, ConnectionResetError, socket.timeout):
        return False

def drain(s, seconds=2.0):
    data = b""
    end = time.time() + seconds
    while time.time() < end:
        s.settimeout(max(0.01, end - time.time()))
        try:
            p = s.recv(1 << 16)
        except (socket.timeout, ConnectionResetError):
            break
        if not p:
            return data, True
        data += p
    return data, False

def frame(kind, stream, payload=b"", channel=0, flags=0, length=None):
    return struct.pack(">BBHII", kind, channel, flags, stream, len(payload) if length is None else length) + payload

def field(number, value):
    if isinstance(value, int):
        value = value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
    if isinstance(value, str):
        value = value.encode()
    return struct.pack(">HI", number, len(value)) + value

HI = frame(HELLO, 0, field(1, 1) + field(2, 1) + field(3, FRAME_MAX))
HEAD = b"GET /v1/mux HTTP/1.1\r\nHost: x\r\nUpgrade: sandbox-mux\r\nConnection: Upgrade\r\n\r\n"

def exec_fields(*argv, window=65536, extra=b""):
    return field(10, 1) + field(11, window) + field(12, BOX) + b"".join(field(14, a) for a in argv) + extra

def mux():
    s = dial()
    s.sendall(HEAD + HI)
    return s

def http_garbage():
    for data in [b"\0" * 4096, os.urandom(4096), b"GET", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
                 b"GET /v1/sandboxes/" + b"%00" * 50 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /v1/sandboxes/" + b"../" * 200 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /healthz HTTP/1.1\r\n" + b"X: " + b"y" * 300000 + b"\r\n\r\n",
                 b"GET /healthz HTTP/1.1\r\n" + b"".join(b"H%d: v\r\n" % i for i in range(20000)) + b"\r\n",
                 b"GET /v1/sandboxes?" + b"label=a%3Db&" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100000,
                 HEAD[:-2] + b"Content-Length: 10\r\n\r\n", HEAD + b"\xff" * 3000]:
        s = dial()
        push(s, data)
        drain(s, 0.3)
        s.close()

def truncated_http():
    body = b'{"image":"x"}'
    whole = b"POST /v1/sandboxes?explain=true HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    for n in range(0, len(whole), 3):
        s = dial()
        push(s, whole[:n])
        s.close()

def slow_and_half_open():
    crowd = []
    for i in range(1000):
        s = dial()
        push(s, b"GET /healthz HT"[: i % 16])
        crowd.append(s)
    alive()
    for s in crowd:
        s.close()

def pipelined_never_read():
    s = dial(3)
    push(s, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 3000)
    alive()
    s.close()

def thousands_of_opens():
    s = mux()
    data = b"".join(frame(OPEN, 2 * i + 1, exec_fields("sleep", "0")) for i in range(2000))
    push(s, data)
    drain(s, 5)
    alive()
    s.close()

def giant_fields():
    s = mux()
    part = b"x" * (FRAME_MAX - 6)
    push(s, frame(OPEN, 1, field(10, 1) + struct.pack(">HI", 14, 0xFFFFFFFF), flags=1))
    for _ in range(40):
        if not push(s, frame(OPEN, 1, part, flags=1)):
            break
    drain(s, 1)
    s.close()
    s = mux()
    push(s, frame(OPEN, 1, exec_fields("true", extra=field(15, "A=" + "b" * 200000))))
    push(s, frame(OPEN, 3, exec_fields(*["a"] * 30000)))
    push(s, struct.pack(">BBHII", OPEN, 0, 0, 5, 0xFFFFFFFF))
    drain(s, 1)
    s.close()

def wrong_windows():
    big = (1 << 64) - 1
    s = mux()
    push(s, frame(OPEN, 1, exec_fields("sh", "-c", "yes | head -c 3000000", window=big)))
    push(s, b"".join(frame(WINDOW, 1, struct.pack(">Q", big), channel=c) for c in (0, 1, 2)))
    drain(s, 1)
    s.close()
    s = mux()
    push(s, frame(OPEN, 1, exec_fields("cat", window=0, extra=field(19, 1))))
    time.sleep(0.2)
    for _ in range(400):
        if not push(s, frame(DATA, 1, b"z" * 65536)):
            break
    drain(s, 1)
    s.close()

def frames_for_nobody():
    for f in [frame(DATA, 7, b"x"), frame(EOF, 7), frame(WINDOW, 7, b"\0" * 8), frame(CONTROL, 7, field(41, 1)), frame(CLOSE, 7), frame(ACCEPT, 2, b""),
              frame(OPEN, 2, exec_fields("true")), frame(OPEN, 0, exec_fields("true")), HI, frame(PING, 3), frame(99, 1), frame(DATA, 1, b"", channel=0),
              frame(DATA, 1, b"x", channel=9), frame(PING, 0) * 20000, frame(OPEN, 1, b"\1"), frame(OPEN, 1, field(10, 77)), frame(OPEN, 1, b""),
              frame(OPEN, 1, field(10, 2) + field(13, "0" * 32)), frame(OPEN, 1, field(10, 3) + field(13, b"\0\xff" * 16)),
              frame(OPEN, 1, exec_fields("true", extra=field(999, "x"))), frame(OPEN, 1, exec_fields("a\0b")),
              frame(OPEN, 1, field(10, 6) + field(11, 1) + field(12, BOX) + field(42, 1 << 40)), frame(OPEN, 1, field(10, 4) + field(12, BOX) + field(40, "/../" * 3000)),
              frame(OPEN, 1, field(10, 5) + field(11, 65536) + field(12, BOX) + field(40, "/workspace/x")) + frame(DATA, 1, os.urandom(60000))]:
        s = mux()
        push(s, f)
        drain(s, 0.15)
        s.close()

def noise_after_hello():
    base = HI + frame(OPEN, 1, exec_fields("sh", "-c", "echo a; cat", extra=field(19, 1))) + frame(DATA, 1, b"hello\n" * 50) + frame(EOF, 1) + frame(OPEN, 3, field(10, 7) + field(12, BOX))
    for _ in range(60):
        b = bytearray(base)
        for _ in range(random.randint(1, 6)):
            b[random.randrange(len(b))] = random.randrange(256)
        s = dial()
        push(s, HEAD + bytes(b[: random.randint(1, len(b))]) )
        drain(s, 0.05)
        s.close()

def never_reads_output():
    crowd = []
    for _ in range(20):
        s = mux()
        push(s, frame(OPEN, 1, exec_fields("sh", "-c", "yes", window=1 << 40)))
        crowd.append(s)
    time.sleep(1)
    alive()
    for s in crowd:
        s.close()

def control_storm():
    s = mux()
    push(s, frame(OPEN, 1, exec_fields("sleep", "30")))
    time.sleep(0.3)
    for _ in range(50):
        if not push(s, b"".join(frame(CONTROL, 1, field(41, 2) + field(20, random.randrange(1 << 32)) + field(21, 7)) + frame(CONTROL, 1, field(41, 1) + field(32, random.choice([0, 28, 18, 64, 999, 1 << 60]))) for _ in range(200))):
            break
    push(s, frame(CONTROL, 1, field(41, 3)))
    drain(s, 1)
    s.close()

attacks = [http_garbage, truncated_http, slow_and_half_open, pipelined_never_read, thousands_of_opens, giant_fields, wrong_windows, frames_for_nobody, noise_after_hello,
           never_reads_output, control_storm]
only = sys.argv[4:]
for a in attacks:
    if only and a.__name__ not in only:
        continue
    t = time.time()
    a()
    alive()
    print("%s %.1f s" % (a.__name__, time.time() - t), flush=True)
