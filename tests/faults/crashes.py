#!/usr/bin/env python3
"""Crashes at random over the whole system: `crashes.py SECONDS [SEED]`, below the directories of sbx_prepare (tests/lib/helpers.bash).

Clients create, run commands and delete, while the daemon, the way to the engine, the clients, the process 1 of sandboxes and their
shims are killed. After each round, with everything up again: what was told is so, no command ran twice, what was left is deleted,
nothing is left over, every record has ended, the books balance, and the daemon has the descriptors and the memory of the start.
"""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

BUILD, SBX, IMAGE, REAL = (os.environ[n] for n in ("BUILD", "SBX_DIR", "IMAGE", "DOCKER_SOCKET"))
TOP = os.environ["TOP"]
seconds = float(sys.argv[1])
seed = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else random.SystemRandom().randrange(1 << 32)
rng = random.Random(seed)
log = open(SBX + "/log", "ab")
running = {}  # name: process
clients = set()
lock = threading.Lock()
started = 0


def fail(*what):
    raise SystemExit("seed %d: %s" % (seed, " ".join(str(w) for w in what)))


def start_engine():
    for name in ("engine.sock", "control"):
        if os.path.exists(SBX + "/" + name):
            os.unlink(SBX + "/" + name)
    running["engine"] = subprocess.Popen([sys.executable, TOP + "/tests/faults/engine.py", "serve", SBX + "/engine.sock", REAL, SBX + "/control"],
                                         stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def start_daemon():
    r, w = os.pipe()
    sets = ("daemon.state_dir=%s/state" % SBX, "daemon.socket=%s/d.sock" % SBX, "worker.docker_socket=%s/engine.sock" % SBX,
            "daemon.init_path=%s/sandbox-init" % BUILD, "daemon.log_level=debug", "policy.max_host_pressure=1", "worker.gvisor_runtime=")
    command = [BUILD + "/sandboxd", "--ready-fd", str(w)]
    for s in sets:
        command += ["--set", s]
    running["daemon"] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(w,))
    with open(SBX + "/pid", "w") as f:
        f.write(str(running["daemon"].pid))
    os.close(w)
    with os.fdopen(r, "rb") as f:
        if f.readline() != b"ready\n":
            fail("the daemon did not become ready")


def kill(name):
    p = running[name]
    p.send_signal(signal.SIGKILL)
    p.wait()


