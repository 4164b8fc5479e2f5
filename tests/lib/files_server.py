"""Serves a folder over HTTP on loopback and prints its port. A file NAME.cut beside NAME holds how many bytes of it to send before
the connection ends, though its whole length was announced; NAME.to holds an address to redirect to."""
import http.server
import os
import sys


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        path = self.translate_path(self.path)
        if os.path.exists(path + ".to"):
            self.send_response(302)
            self.send_header("Location", open(path + ".to").read().strip())
            self.end_headers()
        elif os.path.exists(path + ".cut"):
            body = open(path, "rb").read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: int(open(path + ".cut").read())])
        else:
            super().do_GET()

    def log_message(self, *args):
        pass


os.chdir(sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
