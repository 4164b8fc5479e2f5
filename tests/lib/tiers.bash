# The suite that every tier passes: functions of the tests, each called with the tier's name and BOX, a sandbox of it.

# sbx_start's arguments; then one sandbox in each of $TIERS that is offered here.
tiers_start() {
	sbx_start "$@"
	local tier offered=
	for tier in $TIERS; do
		if sandbox doctor --json | jq -e --arg part "tier $tier" '.checks[] | select(.part == $part) | .detail | startswith("not offered")' >/dev/null; then
			continue
		fi
		offered="$offered $tier"
		sbx_create --name "box-$tier" --tier "$tier" --pids 64 --memory-mib 160 --cpu-millis 1000
	done
	OFFERED=$offered
	export OFFERED
}

# Runs a function for each tier that is offered here; the last tier is said when it is not.
on_each_tier() {
	local tier
	for tier in $TIERS; do
		case " $OFFERED " in
		*" $tier "*) ;;
		*) continue ;;
		esac
		echo "on $tier:"
		BOX=box-$tier
		"$@" "$tier"
	done
	case " $OFFERED " in
	*" $tier "*) ;;
	*) skip "$tier: $(sandbox doctor --json | jq -r --arg part "tier $tier" '.checks[] | select(.part == $part) | .detail')" ;;
	esac
}

# pid_of BOX TIER: the process of the host that is the sandbox.
pid_of() {
	case $2 in
	microvm) cut -d' ' -f1 "$MICROVM_DIR/state/boxes/$(sandbox inspect --json "$1" | jq -r .id)/vm" ;;
	*) docker inspect -f '{{.State.Pid}}' "sandbox-$1" ;;
	esac
}

inside() {
	timeout 30 sandbox exec "$BOX" -- "$@"
}

state_of() {
	sandbox inspect --json "$1" | jq -r .state
}

proof() {
	local kernel version
	kernel=$(uname -r)
	version=$(inside cat /proc/version)
	case $1 in
	container) [[ $version == *"$kernel"* ]] ;;
	gvisor)
		[[ $version != *"$kernel"* ]]
		inside dmesg | grep -q gVisor
		;;
	microvm)
		# A kernel of its own, with the threads that only a kernel has.
		[[ $version != *"$kernel"* ]]
		[ "$(inside cat /proc/2/comm)" = kthreadd ]
		[[ $version == *"${MICROVM_KERNEL##*/vmlinuz-}"* ]]
		;;
	esac
	[ "$(sandbox inspect --json "$BOX" | jq -r .tier)" = "$1" ]
	[ "$(sandbox inspect --json "$BOX" | jq -r .isolation)" = "$(test "$1" = microvm && echo microvm || echo container)" ]
}

statuses() {
	local want
	for want in 0 1 7 255; do
		run "-$want" inside sh -c "exit $want"
	done
	run -143 inside sh -c 'kill -TERM $$'
	run -137 inside sh -c 'kill -KILL $$'
	run -127 inside no-such-program
	run -126 inside /etc
	run -0 timeout 30 sandbox exec --env GREETING='a b' --cwd /tmp "$BOX" -- sh -c 'echo "$GREETING $PWD"'
	[ "$output" = "a b /tmp" ]
}

streams() {
	local sum
	[ "$(printf x | inside cat)" = x ]
	[ -z "$(inside cat </dev/null)" ]
	run --separate-stderr -0 inside sh -c 'echo out; echo err >&2'
	[ "$output" = out ]
	[ "$stderr" = err ]
	head -c 8000000 /dev/urandom >"$BATS_TEST_TMPDIR/in"
	inside cat <"$BATS_TEST_TMPDIR/in" >"$BATS_TEST_TMPDIR/out"
	cmp "$BATS_TEST_TMPDIR/in" "$BATS_TEST_TMPDIR/out"
}

time_outs() {
	local start=$SECONDS
	run -124 timeout 30 sandbox exec --timeout 1s "$BOX" -- sh -c 'setsid sleep 321 & trap "" TERM; sleep 321; sleep 321'
	[ $((SECONDS - start)) -lt 12 ]
	run -1 inside sh -c 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" " " | grep "sleep 32[1]"'
}

