#!/usr/bin/env bats
# The bridge's protocol side, which needs no daemon: every line is one message, every request has one answer.
load ../lib/helpers.bash

setup() {
	export SANDBOX_URL=unix://$BATS_TEST_TMPDIR/none.sock HOME=$BATS_TEST_TMPDIR PYTHONPATH=$TOP/tests/lib PYTHONDONTWRITEBYTECODE=1
}

@test "nothing is said before initialize, and the end of input ends it" {
	run -0 --separate-stderr timeout 3 sandbox-mcp </dev/null
	[ -z "$output" ]
	timeout 10 python3 - <<'PY'
import time
from mcp import *
b = Bridge(start=False)
time.sleep(1)
check(b.lines.empty(), b.raw)
start = time.time()
check(b.close(5) == 0)
check(time.time() - start < 2)
PY
}

@test "help and version are for people and go to standard output" {
	run -0 sandbox-mcp --help
	[[ $output == *SANDBOX_URL* ]]
	run -0 sandbox-mcp --version
	[[ $output == "sandbox-mcp "* ]]
	run -2 --separate-stderr sandbox-mcp --nope
	[ -z "$output" ]
	[[ $stderr == *"unknown argument '--nope'"* ]]
}

@test "sandbox mcp serve is the same bridge" {
	timeout 10 python3 - <<'PY'
from mcp import *
b = Bridge(program=[os.path.join(BUILD, "sandbox"), "mcp", "serve"])
check(b.hello["serverInfo"]["name"] == "sandbox", b.hello)
check(b.close() == 0)
PY
}

@test "known protocol versions are echoed, others get the newest" {
	timeout 20 python3 - <<'PY'
from mcp import *
b = Bridge(start=False)
newest = "2025-11-25"
for offered, expected in [("2024-11-05",) * 2, ("2025-03-26",) * 2, ("2025-06-18",) * 2, (newest,) * 2, ("1999-01-01", newest), ("", newest), (5, newest)]:
    got = b.request("initialize", {"protocolVersion": offered, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})["result"]
    check(got["protocolVersion"] == expected, offered, got)
check(b.request("initialize", {})["result"]["protocolVersion"] == newest)
check(b.request("initialize")["result"]["protocolVersion"] == newest)
PY
}

@test "ping is answered before and after initialize" {
	timeout 10 python3 - <<'PY'
from mcp import *
b = Bridge(start=False)
check(b.request("ping") == {"jsonrpc": "2.0", "id": 1, "result": {}})
check("result" in b.request("initialize", {"protocolVersion": "2025-11-25"}))
check(b.request("ping")["result"] == {})
PY
}

@test "ids come back exactly as they were sent" {
	timeout 10 python3 - <<'PY'
from mcp import *
b = Bridge()
b.raw.clear()
for ident in ['"a"', '0', '-1', '9007199254740993', '1.0', '""', '"\\u00e9\\n"', '123456789012345678901234567890']:
    b.write('{"jsonrpc":"2.0","id":%s,"method":"ping"}\n' % ident)
    line = b.lines.get(timeout=5)
    check(('"id":%s,' % ident).encode() in line, ident, line)
    b.write('{"jsonrpc" : "2.0", "method":"no/such", "id" : %s }\n' % ident)
    line = b.lines.get(timeout=5)
    check(('"id":%s,' % ident).encode() in line and b"-32601" in line, ident, line)
for ident in ['null', '{}', '[]', 'true', '1.5', '"' + 'x' * 300 + '"']:
    b.write('{"jsonrpc":"2.0","id":%s,"method":"ping"}\n' % ident)
    got = b.recv()
    check(got["id"] is None and got["error"]["code"] == -32600, ident, got)
PY
}

@test "what is no request gets the right error, and the next one works" {
	timeout 20 python3 - <<'PY'
from mcp import *
b = Bridge()
cases = [
    ('{', -32700), ('nonsense', -32700), ('{"a":1,"a":2}', -32700), ('"text"', -32600), ('5', -32600), ('[]', -32600),
    ('{"jsonrpc":"2.0","id":1}', -32600), ('{"jsonrpc":"2.0","id":1,"method":5}', -32600), ('{"id":1,"method":"ping"}', -32600),
    ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602), ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no_such_tool"}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_tunnel","arguments":{}}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sandbox_list","arguments":[]}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}', -32602),
    ('{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}', -32601),
    ('{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"sandbox://none"}}', -32002),
    ('{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"none"}}', -32602),
    ('[' * 200 + ']' * 200, -32700),
]
for line, code in cases:
    b.write(line + "\n")
    got = b.recv()
    check(got["error"]["code"] == code, line[:100], got)
