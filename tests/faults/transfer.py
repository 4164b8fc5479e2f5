#!/usr/bin/env python3
"""Copies with a call of `sandbox cp` failing in turn: `transfer.py FAULTS.SO SANDBOX DIR WAY…`. Each WAY is CLASS:ERROR (see fault.h).

A copy that returns 0 is whole and equal. One that does not has said why, and has left what was there before, nothing, or whole
files. Interrupted and short calls are gone on with.
"""
import errno
import hashlib
import mmap
import os
import shutil
import struct
import subprocess
import sys

CLASSES = {"file": 2, "stream": 4, "open": 8, "fork": 16, "name": 32}
HIDDEN = ("EINTR", "SHORT")
CALLS_MAX = 400
library, box, top = sys.argv[1:4]
page_path = top + "/page"


def open_page():
    with open(page_path, "wb") as f:
        f.write(bytes(4096))
    with open(page_path, "r+b") as f:
        return mmap.mmap(f.fileno(), 4096)


page = open_page()


def arm(classes, error, at):
    page[0:40] = struct.pack("=IiqqqQ", 0, error, at, 1, 0, 0)
    page[40:48] = bytes(8)
    page[0:4] = struct.pack("=I", classes)


def failed():
    return struct.unpack("=q", page[40:48])[0]


def make_tree(path):
    os.makedirs(path + "/sub/empty")
    with open(path + "/small", "w") as f:
        f.write("some words\n")
    with open(path + "/sub/large", "wb") as f:
        f.write(hashlib.sha256(b"seed").digest() * 20000)
    os.symlink("small", path + "/link")


def tree(path):
    """{name: kind and contents} of what is below."""
    out = {}
    for at, dirs, files in os.walk(path):
        for name in dirs + files:
            p = os.path.join(at, name)
            rel = os.path.relpath(p, path)
            if os.path.islink(p):
                out[rel] = "-> " + os.readlink(p)
            elif os.path.isdir(p):
                out[rel] = "dir"
            else:
                with open(p, "rb") as f:
                    out[rel] = hashlib.sha256(f.read()).hexdigest()
    return out


def run(*args, faulty=False):
    env = dict(os.environ)
    if faulty:
        env.update(LD_PRELOAD=library, SANDBOX_TEST_FAULTS=page_path)
    try:
        return once(args, env)
    except subprocess.TimeoutExpired:
        sys.exit("cp hangs with a call failing: class %d, error %d, number %d" % struct.unpack("=Iiq", page[0:16]))


def once(args, env):
    return subprocess.run(("sandbox",) + args, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=env)


def fetch(inside, to):
    shutil.rmtree(to, ignore_errors=True)
    p = run("cp", box + ":" + inside, to)
    return tree(to) if p.returncode == 0 else {}


def check(what, p, got, want):
    if p.returncode == 0:
        if got != want:
            sys.exit("%s: cp returned 0, and the copy differs: %s" % (what, sorted(set(want) ^ set(got)) or "in contents"))
        return
    if not p.stderr.strip():
        sys.exit("%s: cp returned %d without a word" % (what, p.returncode))
    for name, value in got.items():
        if want.get(name) != value:
            sys.exit("%s: a refused copy left %s, which is no part of the tree: %s" % (what, name, p.stderr))


def copy_in(what, want):
    p = run("cp", top + "/source", box + ":/workspace/in", faulty=True)
    page[0:4] = bytes(4)
    check(what, p, fetch("/workspace/in", top + "/back"), want)
    run("exec", "--no-stdin", box, "--", "rm", "-rf", "/workspace/in")
    return p


def copy_out(what, want):
    shutil.rmtree(top + "/out", ignore_errors=True)
    p = run("cp", box + ":/workspace/given", top + "/out", faulty=True)
    page[0:4] = bytes(4)
    check(what, p, tree(top + "/out"), want)
    left = [n for n in os.listdir(top) if n not in ("page", "source", "back", "out")]
    if left:
        sys.exit("%s: left %s" % (what, left))
    return p


def way(text, want):
    kind, name = text.split(":")
    error = -1 if name == "SHORT" else getattr(errno, name)
    calls = 0
    for copy in (copy_in, copy_out):
        refused = 0
        for n in range(1, CALLS_MAX):
            what = "%s with %s number %d" % (copy.__name__, text, n)
            arm(CLASSES[kind], error, n)
            p = copy(what, want)
            met = failed() > 0
            refused += p.returncode != 0
            if p.returncode != 0 and (not met or name in HIDDEN):
                sys.exit("%s: cp returned %d: %s" % (what, p.returncode, p.stderr))
            if not met:
                break
        else:
            sys.exit("%s never came to an end" % text)
        print("# %s, %s: %d calls failed in turn, %d copies refused" % (copy.__name__, text, n - 1, refused), flush=True)
        calls += n - 1
    if calls == 0:
        sys.exit("%s met no call" % text)


shutil.rmtree(top + "/source", ignore_errors=True)
make_tree(top + "/source")
expected = tree(top + "/source")
run("exec", "--no-stdin", box, "--", "rm", "-rf", "/workspace/given")
if run("cp", top + "/source", box + ":/workspace/given").returncode != 0:
    sys.exit("the copy without a fault failed")
for each in sys.argv[4:]:
    way(each, expected)