left_behind() {
	run -0 inside sh -c 'sleep 654 >/dev/null 2>&1 & echo started'
	[ "$output" = started ]
	run -0 inside sh -c 'cat /proc/[0-9]*/cmdline | tr "\0" " " | grep -c "sleep 65[4]"'
	inside sh -c 'for p in /proc/[0-9]*; do grep -q "^sleep.65[4]" $p/cmdline 2>/dev/null && kill ${p#/proc/}; done; true'
}

zombies() {
	local i
	for i in 1 2 3 4 5 6; do
		inside sh -c '(sleep 0 &) ; (setsid sleep 0.01 &)'
	done
	# shellcheck disable=SC2016
	until_ok 10 sh -c 'test "$(timeout 20 sandbox exec '"$BOX"' -- sh -c "grep -l ^State:.Z /proc/[0-9]*/status 2>/dev/null | wc -l")" -eq 0'
}

terminals() {
	run -0 timeout 40 "$BUILD/tools/pty" 33x99 sandbox shell "$BOX" -- sh <<-'END'
		raw
		send stty size\r
		expect 33 99
		send exit 7\r
		end
	END
	[[ $output == *"status 7"*"settings same"* ]]
}

copies() {
	mkdir -p "$BATS_TEST_TMPDIR/tree/sub"
	head -c 300000 /dev/urandom >"$BATS_TEST_TMPDIR/tree/sub/blob"
	ln -sf sub/blob "$BATS_TEST_TMPDIR/tree/link"
	timeout 30 sandbox cp "$BATS_TEST_TMPDIR/tree" "$BOX:/workspace/tree-$1"
	rm -rf "$BATS_TEST_TMPDIR/back"
	timeout 30 sandbox cp "$BOX:/workspace/tree-$1" "$BATS_TEST_TMPDIR/back"
	diff -r "$BATS_TEST_TMPDIR/tree" "$BATS_TEST_TMPDIR/back"
	[ "$(readlink "$BATS_TEST_TMPDIR/back/link")" = sub/blob ]
}

kept_output() {
	local op
	op=$(timeout 20 sandbox exec --detach "$BOX" -- sh -c 'echo one; echo two >&2; sleep 0.2; echo three')
	timeout 20 sandbox wait "$op" >/dev/null
	run -0 timeout 20 sandbox logs "$op"
	[[ "$output" == *one*three* ]]
	[[ "$output" == *two* ]]
}

rights() {
	[ "$(inside sh -c 'grep ^CapEff /proc/self/status | tr -dc 1-9')" = "" ]
	run ! inside mount -t tmpfs none /tmp
	run ! inside touch /etc/x
	run ! timeout 30 sandbox exec --user 1000 "$BOX" -- kill -9 1
	run -0 inside cat /proc/net/dev
	[[ "$output" == *lo:* ]]
	[[ "$output" != *eth* ]]
	run -0 inside sh -c 'echo hi | nc -l -p 8080 127.0.0.1 >/tmp/got & for i in $(seq 50); do echo x | nc -w 2 127.0.0.1 8080 && break; sleep 0.1; done; wait'
}

disk() {
	run inside sh -c 'cd /workspace && dd if=/dev/zero of=big bs=1M count=100; rc=$?; rm -f big; exit $rc'
	[ "$status" -ne 0 ]
	[[ "$output" == *"No space left on device"* ]]
}

cpu() {
	local id before after
	id=$(sandbox inspect --json "$BOX" | jq -r .id)
	before=$(sandbox top --json "$BOX" | jq '[.. | .cpu_us? // empty][0]')
	timeout 30 sandbox exec "$BOX" -- sh -c 'for i in 1 2 3; do (timeout 2 sh -c "while :; do :; done") & done; wait' || true
	after=$(sandbox top --json "$BOX" | jq '[.. | .cpu_us? // empty][0]')
	[ "$after" -gt "$before" ]
	# One core for some two seconds; three loops on two cores would use four.
	[ $((after - before)) -lt 3400000 ] || { echo "used $((after - before)) us"; false; }
}

resumes() {
	local before after
	before=$(inside sh -c 'sleep 987 >/dev/null 2>&1 & echo $!')
	sbx_kill KILL
	sbx_daemon
	until_ok 20 inside true
	after=$(inside sh -c "tr '\\0' ' ' </proc/$before/cmdline")
	[ "$after" = "sleep 987 " ]
	inside kill "$before"
}

