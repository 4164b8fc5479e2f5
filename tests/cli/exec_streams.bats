#!/usr/bin/env bats
# exec as a local process: input, output, exit status, signals. Everything is under a time limit: the commonest fault is a hang.
load ../lib/helpers

setup_file() {
	sbx_start
	ID=$(sbx_create)
	export ID
}

teardown_file() {
	sbx_stop
}

setup() {
	W=$BATS_TEST_TMPDIR
}

# The command's processes inside whose arguments hold a text.
inside() {
	timeout 10 sandbox exec --no-stdin "$ID" -- sh -c 'for p in /proc/[0-9]*; do tr "\0" " " <$p/cmdline 2>/dev/null; echo; done' | grep -c -- "$1"
}

some_inside() {
	[ "$(inside "$1")" -ge 1 ]
}

none_inside() {
	[ "$(inside "$1")" -eq 0 ]
}

@test "piped input ends: its bytes come back once, nothing is added" {
	run -0 bash -c 'printf x | timeout 5 sandbox exec "$ID" -- cat | od -An -c'
	[ "$(echo $output)" = x ]
}

@test "empty input ends every time, also when it ended before the command started" {
	for _ in $(seq 100); do
		timeout 10 sandbox exec "$ID" -- cat </dev/null
		: | timeout 10 sandbox exec "$ID" -- cat
	done >"$W/out"
	[ ! -s "$W/out" ]
}

@test "closed input is empty input" {
	run -0 bash -c 'timeout 10 sandbox exec "$ID" -- cat <&-'
	[ -z "$output" ]
}

@test "large input arrives whole, again and again, in bounded memory" {
	head -c 60000000 /dev/urandom >"$W/f"
	want=$(sha256sum <"$W/f")
	for _ in 1 2 3 4 5; do
		[ "$(timeout 60 sandbox exec "$ID" -- sha256sum <"$W/f")" = "$want" ]
	done
	rss=$(awk '/^VmHWM/ {print $2}' "/proc/$(sbx_pid)/status")
	[ "$rss" -lt 120000 ]
}

@test "input and output round trips are byte-exact around the frame and window limits" {
	for n in 0 1 4095 4096 16384 65535 65536 65537 262143 262144 262145 1048575 1048576 1048577 3000001; do
		head -c "$n" /dev/urandom >"$W/f"
		timeout 30 sandbox exec "$ID" -- cat <"$W/f" | cmp - "$W/f"
	done
}

@test "exec piped into exec" {
	run -0 bash -c 'set -o pipefail; timeout 20 sandbox exec "$ID" -- tar cf - /etc 2>/dev/null | timeout 20 sandbox exec "$ID" -- tar tf - | grep -c etc'
	[ "$output" -ge 1 ]
}

@test "the remote end decides: input that never ends does not hold it" {
	run bash -c 'yes | timeout 5 sandbox exec "$ID" -- head -n1; echo "${PIPESTATUS[1]}"'
	[ "$output" = $'y\n0' ]
}

@test "silent input that stays open does not hold it" {
	run -0 bash -c 'sleep 30 | (timeout 5 sandbox exec "$ID" -- echo done; echo $?; kill $$)' 2>/dev/null || true
	mkfifo "$W/p"
	exec 7<>"$W/p"
	run -0 timeout 5 sandbox exec "$ID" -- echo done <"$W/p"
	[ "$output" = done ]
	exec 7>&-
}

@test "the whole output arrives at a reader that starts late" {
	for _ in $(seq 10); do
		n=$(timeout 30 sandbox exec "$ID" -- seq 1 200000 | { sleep 0.3; cat; } | wc -c)
		[ "$n" -eq 1288895 ]
	done
}

@test "a background child does not keep the command open, and stays alive" {
	start=$SECONDS
	run -0 timeout 20 sandbox exec "$ID" -- sh -c 'echo ok; sleep 61 &'
	[ "$output" = ok ]
	[ $((SECONDS - start)) -lt 5 ]
	some_inside 'sleep 61'
}

@test "a lingering command holds up neither other commands nor the list" {
	timeout 60 sandbox exec --no-stdin "$ID" -- sh -c 'echo ok; sleep 8' >/dev/null 3>&- &
	sleep 0.5
	start=$SECONDS
	run -0 timeout 10 sandbox exec --no-stdin "$ID" -- echo 1
	[ "$output" = 1 ]
	timeout 10 sandbox list >/dev/null
	[ $((SECONDS - start)) -le 3 ]
	wait
}

