#!/usr/bin/env python3
"""A JetStream stream for tests: `nats_stream.py PORT create SUBJECT` makes one that keeps what comes on SUBJECT, `nats_stream.py PORT read`
prints all of it in order, one JSON object a line with its subject and Nats-Msg-Id."""
import base64
import json
import socket
import sys

STREAM = "test"


class Client:
    def __init__(self, port):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.stream = self.sock.makefile("rb")
        self.sock.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB inbox 1\r\n')

    def ask(self, subject, body):
        data = json.dumps(body).encode()
        self.sock.sendall(b"PUB %s inbox %d\r\n%s\r\n" % (subject.encode(), len(data), data))
        while True:
            words = self.stream.readline().split()
            if not words:
                raise SystemExit("the server closed the connection")
            if words[0] == b"PING":
                self.sock.sendall(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                size = int(words[-1])
                head = int(words[-2]) if words[0] == b"HMSG" else 0
                data = self.stream.read(size + 2)[head:size]
                return json.loads(data) if data else {"error": {"description": "nobody answers"}}


def create(client, subject):
    answer = client.ask("$JS.API.STREAM.CREATE." + STREAM, {"name": STREAM, "subjects": [subject], "storage": "file", "num_replicas": 1})
    if "error" in answer:
        raise SystemExit(answer["error"]["description"])


def read(client):
    answer = client.ask("$JS.API.STREAM.INFO." + STREAM, {})
    if "error" in answer:
        raise SystemExit(answer["error"]["description"])
    for seq in range(1, answer["state"]["last_seq"] + 1):
        message = client.ask("$JS.API.STREAM.MSG.GET." + STREAM, {"seq": seq})["message"]
        event = json.loads(base64.b64decode(message["data"]))
        event["subject"] = message["subject"]
        for header in base64.b64decode(message.get("hdrs", "")).split(b"\r\n"):
            if header.lower().startswith(b"nats-msg-id:"):
                event["msg_id"] = header.split(b":", 1)[1].strip().decode()
        print(json.dumps(event))


def main():
    client = Client(int(sys.argv[1]))
    if sys.argv[2] == "create":
        create(client, sys.argv[3])
    else:
        read(client)


main()
