"""Both sides of a try at a sandbox's network.

world ADDRESS…: in a network namespace that stands for everything outside: TCP and UDP on port 8080 of every address, and a resolver on port 53.
host PORT: a server of this machine, TCP and UDP, both families.
try LINES: from inside, with every right a root of that namespace has; one attempt a line on stdin, "KIND ADDRESS [PORT]"; answers "KIND ADDRESS yes|no".
"""
import concurrent.futures
import selectors
import socket
import struct
import sys

NAMES = {"good.test": "11.99.7.2", "rebind.test": "10.99.7.2", "meta.test": "169.254.7.7"}
WAIT = 3


def dns_answer(question):
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1:at + 1 + question[at]].decode())
        at += question[at] + 1
    kind = struct.unpack(">H", question[at + 1:at + 3])[0]
    body = question[12:at + 5]
    address = NAMES.get(".".join(labels).lower())
    if not address:
        return question[:2] + b"\x81\x83\x00\x01\x00\x00\x00\x00\x00\x00" + body
    if kind != 1:
        return question[:2] + b"\x81\x80\x00\x01\x00\x00\x00\x00\x00\x00" + body
    record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04" + socket.inet_aton(address)
    return question[:2] + b"\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00" + body + record


def serve(tcp, udp):
    sel = selectors.DefaultSelector()
    for family, address, port in tcp:
        s = socket.socket(family)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((address, port))
        s.listen(64)
        sel.register(s, selectors.EVENT_READ, "tcp")
    for family, address, port in udp:
        s = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        s.bind((address, port))
        sel.register(s, selectors.EVENT_READ, "dns" if port == 53 else "udp")
    print("ready", flush=True)
    while True:
        for key, _ in sel.select():
            s = key.fileobj
            if key.data == "tcp":
                c, _ = s.accept()
                try:
                    c.sendall(b"HTTP/1.0 200 OK\r\n\r\nthere\n")
                except OSError:
                    pass
                c.close()
                continue
            text, peer = s.recvfrom(4096)
            try:
                s.sendto(dns_answer(text) if key.data == "dns" else text, peer)
            except (OSError, IndexError):
                pass


def answers(s):
    s.settimeout(WAIT)
    return bool(s.recv(256))


def attempt(kind, address, port):
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    if kind == "tcp":
        with socket.socket(family) as s:
            s.settimeout(WAIT)
            s.connect((address, port))
            return answers(s)
    if kind == "udp":
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect((address, port))
            s.send(b"hello")
            return answers(s)
    if kind == "dns":
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect((address, 53))
            s.send(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04good\x04test\x00\x00\x01\x00\x01")
            return answers(s)
    if kind == "ping":
        with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMP) as s:
            s.settimeout(WAIT)
            head = struct.pack(">BBHHH", 8, 0, 0, 0x5342, 1) + b"x" * 8
            total = sum(struct.unpack(f">{len(head) // 2}H", head))
            total = (total >> 16) + (total & 0xFFFF)
            s.sendto(head[:2] + struct.pack(">H", ~total & 0xFFFF) + head[4:], (address, 0))
            while True:
                got = s.recv(256)
                if got[20] == 0:
                    return True
                if got[20] != 8:
                    return False
    raise ValueError(kind)


def judge(line):
    words = line.split()
    try:
        good = attempt(words[0], words[1], int(words[2]) if len(words) > 2 else 0)
    except OSError:
        good = False
    return f"{words[0]} {words[1]} {'yes' if good else 'no'}"


def tries():
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        for verdict in pool.map(judge, [line for line in sys.stdin if line.strip()]):
            print(verdict)


def spoof(source, target, port):
    """A datagram with an invented source, straight onto the interface."""
    text = b"spoofed"
    udp = struct.pack(">HHHH", 5353, port, 8 + len(text), 0) + text
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as s:
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(target))
        s.sendto(head + udp, (target, 0))


if __name__ == "__main__":
    if sys.argv[1] == "world":
        # Answers come from the address that was asked.
        own = [(socket.AF_INET, address, port) for address in sys.argv[2:] for port in (8080, 53)]
        serve([(socket.AF_INET, "0.0.0.0", 8080), (socket.AF_INET6, "::", 8080)], [(socket.AF_INET6, "::", 8080)] + own)
    elif sys.argv[1] == "host":
        p = int(sys.argv[2])
        serve([(socket.AF_INET, "0.0.0.0", p), (socket.AF_INET6, "::", p)], [(socket.AF_INET, "0.0.0.0", p), (socket.AF_INET6, "::", p)])
    elif sys.argv[1] == "spoof":
        spoof(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        tries()