@test "a time-out ends the whole tree, names its limit and exits 124" {
	start=$SECONDS
	run -124 --separate-stderr timeout 20 sandbox exec --timeout 2s "$ID" -- sh -c 'sleep 300; :'
	[ $((SECONDS - start)) -le 6 ]
	[[ $stderr == *"2s"* ]]
	until_ok 5 none_inside 'sleep 300'
}

@test "characters cut between reads stay whole in JSON" {
	run -0 --separate-stderr timeout 10 sandbox exec --json=output.stdout "$ID" -- sh -c 'printf "na\303"; sleep 0.5; printf "\257ve"'
	[[ $output == *'naïve'* ]]
	timeout 30 sandbox exec --json=output.stdout "$ID" -- sh -c 'yes 漢 | head -120000 | tr -d "\n"' >"$W/j"
	[ "$(grep -o 漢 "$W/j" | wc -l)" -eq 120000 ]
	[ "$(grep -c $'\xef\xbf\xbd' "$W/j")" -eq 0 ]
	[ "$(timeout 30 sandbox exec "$ID" -- sh -c 'yes 漢 | head -120000 | tr -d "\n"' | wc -c)" -eq 360000 ]
}

@test "NUL and bytes that are no UTF-8 pass, and JSON says how it carries them" {
	run -0 bash -c "printf '\\x00\\x80\\xfe\\x0d' | timeout 5 sandbox exec \"\$ID\" -- cat | od -An -tx1"
	[ "$(echo $output)" = "00 80 fe 0d" ]
	run -0 --separate-stderr timeout 5 sandbox exec --json "$ID" -- printf 'a\000b\377'
	[[ $output == *'"stdout_base64":"YQBi/w=="'* ]]
}

@test "the tool's own errors go to stderr alone" {
	run -127 --separate-stderr timeout 5 sandbox exec "$ID" -- no-such-cmd
	[ -z "$output" ]
	[[ $stderr == "sandbox: "*"no-such-cmd"* ]]
}

@test "stdout and stderr stay apart, as streams and in JSON" {
	run -3 --separate-stderr timeout 5 sandbox exec "$ID" -- sh -c 'echo O; echo E >&2; exit 3'
	[ "$output" = O ]
	[ "$stderr" = E ]
	run -3 --separate-stderr timeout 5 sandbox exec --json "$ID" -- sh -c 'echo O; echo E >&2; exit 3'
	[[ $output == *'"exit_code":3,"stdout":"O\n"'*'"stderr":"E\n"'* ]]
}

@test "exit statuses are the shell's" {
	timeout 5 sandbox exec "$ID" -- sh -c 'cd /workspace; echo x >plain; chmod 644 plain; printf "#!/no/interpreter\n" >badline; chmod 755 badline'
	while read -r want command; do
		# shellcheck disable=SC2086
		run "-$want" --separate-stderr timeout 10 sandbox exec "$ID" -- $command
		# shellcheck disable=SC2086
		run "-$want" --separate-stderr timeout 10 sandbox exec --json "$ID" -- $command
		jq -e --argjson want "$want" '.output.exit_code == $want' <<<"$output"
		# And where nobody waits: in the record that the API and agents read.
		# shellcheck disable=SC2086
		op=$(curl -sS --unix-socket "$SBX_DIR/d.sock" -d "$(jq -cn '{command: {argv: $ARGS.positional}}' --args -- $command)" "http://x/v1/sandboxes/$ID/exec" |
			jq -r .operation.id)
		timeout 30 sandbox wait "$op" >/dev/null 2>&1 || true
		sandbox operation inspect "$op" --json | jq -e --argjson want "$want" '.output.exit_code == $want'
	done <<-'END'
		0 true
		1 false
		127 nosuch
		127 /nosuch/x
		126 /etc
		126 /workspace/plain
		127 /workspace/badline
	END
	run -255 timeout 10 sandbox exec "$ID" -- sh -c 'exit 255'
	run -143 timeout 10 sandbox exec "$ID" -- sh -c 'kill -TERM $$'
	run -137 timeout 10 sandbox exec "$ID" -- sh -c 'kill -9 $$'
}

