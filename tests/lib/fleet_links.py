#!/usr/bin/env python3
"""Many idle workers of one controller, in one process: `fleet_links.py SOCKET URL CAFILE COUNT`.

Makes a join token for each over the controller's unix socket, joins, brings its link up and keeps it as a worker does. Prints `up N` when
all links are up; ends at the end of its standard input, printing `kept N` for those that were still there."""
import http.client
import json
import os
import resource
import select
import socket
import ssl
import sys
import time
import uuid
from urllib.parse import urlsplit

from ws import ACCEPT, CLOSE, DATA, EOF, HELLO, OPEN, PING, PONG, Socket, field, fields, frame

BEAT_S = 8


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def post(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    data = json.loads(answer.read())
    if answer.status >= 300:
        sys.exit("%s: %d %s" % (path, answer.status, data))
    return data


def report(node, name):
    offer = {"offered": False, "reason": "none here"}
    return {"node": node, "name": name, "region": "here", "cpu_millis": 8000, "memory_mib": 16384, "disk_mib": 100000, "pids": 4096,
            "max_sandboxes": 10, "pressure_milli": 10, "labels": {}, "tiers": {"container": {"offered": True}, "gvisor": offer, "microvm": offer},
            "network": {"deny": {"offered": True}, "restricted": offer, "open": offer}}


class Link:
    def __init__(self, url, cafile, credential):
        self.ws, self.buf, self.next = Socket(url, credential, cafile, path="/v1/link"), b"", 1
        if self.ws.status != 101:
            sys.exit("a link was refused: %d" % self.ws.status)
        self.ws.send(frame(HELLO, payload=field(1, 1) + field(2, 1) + field(3, 262144)))

    def frame(self):
        while True:
            if len(self.buf) >= 12:
                n = int.from_bytes(self.buf[8:12], "big")
                if len(self.buf) >= 12 + n:
                    head, payload, self.buf = self.buf[:12], self.buf[12:12 + n], self.buf[12 + n:]
                    return head[0], int.from_bytes(head[4:8], "big"), payload
            got = self.ws.recv()
            if got is None:
                raise EOFError
            self.buf += got

    def answer(self, kind, stream):
        """What the controller asks by itself: is anybody there, and `there may be work`."""
        if kind == PING:
            self.ws.send(frame(PONG))
        if kind == OPEN:
            self.ws.send(frame(ACCEPT, stream, payload=field(11, 1 << 20)) + frame(CLOSE, stream))

    def call(self, method, body=b""):
        stream, self.next = self.next, self.next + 2
        self.ws.send(frame(OPEN, stream, payload=field(10, 32) + field(11, 1 << 20) + field(60, method)))
        out = b""
        while True:
            kind, at, payload = self.frame()
            if at != stream:
                self.answer(kind, at)
            elif kind == ACCEPT:
                self.ws.send((frame(DATA, stream, 0, body) if body else b"") + frame(EOF, stream))
            elif kind == DATA:
                out += payload
            elif kind == CLOSE:
                f = fields(payload)
                if 61 in f:
                    sys.exit("%s: %s" % (method, f.get(35, b"").decode()))
                self.beat = time.monotonic()
                return out


def bring_up(local, remote, url, cafile, i):
    name, node = "idle-%d" % i, str(uuid.UUID(int=(0x7 << 76) | (0x2 << 62) | (int(time.time() * 1000) << 80) | i + 1))
    token = post(local, "/v1/nodes/tokens", {"name": name, "pin": ""})["secret"]
    secret = post(remote, "/v1/nodes/join", {"token": token, "name": name, "node_id": node})["credential"]
    link = Link(url, cafile, secret)
    link.call("hello", json.dumps({"report": report(node, name), "boot_id": "test", "session": node, "version": "0.1.0", "held": []}).encode())
    link.call("desired")
    link.call("ready")
    return link


def keep(links):
    """Beats those whose time it is; those that are gone are left out."""
    kept = []
    for link in links:
        try:
            if time.monotonic() - link.beat > BEAT_S:
                link.call("ready")
            kept.append(link)
        except (EOFError, OSError):
            pass
    return kept


def main():
    path, url, cafile, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    u = urlsplit(url)
    local = Unix(path)
    remote = http.client.HTTPSConnection(u.hostname, u.port, context=ssl.create_default_context(cafile=cafile))
    links = []
    while len(links) < count:
        links.append(bring_up(local, remote, url, cafile, len(links)))
        links = keep(links)
    print("up", len(links), flush=True)
    while not select.select([sys.stdin], [], [], 1)[0]:
        links = keep(links)
    print("kept", len(keep(links)), flush=True)


main()