def sandbox(*args, limit=240):
    p = subprocess.Popen(("sandbox",) + args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with lock:
        clients.add(p)
    try:
        out, err = p.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        p.kill()
        fail("a client hangs:", args)
    with lock:
        clients.discard(p)
    return p.returncode, out.strip(), err.strip()


def docker(*args):
    return subprocess.run(("docker",) + args, capture_output=True, text=True, timeout=120).stdout.split()


def parent_of(pid):
    with open("/proc/%d/stat" % pid) as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


class Client(threading.Thread):
    def __init__(self, number, until):
        super().__init__()
        self.number, self.until, self.rng = number, until, random.Random(rng.random())
        self.boxes, self.told, self.tried, self.errors = {}, {}, {}, []
        self.failure = None

    def check(self, what, code, err):
        if code > 0 and not err:
            self.errors.append("%s returned %d without a word" % (what, code))

    def create(self):
        code, box, err = sandbox("create", "-q", "--image", IMAGE, "--disk-mib", "64", "--memory-mib", "64", "--wait-timeout", "120s")
        self.check("create", code, err)
        if code == 0:
            self.boxes[box] = True
            self.told[box], self.tried[box] = [], []

    def run_one(self, box):
        word = "w%d-%x" % (self.number, self.rng.randrange(1 << 60))
        self.tried[box].append(word)
        code, out, err = sandbox("exec", "--no-stdin", box, "--", "sh", "-c", "echo %s >>/workspace/said; echo %s" % (word, word))
        self.check("exec", code, err)
        if code == 0 and out != word:
            self.errors.append("exec of %s returned 0 and said %r" % (word, out))
        if code == 0:
            self.told[box].append(word)

    def delete(self, box):
        code, _, err = sandbox("delete", box)
        self.check("delete", code, err)
        if code == 0 or code < 0:
            self.boxes.pop(box, None)

    def run(self):
        try:
            while time.time() < self.until:
                known = [b for b in self.boxes]
                what = self.rng.random()
                if not known or what < 0.2 and len(known) < 3:
                    self.create()
                elif what < 0.85:
                    self.run_one(self.rng.choice(known))
                else:
                    self.delete(self.rng.choice(known))
        except BaseException as e:  # told by the round
            self.failure = e


crashed = set()  # sandboxes whose processes were killed


def crash(kinds):
    kind = rng.choice(kinds)
    if kind == "daemon":
        kill("daemon")
        time.sleep(rng.random() / 2)
        start_daemon()
    elif kind == "engine":
        kill("engine")
        time.sleep(rng.random() / 2)
        start_engine()
    elif kind == "client":
        with lock:
            some = sorted(clients, key=lambda p: p.pid)
        if some:
            rng.choice(some).send_signal(signal.SIGKILL)
    else:
        boxes = docker("ps", "-q", "--filter", "label=io.sandbox.node=" + node())
        if not boxes:
            return "nothing"
        box = rng.choice(sorted(boxes))
        said = docker("inspect", "-f", "{{.State.Pid}} {{index .Config.Labels \"io.sandbox.id\"}}", box)
        if len(said) != 2 or said[0] == "0":
            return "nothing"
        pid = int(said[0])
        try:
            victim = pid if kind == "init" else parent_of(pid)
            with open("/proc/%d/comm" % victim) as f:
                name = f.read()
            if kind == "shim" and not name.startswith("containerd-shim"):
                return "nothing"
            crashed.add(said[1])
            os.kill(victim, signal.SIGKILL)
        except (OSError, ValueError):
            return "nothing"
    return kind


def node():
    with open(SBX + "/state/node-id") as f:
        return f.read().strip()


def until(what, fn, limit=120):
    end = time.time() + limit
    while True:
        last = fn()
        if last is True:
            return
        if time.time() > end:
            fail("not within %d s: %s: %s" % (limit, what, last))
        time.sleep(0.1)


def rows(sql):
    db = sqlite3.connect("file:%s/state/store.db?mode=ro" % SBX, uri=True, timeout=30)
    try:
        return db.execute(sql).fetchone()[0]
    finally:
        db.close()


def books():
    live = rows("SELECT COUNT(*) FROM sandboxes WHERE live = 1")
    if rows("SELECT COUNT(*) FROM reservations") != live:
        return "reservations are not those of the live sandboxes"
    if rows("SELECT COALESCE(SUM(sandboxes), 0) FROM nodes") != live:
        return "a node counts other sandboxes than live"
    if rows("SELECT (SELECT COALESCE(SUM(used_memory_mib), 0) FROM nodes) - (SELECT COALESCE(SUM(memory_mib), 0) FROM reservations)") != 0:
        return "memory in use is not what is reserved"
    return True


def held():
    pid = running["daemon"].pid
    with open("/proc/%d/status" % pid) as f:
        rss = [int(line.split()[1]) for line in f if line.startswith("VmRSS")][0]
    return len(os.listdir("/proc/%d/fd" % pid)), rss


def no_command_twice(client):
    """What the sandboxes that live say."""
    for box in client.boxes:
        if box in crashed:
            continue
        code, out, err = sandbox("exec", "--no-stdin", box, "--", "sh", "-c", "touch /workspace/said; cat /workspace/said")
        if code != 0:
            fail("a sandbox that was created and that nobody touched does not answer:", box, code, err)
        said = out.split()
        for word in client.tried[box]:
            if said.count(word) > 1:
                fail("a command ran twice:", word, "in", box)
        for word in client.told[box]:
            if said.count(word) != 1:
                fail("a command that succeeded is not to be seen:", word, "in", box)


def nothing_left():
    code, out, err = sandbox("list", "-q")
    for box in out.split():
        sandbox("delete", box)
    if code or out:
        return "list: %d %s %s" % (code, out, err)
    if docker("ps", "-aq", "--filter", "label=io.sandbox.node=" + node()):
        return "containers"
    code, out, err = sandbox("gc", "--verify")
    if code:
        return "gc: %s %s" % (out, err)
    if rows("SELECT COUNT(*) FROM operations WHERE ended_us = 0"):
        return "operations that have not ended"
    return True


def one_round(kinds, length):
    global started
    end = time.time() + length
    threads = [Client(i, end) for i in range(3)]
    for t in threads:
        t.start()
    did = []
    while time.time() < end:
        time.sleep(rng.random() * 0.8)
        did.append(crash(kinds))
    for t in threads:
        t.join(300)
        if t.is_alive():
            fail("a client does not end")
        if t.failure or t.errors:
            fail(t.failure or "", *t.errors)
    until("the daemon answers", lambda: sandbox("list", "-q")[0] == 0)
    for t in threads:
        no_command_twice(t)
    until("the books balance", books)
    until("nothing is left", nothing_left)
    until("the books balance at the end", books)
    started += sum(len(v) for t in threads for v in t.tried.values())
    return did


print("# seed %d" % seed, flush=True)
kinds_of_all = ("daemon", "daemon", "engine", "client", "client", "init", "shim")
start_engine()
until("the engine's socket is there", lambda: os.path.exists(SBX + "/engine.sock"))
start_daemon()
try:
    one_round(("client",), 2)
    kill("daemon")
    start_daemon()
    one_round(("client",), 2)
    fds, rss = held()
    stop, total, number = time.time() + seconds, {}, 0
    while time.time() < stop:
        number += 1
        for kind in one_round(kinds_of_all, 4):
            total[kind] = total.get(kind, 0) + 1
        now = held()
        if now[0] > fds + 10 or now[1] > rss * 1.5 + 8192:
            fail("the daemon grew: %d descriptors and %d KiB, at first %d and %d" % (now + (fds, rss)))
    print("# %d rounds, %d commands; killed: %s; at the end %d descriptors and %d KiB, at first %d and %d" % (
        (number, started, " ".join("%s %d" % k for k in sorted(total.items()))) + held() + (fds, rss)), flush=True)
finally:
    running["daemon"].terminate()
    running["daemon"].wait(60)
    running["engine"].kill()