for quiet in ['', '   ', '{"jsonrpc":"2.0","method":"notifications/no/such"}', '{"jsonrpc":"2.0","id":7,"result":{}}',
              '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}', '{"jsonrpc":"2.0","method":"notifications/cancelled"}']:
    b.write(quiet + "\n")
check(b.request("ping")["result"] == {})
PY
}

@test "arrays of messages belong to the older versions" {
	timeout 10 python3 - <<'PY'
from mcp import *
old = Bridge(version="2025-03-26")
old.write('[{"jsonrpc":"2.0","id":1,"method":"ping"}, 5 ,{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"two","method":"nope"}]\n')
got = old.recv()
check([m["id"] for m in got] == [1, None, "two"], got)
old.write('[{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"sandbox_list","arguments":{"x":1}}},{"jsonrpc":"2.0","id":4,"method":"ping"}]\n')
got = old.recv()
check(sorted(m["id"] for m in got) == [3, 4], got)
old.write('[{"jsonrpc":"2.0","method":"notifications/x"}]\n')
check(old.request("ping")["result"] == {})
new = Bridge()
new.write('[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n')
got = new.recv()
check(got["id"] is None and got["error"]["code"] == -32600, got)
PY
}

@test "lines arrive in any cut, with either line end, up to a limit" {
	timeout 50 python3 - <<'PY'
from mcp import *
b = Bridge()
long = json.dumps({"jsonrpc": "2.0", "id": "long", "method": "ping", "params": {"x": "y" * 200000}}) + "\r\n"
for at in range(0, len(long), 7):
    b.write(long[at:at + 7])
check(b.recv()["id"] == "long")
b.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}\r\n')
check([b.recv()["id"], b.recv()["id"]] == [1, 2])
b.write('{"jsonrpc":"2.0","id":3,"method":"ping","params":{"x":"')
for _ in range(80):
    b.write("z" * 65536)
b.write('"}}\n')
got = b.recv()
check(got["id"] is None and got["error"]["code"] == -32600 and "4194304" in got["error"]["message"], got)
check(b.request("ping")["result"] == {})
check(b.rss_kib() < 16 * 1024, b.rss_kib())
b.write('{"jsonrpc":"2.0","id":"last","method":"ping"}')
b.process.stdin.close()
check(b.recv()["id"] == "last")
check(b.process.wait(5) == 0)
PY
}

@test "a slow reader gets whole answers, whatever the mode of the pipe" {
	timeout 40 python3 - <<'PY'
import fcntl
from mcp import *
for nonblocking in (False, True):
    r, w = os.pipe()
    if nonblocking:
        fcntl.fcntl(w, fcntl.F_SETFL, fcntl.fcntl(w, fcntl.F_GETFL) | os.O_NONBLOCK)
    p = subprocess.Popen([os.path.join(BUILD, "sandbox-mcp")], stdin=subprocess.PIPE, stdout=w, bufsize=0)
    os.close(w)
    for i in range(20):
        p.stdin.write(b'{"jsonrpc":"2.0","id":%d,"method":"tools/list"}\n' % i)
    data = b""
    while data.count(b"\n") < 20:
        data += os.read(r, 1024)
        if len(data) < 60000:
            time.sleep(0.01)
    messages = [json.loads(line) for line in data.splitlines()]
    check([m["id"] for m in messages] == list(range(20)))
    p.stdin.close()
    check(p.wait(5) == 0)
    os.close(r)
PY
}

@test "it ends when its reader goes away, and without using the processor" {
	timeout 20 python3 - <<'PY'
from mcp import *
b = Bridge()
time.sleep(0.3)
ticks = lambda: sum(int(v) for v in open("/proc/%d/stat" % b.process.pid).read().rsplit(")", 1)[1].split()[11:13])
before = ticks()
time.sleep(1)
check(ticks() - before <= 2, "an idle bridge used the processor")
r, w = os.pipe()
p = subprocess.Popen([os.path.join(BUILD, "sandbox-mcp")], stdin=subprocess.PIPE, stdout=w)
os.close(w)
time.sleep(0.2)
os.close(r)
check(p.wait(5) == 0)
PY
}

