"""A slow and lossy link between this network namespace and another: two tun devices NAME, and packets between them that wait and get lost.

lossy_link NETNS NAME DELAY_MS LOSS_PERCENT    prints "up" and runs until it is killed; addresses are the caller's.

For kernels whose tc has no netem.
"""
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x0001 | 0x1000


def enter(path):
    fd = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(fd, 0) != 0:
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


def tun(name):
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN_NO_PI))
    return fd


netns, name, delay, loss = sys.argv[1], sys.argv[2], float(sys.argv[3]) / 1000, float(sys.argv[4]) / 100
here = tun(name)
enter("/run/netns/" + netns)
there = tun(name)
dice = random.Random(1)
waiting = []
count = lost = 0
print("up", flush=True)
while True:
    timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else None
    for fd in select.select([here, there], [], [], timeout)[0]:
        try:
            packet = os.read(fd, 65536)
        except OSError:
            continue
        count += 1
        if dice.random() < loss:
            lost += 1
            continue
        heapq.heappush(waiting, (time.monotonic() + delay, count, there if fd == here else here, packet))
    while waiting and waiting[0][0] <= time.monotonic():
        _, _, fd, packet = heapq.heappop(waiting)
        try:
            os.write(fd, packet)
        except OSError:
            pass  # its device is down: a packet that is lost
