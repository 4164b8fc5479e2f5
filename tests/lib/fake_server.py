"""A server on a unix socket that answers what a test put into a directory: `fake_server.py SOCKET DIR`.

DIR/METHOD_path (slashes as underscores, without the query) holds the raw bytes of the answer; DIR/NAME.json a body to be
sent with 200 (or with the status in NAME.status). NAME.N.* is the N-th answer to that call, the last one repeats.
Requests are appended to DIR/requests as one JSON object a line. DIR/NAME.delay: seconds to wait first.
"""
import json
import os
import socketserver
import sys
import threading
import time

path, folder = sys.argv[1], sys.argv[2]
lock = threading.Lock()
counts = {}
REASONS = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 404: "Not Found", 409: "Conflict", 503: "Service Unavailable"}


def pick(name):
    with lock:
        counts[name] = n = counts.get(name, 0) + 1
    while n > 0:
        for suffix in ("", ".json"):
            candidate = os.path.join(folder, "%s.%d%s" % (name, n, suffix))
            if os.path.exists(candidate):
                return candidate
        n -= 1
    for suffix in ("", ".json"):
        candidate = os.path.join(folder, name + suffix)
        if os.path.exists(candidate):
            return candidate
    return None


def answer(name):
    file = pick(name)
    if not file:
        body = json.dumps({"code": "not_found", "message": "no such route", "request_id": "r-404"}).encode()
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body) + body, True
    base = file[:-5] if file.endswith(".json") else file
    if os.path.exists(base + ".delay"):
        time.sleep(float(open(base + ".delay").read()))
    data = open(file, "rb").read()
    if not file.endswith(".json"):
        return data, False
    status = int(open(base + ".status").read()) if os.path.exists(base + ".status") else 200
    head = "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, REASONS.get(status, "Status"), len(data))
    return head.encode() + data, True


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.one():
            pass

    def one(self):
        line = self.rfile.readline().decode("latin-1").split()
        if len(line) < 3:
            return False
        headers = {}
        while True:
            header = self.rfile.readline().decode("latin-1").strip()
            if not header:
                break
            key, _, value = header.partition(":")
            headers[key.lower()] = value.strip()
        body = self.rfile.read(int(headers.get("content-length", "0")))
        if headers.get("transfer-encoding") == "chunked":
            while True:
                n = int(self.rfile.readline(), 16)
                body += self.rfile.read(n)
                self.rfile.readline()
                if n == 0:
                    break
        with lock, open(os.path.join(folder, "requests"), "a") as log:
            log.write(json.dumps({"method": line[0], "target": line[1], "headers": headers, "body": body.decode("latin-1")}) + "\n")
        name = line[0] + line[1].split("?")[0].replace("/", "_")
        data, keep = answer(name)
        try:
            self.wfile.write(data)
        except OSError:
            return False
        return keep


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


with Server(path, Handler) as server:
    print("ready", flush=True)
    server.serve_forever()
