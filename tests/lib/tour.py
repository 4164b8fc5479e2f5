#!/usr/bin/env python3
"""Runs the ```console blocks of a Markdown file and compares what they print: `tour.py README.md`.

A line `$ COMMAND` is run by bash (one shell for all, stdin empty); the lines up to the next one are what it prints on both streams.
`…` stands for any text, a line of it alone for any one line. Runs of blanks count as one.
"""
import os
import re
import subprocess
import sys


def steps(text):
    for block in re.findall(r"^```console\n(.*?)^```", text, re.S | re.M):
        command, expected = None, []
        for line in block.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, expected
                command, expected = line[2:], []
            else:
                expected.append(line)
        if command:
            yield command, expected


def matches(pattern, line):
    squeeze = lambda s: re.sub(r"\s+", " ", s.strip())
    regex = ".*".join(re.escape(p) for p in squeeze(pattern).split("…"))
    return re.fullmatch(regex, squeeze(line)) is not None


def main():
    shell = subprocess.Popen(["bash", "--norc"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    failed = count = 0
    for command, expected in steps(open(sys.argv[1], encoding="utf-8").read()):
        mark = "end-of-step-%d-%d" % (os.getpid(), count)
        count += 1
        shell.stdin.write("{ %s\n} </dev/null; echo; echo %s\n" % (command, mark))
        shell.stdin.flush()
        got = []
        for line in shell.stdout:
            if line.strip() == mark:
                break
            got.append(line.rstrip("\n"))
        while got and not got[-1]:
            got.pop()
        if len(got) != len(expected) or not all(matches(p, g) for p, g in zip(expected, got)):
            failed += 1
            print("$ " + command)
            print("  expected: " + "\n            ".join(expected))
            print("  got:      " + "\n            ".join(got))
    shell.stdin.close()
    shell.wait()
    print(f"{count} steps, {failed} failed")
    return 1 if failed or not count else 0


sys.exit(main())