# One command over the memory limit. In a container it alone ends; a sentry ends with everything in it.
out_of_memory() {
	local box op
	box=$(sbx_create --tier "$1" --memory-mib 128)
	run --separate-stderr timeout 60 sandbox exec --json "$box" -- dd if=/dev/zero of=/dev/null bs=150M count=1
	case $1 in
	container | microvm)
		[ "$status" -eq 137 ]
		[ "$(state_of "$box")" = running ]
		;;
	gvisor)
		[ "$status" -eq 125 ]
		until_ok 15 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
		sandbox inspect --json "$box" | grep -q 'out of memory'
		;;
	esac
	timeout 60 sandbox delete "$box"
	[ "$(state_of "box-$1")" = running ]
}

# For setup_file, after the daemon's start: hostile programs, tests/lib/trials.c, as $SBX_DIR/trials.
trials_build() {
	"${CC:-gcc}" -static -O1 -o "$SBX_DIR/trials" "$TOP/tests/lib/trials.c"
}

# hostile_box ARGUMENTS…: a sandbox with those programs in /workspace; prints its id. (spare_box TIER: a machine takes long to boot, so what does
# it no harm runs in the one there is.)
spare_box() {
	if [ "$1" = microvm ]; then
		timeout 30 sandbox cp "$SBX_DIR/trials" "$BOX:/workspace/trials" || return 1
		echo "$BOX"
	else
		hostile_box --tier "$1"
	fi
}

drop_spare() {
	[ "$1" = "$BOX" ] || drop "$1"
}

hostile_box() {
	local id
	id=$(sbx_create "$@") || return 1
	timeout 30 sandbox cp "$SBX_DIR/trials" "$id:/workspace/trials" || return 1
	echo "$id"
}

# What a hostile sandbox must not have harmed: its neighbour, the daemon. $1: the tier.
unharmed() {
	run -0 timeout 60 sandbox exec "box-$1" -- echo alive
	[ "$output" = alive ]
}

# drop BOX: gone within its time, whatever state it is in.
drop() {
	local start=$SECONDS
	run -0 timeout 90 sandbox delete "$1"
	[ $((SECONDS - start)) -lt 45 ]
}

fork_bomb() {
	local box
	box=$(hostile_box --tier "$1" --pids 64 --cpu-millis 500)
	run timeout 90 sandbox exec --timeout 2s "$box" -- /workspace/trials bomb
	[ "$status" -ne 0 ]
	unharmed "$1"
	drop "$box"
}

# Every signal that there is, from root inside. A sentry obeys; a kernel keeps them from process 1.
signals_to_init() {
	local box
	box=$(spare_box "$1")
	run timeout 60 sandbox exec --user root "$box" -- /workspace/trials signals
	if [ "$1" = gvisor ]; then
		until_ok 30 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	else
		[ "$(timeout 30 sandbox exec "$box" -- echo still)" = still ]
	fi
	unharmed "$1"
	drop_spare "$box"
}

# All it can write is written full, with bytes and with names; then it is used and ended as ever. A sentry may meet its memory limit by that.
full_disks() {
	local box
	box=$(spare_box "$1")
	run -0 timeout 180 sandbox exec "$box" -- sh -c 'cd /workspace; mkdir names; for i in 1 2 3 4 5 6 7 8 9; do mkdir names/$i$i names/$i$i/$i; done
		for d in /workspace /tmp; do dd if=/dev/zero of=$d/fill bs=64k count=2000; done; echo done' || [ "$1" = gvisor ]
	if [ "$(state_of "$box")" = running ]; then
		[ "$(timeout 30 sandbox exec "$box" -- echo still)" = still ]
		[ "$(timeout 30 sandbox exec "$box" -- sh -c 'rm /workspace/fill && echo more >/workspace/x && cat /workspace/x')" = more ]
	else
		[ "$1" = gvisor ]
	fi
	timeout 60 sandbox exec "$box" -- sh -c 'rm -rf /tmp/fill /workspace/*' || [ "$1" = gvisor ]
	unharmed "$1"
	drop_spare "$box"
}

