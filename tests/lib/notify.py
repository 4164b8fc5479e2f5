"""Waits for one message on a service manager's notification socket and writes it to a file: `notify.py SOCKET FILE`."""
import socket
import sys

s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.settimeout(60)
s.bind(sys.argv[1])
with open(sys.argv[2], "wb") as f:
    f.write(s.recv(256))
