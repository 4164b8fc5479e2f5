#!/usr/bin/env python3
"""Servers of a pretended Internet for the egress tests: origin.py ADDRESS DIR CERT KEY LOG.

Serves DIR on ports 80 and 443 of a loopback address and writes one line for each request: PORT SNI HOST METHOD PATH.
/redirect?to=URL answers 302; POST /count answers the number of bytes of its body; /slow sends a line each 100 ms.
"""
import functools
import http.server
import ssl
import sys
import threading
import time
import urllib.parse


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def note(self):
        sni = getattr(self.connection, "sandbox_sni", "-")
        with open(LOG, "a", encoding="utf-8") as f:
            f.write(f"{self.server.server_address[1]} {sni} {self.headers.get('Host')} {self.command} {self.path}\n")

    def log_message(self, *args):
        pass

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for k, v in headers:
            self.send_header(k, v)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.note()
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/redirect":
            self.answer(302, b"", [("Location", urllib.parse.parse_qs(url.query)["to"][0])])
        elif url.path == "/slow":
            self.close_connection = True
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            for i in range(600):
                self.wfile.write(b"tick %d\n" % i)
                self.wfile.flush()
                time.sleep(0.1)
        else:
            super().do_GET()

    def read_body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            total = 0
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                if size == 0:
                    while self.rfile.readline().strip():
                        pass
                    return total
                total += len(self.rfile.read(size))
                self.rfile.readline()
        return len(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def do_POST(self):
        self.note()
        self.answer(200, b"%d\n" % self.read_body())


def remember_name(sock, name, _context):
    sock.sandbox_sni = name or "-"


def serve(port, context):
    server = http.server.ThreadingHTTPServer((ADDRESS, port), functools.partial(Handler, directory=DIR))
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()


ADDRESS, DIR, CERT, KEY, LOG = sys.argv[1:6]
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(CERT, KEY)
tls.sni_callback = remember_name
serve(80, None)
serve(443, tls)
print("ready", flush=True)
threading.Event().wait()