@test "a failure of the tool is told apart from a command that returned 1" {
	run -1 timeout 5 sandbox exec "$ID" -- grep -q zzz /etc/passwd
	run -125 --separate-stderr timeout 5 sandbox exec no-such-box -- true
	[ -n "$stderr" ]
	SANDBOX_URL=unix:///nonexistent/s run -125 --separate-stderr timeout 5 sandbox exec "$ID" -- true
	[[ $stderr == *"/nonexistent/s"* ]]
}

@test "death by the memory limit is named, and the sandbox survives" {
	small=$(sandbox create --image "$IMAGE" --disk-mib 64 --memory-mib 64 -q)
	run -137 --separate-stderr timeout 60 sandbox exec --json "$small" -- awk 'BEGIN { s = "aaaaaaaaaaaaaaaa"; while (1) s = s s }'
	[[ $output == *'"oom_killed":true'* ]]
	run -137 --separate-stderr timeout 60 sandbox exec "$small" -- awk 'BEGIN { s = "aaaaaaaaaaaaaaaa"; while (1) s = s s }'
	[[ $stderr == *"memory limit"* ]]
	run -0 timeout 10 sandbox exec "$small" -- echo alive
	[ "$output" = alive ]
	timeout 60 sandbox delete "$small"
}

# Starts a sleeper in the background, sends it a signal, and checks status and remote end.
interrupted_by() {
	sandbox exec "$ID" -- sleep "$3" </dev/null 3>&- &
	local pid=$!
	until_ok 10 some_inside "sleep $3"
	kill "-$1" "$pid"
	local rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq "$2" ]
	until_ok 15 none_inside "sleep $3"
}

@test "INT, TERM and HUP end the remote command, also for a background job" {
	interrupted_by INT 130 301
	interrupted_by TERM 143 302
	interrupted_by HUP 129 303
}

@test "a killed client's command ends after the grace" {
	interrupted_by KILL 137 304
}

@test "a command that ignores the signal is cancelled by the second one" {
	sandbox exec "$ID" -- sh -c 'trap "" INT; sleep 305; sleep 305' </dev/null 3>&- &
	pid=$!
	until_ok 10 some_inside 'sleep 305'
	kill -INT "$pid"
	sleep 0.3
	kill -INT "$pid" 2>/dev/null || true
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 130 ]
	until_ok 10 none_inside 'sleep 305'
}

@test "a reader that goes away ends the command like a local one" {
	run bash -c 'timeout 10 sandbox exec "$ID" -- yes | head -1; echo "${PIPESTATUS[0]}"'
	[ "$output" = $'y\n141' ]
	until_ok 5 none_inside '^yes'
}

@test "a full disk behind stdout is a failure with a reason" {
	run -125 --separate-stderr bash -c 'timeout 10 sandbox exec "$ID" -- echo x >/dev/full'
	[[ $stderr == *"No space left"* ]]
	run -125 --separate-stderr bash -c 'timeout 10 sandbox exec "$ID" -- echo x >&-'
	[ -n "$stderr" ]
	run -0 bash -c 'timeout 10 sandbox exec "$ID" -- true >&- 2>&-'
	run -0 bash -c 'timeout 10 sandbox exec "$ID" -- sh -c "echo dropped >&2; echo kept" 2>&-'
	[ "$output" = kept ]
}

@test "shared descriptors keep their flags" {
	run -0 bash -c '{ timeout 5 sandbox exec "$ID" -- cat; grep ^flags /proc/self/fdinfo/0 /proc/self/fdinfo/1; } < <(echo hi; sleep 1) | cat'
	[[ $output == "hi"* ]]
	while read -r _ flags; do
		[ $((flags & 04000)) -eq 0 ]
	done < <(echo "$output" | tail -n +2)
}

@test "many commands at once: every one returns, descriptors are back afterwards" {
	timeout 10 sandbox exec --no-stdin "$ID" -- true
	before=$(daemon_fds)
	n=$(seq 500 | xargs -P20 -I{} timeout 60 sandbox exec --no-stdin "$ID" -- echo {} | sort -n | uniq | wc -l)
	[ "$n" -eq 500 ]
	fds_are_back() { [ "$(daemon_fds)" -le $((before + 2)) ]; }
	until_ok 10 fds_are_back
}

@test "commands one after the other never fail to start" {
	for i in $(seq 300); do
		timeout 20 sandbox exec --no-stdin "$ID" -- true || { echo "round $i: $?"; return 1; }
	done
}

