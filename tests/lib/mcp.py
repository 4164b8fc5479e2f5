"""A raw MCP client for tests: JSON-RPC lines to a bridge's standard input, every line of its output checked to be one message."""
import json
import os
import queue
import subprocess
import sys
import threading
import time

BUILD = os.environ["BUILD"]


class Bridge:
    def __init__(self, *args, version="2025-11-25", start=True, program=None, **popen):
        self.process = subprocess.Popen(program or [os.path.join(BUILD, "sandbox-mcp"), *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=popen.pop("stderr", None), bufsize=0, **popen)
        self.lines = queue.Queue()
        self.raw = []
        self.waiting = {}
        self.notes = []
        self.next_id = 0
        threading.Thread(target=self._read, daemon=True).start()
        if start:
            self.hello = self.request("initialize", {"protocolVersion": version, "capabilities": {},
                                                     "clientInfo": {"name": "test", "version": "1"}})["result"]
            self.notify("notifications/initialized")

    def _read(self):
        for line in self.process.stdout:
            self.raw.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def write(self, data):
        self.process.stdin.write(data if isinstance(data, bytes) else data.encode())

    def send(self, message):
        self.write(json.dumps(message) + "\n")

    def notify(self, method, params=None):
        self.send({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})})

    def begin(self, method, params=None):
        self.next_id += 1
        self.send({"jsonrpc": "2.0", "id": self.next_id, "method": method, **({"params": params} if params is not None else {})})
        return self.next_id

    def recv(self, timeout=30):
        """The next message whatever it is; None at the end of output."""
        line = self.lines.get(timeout=timeout)
        if line is None:
            return None
        assert line.endswith(b"\n") and line.count(b"\n") == 1, line[:200]
        message = json.loads(line)
        for one in message if isinstance(message, list) else [message]:
            assert one["jsonrpc"] == "2.0", one
        return message

    def answer(self, ident, timeout=30):
        """The answer to one request; notifications are kept, other answers wait for their turn."""
        end = time.time() + timeout
        while ident not in self.waiting:
            message = self.recv(max(0.01, end - time.time()))
            assert message is not None, "the bridge ended"
            if "id" in message:
                self.waiting[message["id"]] = message
            else:
                self.notes.append(message)
        return self.waiting.pop(ident)

    def request(self, method, params=None, timeout=30):
        return self.answer(self.begin(method, params), timeout)

    def call(self, tool, timeout=60, **arguments):
        """The whole result of a tool."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments}, timeout)
        assert "result" in answer, answer
        result = answer["result"]
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"], result
        return result

    def ok(self, tool, timeout=60, **arguments):
        """What a tool returned, which must not be an error."""
        result = self.call(tool, timeout, **arguments)
        assert not result["isError"], result["structuredContent"]
        return result["structuredContent"]

    def error(self, tool, **arguments):
        result = self.call(tool, **arguments)
        assert result["isError"], result
        return result["structuredContent"]["error"]

    def rss_kib(self):
        with open("/proc/%d/status" % self.process.pid) as f:
            fields = dict(line.split(":", 1) for line in f if ":" in line)
        return int(fields["VmHWM"].split()[0])

    def close(self, timeout=2):
        """Ends input; the exit status, within the time."""
        self.process.stdin.close()
        return self.process.wait(timeout)


def check(condition, *shown):
    if not condition:
        print("failed:", *shown, file=sys.stderr)
        raise AssertionError(shown)
