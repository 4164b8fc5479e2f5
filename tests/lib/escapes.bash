# Escape trials: the programs of tests/lib/trials.c in sandboxes, and what of the host they must not have moved. After helpers.bash and tiers.bash.

# In setup_file, after the daemon's start: the programs, what they may find of the host, and its state.
escapes_setup() {
	trials_build
	SENTINEL_NAME=sbx-trial-$$
	export SENTINEL_NAME
	mkfifo "$SBX_DIR/sentinel.ready"
	python3 - >"$SBX_DIR/sentinel.ready" 3>&- 4>&- <<-'PY' &
		import os, socket, time
		s = socket.socket(socket.AF_UNIX)
		s.bind("\0" + os.environ["SENTINEL_NAME"])
		s.listen()
		print("ready", flush=True)
		time.sleep(1200)
	PY
	SENTINEL=$!
	read -r -t 20 _ <"$SBX_DIR/sentinel.ready"
	export SENTINEL
	host_state >"$SBX_DIR/host.before"
}

escapes_teardown() {
	[ -z "${SENTINEL:-}" ] || kill "$SENTINEL" 2>/dev/null || true
}

host_state() {
	hostname
	readlink /proc/self/ns/*
	cat /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/sysrq /proc/sys/vm/overcommit_memory 2>/dev/null || true
	cut -d' ' -f1,3 /proc/swaps
	ls /workspace /owned 2>&1 || true
}

host_same() {
	host_state | diff "$SBX_DIR/host.before" -
	[ "$(date +%Y)" -gt 2005 ]
	! grep -q sbx-trial /proc/keys
}

# trial BOX NAME: all of it is refused. What the host can be reached by is there to be found.
trial() {
	grep -q "@$SENTINEL_NAME$" /proc/net/unix
	run timeout 60 sandbox exec --user root --env SENTINEL_NAME "$1" -- /workspace/trials "$2"
	echo "$output"
	[ "$status" -eq 0 ]
	host_same
}

# trial_own BOX NAME: what of it works does so in a kernel of the sandbox's own.
trial_own() {
	timeout 60 sandbox exec --user root --env SENTINEL_NAME "$1" -- /workspace/trials "$2" || true
	host_same
}

# For on_each_tier, after escapes_setup and trials_give.
refused() {
	trial "$BOX" "$1"
}

own_kernel() {
	local one
	for one in "${@:1:$#-1}"; do
		echo "$one:"
		trial_own "$BOX" "$one"
	done
	unharmed "${*: -1}"
}

trials_give() {
	local tier
	for tier in $OFFERED; do
		timeout 30 sandbox cp "$SBX_DIR/trials" "box-$tier:/workspace/trials"
	done
}