@test "short-lived children leave no zombies" {
	for _ in $(seq 50); do
		timeout 10 sandbox exec --no-stdin "$ID" -- sh -c '(sleep 0 &)'
	done
	no_zombies() {
		[ "$(timeout 10 sandbox exec --no-stdin "$ID" -- sh -c 'grep -l "^State:.Z" /proc/[0-9]*/status 2>/dev/null | wc -l')" -le 2 ]
	}
	until_ok 5 no_zombies
}

@test "--status-fd writes how it ended as one JSON line" {
	run -3 --separate-stderr bash -c 'timeout 5 sandbox exec --status-fd 5 "$ID" -- sh -c "echo abc; exit 3" 5>"$0/status"' "$W"
	[ "$(wc -l <"$W/status")" -eq 1 ]
	grep -q '^{"outcome":"exited","code":3,"signal":null,"oom_killed":false,"stdout_bytes":4,"stderr_bytes":0,"operation":"[0-9a-f-]*","error":null}$' "$W/status"
	run -137 bash -c 'timeout 5 sandbox exec --status-fd 5 "$ID" -- sh -c "kill -9 \$\$" 5>"$0/status"' "$W"
	grep -q '"outcome":"signaled","code":null,"signal":9' "$W/status"
	run -125 bash -c 'timeout 5 sandbox exec --status-fd 5 nosuch -- true 5>"$0/status"' "$W"
	grep -q '"outcome":"not_started"' "$W/status"
	run -125 timeout 5 sandbox exec --status-fd 77 "$ID" -- true
}

@test "--no-stdin leaves the input of a loop alone" {
	run -0 bash -c 'printf "1\n2\n3\n" | while read -r n; do timeout 5 sandbox exec --no-stdin "$ID" -- echo "$n"; done'
	[ "$output" = $'1\n2\n3' ]
}

@test "--detach returns an operation that goes on; attach shows it, kill ends it" {
	op=$(timeout 5 sandbox exec -d "$ID" -- sh -c 'echo begun; echo oops >&2; sleep 1; echo ended; exit 6')
	[[ $op =~ ^[0-9a-f-]{36}$ ]]
	run -6 --separate-stderr timeout 20 sandbox attach "$op"
	[ "$output" = $'begun\nended' ]
	[ "$stderr" = oops ]
	run -6 --separate-stderr timeout 20 sandbox attach --since 6,0 "$op"
	[ "$output" = ended ]
	op=$(timeout 5 sandbox exec --no-wait "$ID" -- sleep 306)
	run -0 timeout 10 sandbox kill "$op"
	until_ok 10 none_inside 'sleep 306'
	run timeout 20 sandbox attach "$op"
	[ "$status" -ne 0 ]
}

@test "leaving attach does not touch the command" {
	op=$(timeout 5 sandbox exec -d "$ID" -- sleep 307)
	sandbox attach "$op" 3>&- &
	pid=$!
	sleep 0.5
	kill -INT "$pid"
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 130 ]
	some_inside 'sleep 307'
	timeout 10 sandbox kill -s KILL "$op"
}

@test "a deleted sandbox ends its commands with that reason" {
	box=$(sbx_create)
	sandbox exec "$box" -- sleep 100 </dev/null 2>"$W/err" 3>&- &
	pid=$!
	sleep 1
	timeout 60 sandbox delete "$box" --wait
	rc=0
	wait "$pid" || rc=$?
	[ "$rc" -eq 125 ]
	grep -q deleted "$W/err"
}

@test "a lifetime that ends during a command is named, then and afterwards" {
	box=$(sbx_create --ttl 4s)
	run -125 --separate-stderr timeout 30 sandbox exec "$box" -- sleep 60
	[[ $stderr == *expired* ]]
	run -125 --separate-stderr timeout 10 sandbox exec "$box" -- true
	[[ $stderr == *expired* ]]
}

@test "a detached command gives its id however quickly it ends" {
	for _ in $(seq 40); do
		run -0 --separate-stderr timeout 20 sandbox exec -d "$ID" -- sh -c 'echo out; exit 3'
		[[ $output =~ ^[0-9a-f-]{36}$ ]]
		[ -z "$stderr" ]
	done
	run ! --separate-stderr timeout 20 sandbox exec -d "$ID" -- nosuch-program
	[ -z "$output" ]
}