busy_delete() {
	local box start
	box=$(sbx_create --tier "$1")
	timeout 60 sandbox exec --detach "$box" -- sh -c 'while :; do dd if=/dev/zero of=/tmp/x bs=64k count=100 2>/dev/null; done' >/dev/null
	timeout 60 sandbox exec --detach "$box" -- sh -c 'trap "" TERM INT; while :; do sleep 1; done' >/dev/null
	start=$SECONDS
	run -0 timeout 60 sandbox delete "$box"
	[ $((SECONDS - start)) -lt 15 ]
	run -3 sandbox inspect "$box" --json || [ "$(state_of "$box")" != running ]
	[ -z "$(docker ps -aq --filter "name=sandbox-$box")" ]
	[ -z "$(find /sys/fs/cgroup -type d -name "$box" 2>/dev/null)" ]
}

killed_from_outside() {
	local box pid
	box=$(sbx_create --tier "$1")
	pid=$(pid_of "$box" "$1")
	(sleep 1; kill -KILL "$pid") &
	run -125 timeout 60 sandbox exec "$box" -- sleep 50
	until_ok 20 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	timeout 60 sandbox delete "$box"
}

frozen() {
	local box pid start
	box=$(sbx_create --tier "$1")
	pid=$(pid_of "$box" "$1")
	kill -STOP "$pid"
	start=$SECONDS
	run -0 timeout 60 sandbox delete "$box"
	[ $((SECONDS - start)) -lt 30 ]
	until_ok 10 test ! -d "/proc/$pid"
	[ "$(state_of "box-$1")" = running ]
}

flood() {
	local fds box
	box=$(spare_box "$1")
	fds=$(daemon_fds)
	if [ "$1" = microvm ]; then
		timeout 40 sandbox exec "$box" -- sh -c 'i=0; while [ $i -lt 200 ]; do echo noise >/.sandbox/port; i=$((i+1)); done' || true
	else
		run -0 timeout 90 sandbox exec --env "CONNECTIONS=${CONNECTIONS:-1000}" "$box" -- /workspace/trials crowd
		[[ $output == "connected "[1-9]* ]]
		run -0 timeout 60 sandbox exec "$box" -- /workspace/trials descriptors
	fi
	[ "$(timeout 30 sandbox exec "$box" -- echo fine)" = fine ]
	unharmed "$1"
	until_ok 30 sh -c "test \$(find /proc/$(sbx_pid)/fd -mindepth 1 | wc -l) -le $((fds + 4))"
	drop_spare "$box"
}

impostor() {
	local where="--socket /.sandbox/io/worker.sock"
	[ "$1" != microvm ] || where="--serial /.sandbox/port"
	# shellcheck disable=SC2086
	timeout 20 sandbox exec --detach "$BOX" -- /.sandbox/init $where --deadline-us 0 --grace-ms 1000
	sleep 1
	run -0 inside echo right
	[ "$output" = right ]
	# The port of a machine is open once and no more: nothing arrives.
	[ "$1" = microvm ] || grep -q "connection refused sandbox=$(sandbox inspect --json "$BOX" | jq -r .id)" "$SBX_DIR/log"
	run inside sh -c 'for p in /proc/[0-9]*; do case ${p#/proc/} in 1 | self) ;; *) grep -q grace-ms $p/cmdline 2>/dev/null && kill -9 ${p#/proc/} ;; esac; done; true'
}

# The way out of a restricted sandbox, to a server of this machine; and nothing else.
restricted() {
	local box
	box=$(sbx_create --tier "$1" --network restricted --allow ok.test:$ORIGIN_PORT --memory-mib 160)
	run -0 timeout 60 sandbox exec "$box" -- sh -c "printf 'GET http://ok.test:$ORIGIN_PORT/hello HTTP/1.1\r\nHost: ok.test:$ORIGIN_PORT\r\nConnection: close\r\n\r\n' | nc -w 20 127.0.0.1 61080"
	[[ $output == *"200 "*from-origin* ]]
	run -0 timeout 60 sandbox exec "$box" -- sh -c "printf 'CONNECT other.test:$ORIGIN_PORT HTTP/1.1\r\nHost: other.test:$ORIGIN_PORT\r\n\r\n' | nc -w 20 127.0.0.1 61080"
	[[ $output == *"403 "* ]]
	[[ $output != *from-origin* ]]
	# Another way there is none.
	run ! timeout 30 sandbox exec "$box" -- nc -w 3 127.79.0.1 "$ORIGIN_PORT"
	[ "$(timeout 30 sandbox exec "$box" -- ls /sys/class/net 2>/dev/null | tr -d '\n')" = lo ] || [ "$1" = gvisor ]
	# Where rules allow everything the addresses are judged all the same.
	sandbox network set "$box" --allow '*:*'
	ways_give "$box"
	echo "ok.test:$ORIGIN_PORT" | timeout 60 sandbox exec "$box" -- /workspace/ways ask | grep -qx "ok.test:$ORIGIN_PORT 200"
	ways_refused "$box"
	{ ways_there; ways_elsewhere; ways_public; } | ways_none "$box"
	drop "$box"
}

