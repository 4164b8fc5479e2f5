#!/usr/bin/env python3
"""`byte_rounds.py SANDBOX ROUNDS`: random bytes through `sandbox exec SANDBOX -- cat`, compared by SHA-256, four clients at a time."""
import concurrent.futures
import hashlib
import os
import random
import subprocess
import sys

EDGES = [0, 1, 12, 4096, 16384, 65536, 131072, 262144, 262156, 1048576, 2097152]


def size(rng):
    edge = rng.choice(EDGES)
    return max(0, edge + rng.choice([-13, -12, -1, 0, 0, 1, 12, 13, rng.randrange(5000)]))


def one(arg):
    box, seed = arg
    rng = random.Random(seed)
    data = os.urandom(size(rng))
    got = subprocess.run(["sandbox", "exec", box, "--", "cat"], input=data, stdout=subprocess.PIPE, timeout=60)
    if got.returncode != 0 or hashlib.sha256(got.stdout).digest() != hashlib.sha256(data).digest():
        return f"round {seed}: {len(data)} bytes in, {len(got.stdout)} out, status {got.returncode}"
    return None


def main():
    box, rounds = sys.argv[1], int(sys.argv[2])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        bad = [r for r in pool.map(one, ((box, i) for i in range(rounds))) if r]
    print("\n".join(bad) or f"{rounds} rounds exact")
    return 1 if bad else 0


sys.exit(main())