@test "a bridge dies with the process that started it" {
	timeout 20 python3 - <<'PY'
from mcp import *
parent = subprocess.Popen([sys.executable, "-c", """
import os, subprocess, sys, time
p = subprocess.Popen([os.environ["BUILD"] + "/sandbox-mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(p.pid, flush=True)
time.sleep(60)
"""], stdout=subprocess.PIPE)
pid = int(parent.stdout.readline())
time.sleep(0.2)
parent.kill()
parent.wait()
end = time.time() + 2
gone = lambda: not os.path.exists("/proc/%d" % pid) or "State:\tZ" in open("/proc/%d/status" % pid).read()
while not gone() and time.time() < end:
    time.sleep(0.02)
check(gone())
PY
}

@test "noise of libraries and a wrong address stay off standard output" {
	export SANDBOX_DEBUG=1 SANDBOX_URL=ftp://nowhere
	timeout 10 python3 - <<'PY'
from mcp import *
b = Bridge(stderr=subprocess.PIPE)
e = b.error("sandbox_health")
check(e["code"] == "invalid_request" and "not a server address" in e["message"], e)
os.environ["SANDBOX_URL"] = "unix:///nowhere/d.sock"
b = Bridge(stderr=subprocess.PIPE)
e = b.error("sandbox_health")
check(e["code"] == "unavailable" and "/nowhere/d.sock" in e["message"], e)
for line in b.raw:
    json.loads(line)
PY
}

@test "tools are described whole: schemas, annotations, under 24 KiB" {
	timeout 10 python3 - <<'PY'
from mcp import *
b = Bridge()
tools = b.request("tools/list")["result"]["tools"]
check(len(b.raw[-1]) < 24 * 1024, len(b.raw[-1]))
names = [t["name"] for t in tools]
for name in ["health", "create", "exec", "list", "inspect", "delete", "operation", "wait", "logs", "extend", "files_read", "files_write", "files_list", "agent_list", "agent_run"]:
    check("sandbox_" + name in names, name, names)
for t in tools:
    schema = t["inputSchema"]
    check(schema["type"] == "object" and schema["additionalProperties"] is False, t)
    check(set(schema["required"]) <= set(schema["properties"]), t)
    check(t["outputSchema"]["type"] == "object" and t["title"] and 20 < len(t["description"]) < 600, t)
    hints = t["annotations"]
    check(set(hints) == {"title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}, hints)
    check(not (hints["readOnlyHint"] and hints["destructiveHint"]), t)
# The address leads nowhere: an argument that is not in the schema is refused by its name before anything is asked of a server.
for t in tools:
    required = {k: {"string": "x", "array": ["x"], "integer": 60}[t["inputSchema"]["properties"][k]["type"]] for k in t["inputSchema"]["required"]}
    e = b.error(t["name"], **required, no_such_argument=1)
    check(e["code"] == "invalid_request" and "no_such_argument" in e["message"], t["name"], e)
PY
}

@test "resources and prompts can be listed, read and filled" {
	timeout 10 python3 - <<'PY'
from mcp import *
b = Bridge()
for r in b.request("resources/list")["result"]["resources"]:
    content = b.request("resources/read", {"uri": r["uri"]})["result"]["contents"][0]
    check(content["uri"] == r["uri"] and content["mimeType"] == r["mimeType"] and content["text"], r)
    if r["mimeType"] == "application/json":
        json.loads(content["text"])
check(b.request("resources/templates/list")["result"] == {"resourceTemplates": []})
for p in b.request("prompts/list")["result"]["prompts"]:
    values = {a["name"]: 'va"lue' for a in p["arguments"] if a["required"]}
    text = b.request("prompts/get", {"name": p["name"], "arguments": values})["result"]["messages"][0]["content"]["text"]
    check('va\\"lue' in text and "%" not in text, text)
    check("error" in b.request("prompts/get", {"name": p["name"], "arguments": {}}))
    check("error" in b.request("prompts/get", {"name": p["name"], "arguments": {**values, "other": "x"}}))
PY
}

@test "the first answer is there within ten milliseconds" {
	timeout 120 python3 - <<'PY'
from mcp import *
line = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}\n'
times = []
# The best of many: what else runs on the machine is not measured. A busy one gets more tries.
limit, end = float(os.environ.get("MCP_START_MS", "10")), time.monotonic() + 60
while len(times) < 10 or (min(times) >= limit and time.monotonic() < end):
    start = time.perf_counter()
    p = subprocess.Popen([os.path.join(BUILD, "sandbox-mcp")], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    p.stdin.write(line)
    p.stdin.flush()
    p.stdout.readline()
    times.append((time.perf_counter() - start) * 1000)
    p.stdin.close()
    p.wait()
print("first answer: %.2f ms, the best of %d" % (min(times), len(times)))
check(min(times) < limit, times)
PY
}
