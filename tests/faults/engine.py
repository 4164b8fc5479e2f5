#!/usr/bin/env python3
"""An engine that fails on order. `engine.py serve LISTEN REAL CONTROL` passes calls from socket LISTEN to the engine at REAL;
`engine.py rounds CONTROL CALLS MODE…` takes sandboxes of the daemon in SANDBOX_URL through their lives with the 1st, 2nd, … call
of a life going wrong in each way, and looks at what is left after each.

Ways: `error` refuses the call; `refused_after` does it and says it failed; `cut` ends the connection instead; `cut_after` does it
and ends the connection instead of answering; `lie` says it was done and does nothing; `garbage` answers with what is no answer;
`short` ends in the middle of the answer; `hang` never answers.
"""
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

lock = threading.Lock()
armed = {"mode": None, "at": 0, "seen": 0, "hit": ""}


def read_head(f):
    lines = []
    while True:
        line = f.readline(65536)
        if not line:
            return None
        lines.append(line)
        if line in (b"\r\n", b"\n"):
            return lines


def header(lines, name):
    for line in lines[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().lower()
    return b""


def read_body(f, lines, status=0, method=b""):
    """The body as it stands on the wire."""
    if header(lines, b"transfer-encoding") == b"chunked":
        out = b""
        while True:
            size = f.readline(1024)
            n = int(size.split(b";")[0], 16)
            out += size + f.read(n + 2)
            if n == 0:
                return out
    if method == b"HEAD" or status in (204, 304):
        return b""
    return f.read(int(header(lines, b"content-length") or b"0"))


def take(line):
    """How this call is to go wrong, or None."""
    with lock:
        if not armed["mode"]:
            return None
        armed["seen"] += 1
        if armed["seen"] != armed["at"]:
            return None
        armed["hit"] = line.decode("latin-1").split(" HTTP")[0]
        return armed["mode"]


def answer(status, body):
    return b"HTTP/1.1 %d Fault\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def lie(method, target):
    if method == b"GET":
        return answer(200, b"[]" if b"/json?" in target and b"/containers/json" in target else b"{}")
    if b"/containers/create" in target:
        return answer(201, b'{"Id":"%s","Warnings":[]}' % (b"ab" * 32))
    return b"HTTP/1.1 204 No Content\r\n\r\n"


def forward(real, lines, body):
    s = socket.socket(socket.AF_UNIX)
    s.connect(real)
    s.sendall(b"".join(lines) + body)
    return s


def whole_answer(s, method):
    f = s.makefile("rb")
    lines = read_head(f)
    if lines is None:
        return b""
    return b"".join(lines) + read_body(f, lines, int(lines[0].split()[1]), method)


def pass_on(client, f, real, lines):
    """A streamed body or answer: bytes both ways until either side ends."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(real)
    s.sendall(b"".join(lines))
    rest = f.peek() if header(lines, b"transfer-encoding") == b"chunked" else b""
    if rest:
        s.sendall(f.read1(len(rest)))
    while True:
        ready, _, _ = select.select([client, s], [], [])
        for a, b in ((client, s), (s, client)):
            if a in ready:
                data = a.recv(65536)
                if not data:
                    s.close()
                    return
                b.sendall(data)


def serve_call(client, f, real):
    lines = read_head(f)
    if lines is None:
        return False
    method, target = lines[0].split()[:2]
    if header(lines, b"transfer-encoding") == b"chunked" or b"/images/create" in target or b"/images/load" in target:
        pass_on(client, f, real, lines)
        return False
    body = read_body(f, lines)
    mode = take(lines[0])
    if mode == "error":
        client.sendall(answer(500, b'{"message":"a fault was asked for"}'))
    elif mode == "lie":
        client.sendall(lie(method, target))
    elif mode == "garbage":
        client.sendall(answer(200, b'{"Id": [[[[ \x00\xff not an answer'))
    elif mode == "cut":
        return False
    elif mode == "hang":
        while client.recv(65536):
            pass
        return False
    else:
        s = forward(real, lines, body)
        said = whole_answer(s, method)
        s.close()
        if mode == "cut_after":
            return False
        if mode == "refused_after":
            said = answer(500, b'{"message":"a fault was asked for, afterwards"}')
        if mode == "short":
            client.sendall(said[: len(said) * 2 // 3])
            return False
        client.sendall(said)
    return True


def serve_client(client, real):
    try:
        with client, client.makefile("rb") as f:
            while serve_call(client, f, real):
                pass
    except (OSError, ValueError):
        pass


def listen(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen(64)
    return s


def serve_control(path):
    s = listen(path)
    while True:
        c, _ = s.accept()
        with c, c.makefile("r") as f:
            words = f.readline().split()
            with lock:
                if words[:1] == ["arm"]:
                    armed.update(mode=words[1], at=int(words[2]), seen=0, hit="")
                elif words[:1] == ["disarm"]:
                    armed["mode"] = None
                c.sendall(json.dumps(armed).encode())


def serve(path, real, control):
    threading.Thread(target=serve_control, args=(control,), daemon=True).start()
    s = listen(path)
    while True:
        c, _ = s.accept()
        threading.Thread(target=serve_client, args=(c, real), daemon=True).start()


# --- the rounds ---


def tell(control, text):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(control)
        s.sendall(text.encode() + b"\n")
        return json.loads(s.makefile().read())


def sandbox(*args, limit=180):
    p = subprocess.run(("sandbox",) + args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit)
    return p.returncode, p.stdout.strip(), p.stderr.strip()


def containers():
    node = open(os.environ["SBX_DIR"] + "/state/node-id").read().strip()
    p = subprocess.run(["docker", "ps", "-aq", "--filter", "label=io.sandbox.node=" + node], capture_output=True, text=True, timeout=60)
    return p.stdout.split()


def until(what, fn, seconds=90):
    end = time.time() + seconds
    while time.time() < end:
        last = fn()
        if last is True:
            return
        time.sleep(0.1)
    raise SystemExit("not within %d s: %s: %s" % (seconds, what, last))


def nothing_left():
    code, out, _ = sandbox("list", "-q")
    if code or out:
        return "list: %d %s" % (code, out)
    if containers():
        return "containers: %s" % containers()
    code, out, err = sandbox("gc", "--verify")
    return True if code == 0 else "gc: %s %s" % (out, err)


def fail(what, *said):
    raise SystemExit("%s: %s" % (what, " ".join(str(s) for s in said)))


def life(what):
    code, box, err = sandbox("create", "-q", "--image", os.environ["IMAGE"], "--disk-mib", "64", "--memory-mib", "128", "--wait-timeout", "120s")
    good = code == 0
    if not good and not err:
        fail(what, "a create failed with status", code, "and no word why")
    if good:
        for word in ("one", "two"):
            code, out, err = sandbox("exec", "--no-stdin", box, "--", "echo", word)
            if code != 0 and not err or code == 0 and out != word:
                fail(what, "exec", word, "in", box, "returned", code, out, err)
            good = good and code == 0
    code, boxes, err = sandbox("list", "-q")
    for b in boxes.split():
        code, _, err = sandbox("delete", b, "--wait")
        if code != 0 and not err:
            fail(what, "a delete failed with status", code, "and no word why")
        if code not in (0, 3):
            sandbox("delete", b)
    return good


def rounds(control, calls, modes):
    fds = "/proc/%s/fd" % open(os.environ["SBX_DIR"] + "/pid").read().strip()
    if not life("without a fault"):
        fail("without a fault", "a life went wrong")
    before = len(os.listdir(fds))
    for mode in modes:
        hits = lives = 0
        for n in range(1, calls + 1):
            what = "%s of call %d" % (mode, n)
            tell(control, "arm %s %d" % (mode, n))
            lives += life(what)
            state = tell(control, "disarm")
            hits += state["hit"] != ""
            until("nothing is left after %s (%s)" % (what, state["hit"]), nothing_left)
        print("# %s: %d calls went wrong, %d sandboxes lived all the same" % (mode, hits, lives), flush=True)
        if hits == 0:
            fail(mode, "was never met")
    if not life("afterwards"):
        fail("afterwards", "a life went wrong")
    until("descriptors are back: %d before" % before, lambda: len(os.listdir(fds)) <= before + 8 or len(os.listdir(fds)))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(*sys.argv[2:5])
    else:
        rounds(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
