"""A plain HTTP forward proxy for package managers of hosts without a way out: `http_proxy.py ADDRESS` prints its port. GET and HEAD only."""
import http.client
import http.server
import sys
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    def pass_on(self):
        url = urllib.parse.urlsplit(self.path)
        if url.scheme != "http":
            self.send_error(501)
            return
        there = http.client.HTTPConnection(url.netloc, timeout=120)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("proxy-connection", "connection")}
        try:
            there.request(self.command, urllib.parse.urlunsplit(("", "", url.path, url.query, "")), headers=headers)
            answer = there.getresponse()
        except OSError as e:
            self.send_error(502, str(e))
            return
        self.send_response(answer.status)
        for k, v in answer.getheaders():
            if k.lower() not in ("connection", "transfer-encoding", "keep-alive"):
                self.send_header(k, v)
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read(65536):
            self.wfile.write(piece)
        there.close()

    do_GET = do_HEAD = pass_on

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer((sys.argv[1], 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