# The same without any way out; and no interface for who asks for one where there is none to be had.
closed() {
	ways_answer_here
	ways_give "$BOX"
	{ ways_there; ways_elsewhere; ways_public; } | ways_none "$BOX"
	run ! inside nslookup good.test
	[ "$1" != container ] || return 0 # open.bats
	run --separate-stderr sandbox create --image "$IMAGE" --tier "$1" --network open --disk-mib 64
	[ "$status" -eq 6 ]
	[[ $stderr == *"network open_egress is for containers, and tier $1 is needed"*"network restricted, which every tier has"* ]]
	run --separate-stderr sandbox create --image "$IMAGE" --tier "$1" --network open --disk-mib 64 --explain
	[[ $output$stderr == *"network open_egress is for containers, and tier $1 is needed"* ]]
}

# For setup_file: what `restricted` reaches, and the settings of a daemon that lets it.
origin_start() {
	mkdir -p "$SBX_DIR/www"
	echo from-origin >"$SBX_DIR/www/hello"
	python3 -u -m http.server --bind 127.79.0.1 -d "$SBX_DIR/www" 0 >"$SBX_DIR/origin.log" 2>&1 3>&- 4>&- &
	ORIGIN_PID=$!
	until_ok 30 grep -q ' port [0-9]' "$SBX_DIR/origin.log"
	ORIGIN_PORT=$(sed -n 's/.* port \([0-9]*\).*/\1/p' "$SBX_DIR/origin.log" | head -n 1)
	export ORIGIN_PID ORIGIN_PORT
}

origin_stop() {
	[ -z "${ORIGIN_PID:-}" ] || kill "$ORIGIN_PID" 2>/dev/null || true
}

ORIGIN_SETTINGS="--set egress.rules=*:* --set egress.open_addresses=127.79.0.1/32 --set egress.hosts=ok.test=127.79.0.1,other.test=127.79.0.1,$WAYS_HOSTS"

pool_ready() {
	[ "$(sandbox pool list --json | jq --arg pool "$1" '[.[] | select(.name == $pool) | .ready][0]')" -ge 1 ]
}

# A sandbox that was ready: what was asked for in all that can be given to a running one, and its name where it cannot.
claimed() {
	local box args=$SBX_ARGS
	[ "$1" != container ] || return 0 # pool.bats
	sbx_kill TERM
	printf '[pool %s]\nimage = %s\ntier = %s\nsize = 1\nmemory = 160m\ndisk = 64m\n' "$1" "$IMAGE" "$1" >"$SBX_DIR/pool.conf"
	# shellcheck disable=SC2086
	sbx_daemon --config "$SBX_DIR/pool.conf" $SBX_ARGS
	until_ok 90 pool_ready "$1"
	box=$(sbx_create --tier "$1" --memory-mib 160 --env GREETING=hi)
	sandbox inspect --json "$box" | jq -e --arg pool "$1" '.tier == $pool and (.decision | tostring | test("of pool " + $pool))'
	# shellcheck disable=SC2016
	run -0 timeout 60 sandbox exec "$box" -- sh -c 'echo "$GREETING $SANDBOX_ID"; ls -A /workspace'
	[ "$output" = "hi $box" ]
	drop "$box"
	box=$(sbx_create --tier "$1" --memory-mib 160 --name named)
	[ "$(timeout 60 sandbox exec "$box" -- hostname)" = named ]
	drop "$box"
	: >"$SBX_DIR/pool.conf"
	kill -HUP "$(sbx_pid)"
	until_ok 60 no_pool_left
	SBX_ARGS=$args
	unharmed "$1"
}

no_pool_left() {
	[ "$(sandbox pool list -q | wc -l)" -eq 0 ] && [ -z "$(curl -sS --max-time 10 --unix-socket "$SBX_DIR/d.sock" http://sandbox/metrics | grep '^sandbox_node_sandboxes{' | grep -v " $(sandbox list -q | wc -l)$")" ]
}
