#!/usr/bin/env bats
# What idle workers cost a controller: two hundred links, their memory measured. tests/bench/scale does it with a thousand.

load ../lib/helpers
load ../lib/tls
load ../lib/fleet

LINKS=200

setup_file() {
	fleet_start
}

teardown_file() {
	fleet_stop
}

# KiB that are the controller's own.
own_memory() {
	awk '/^(Private_|Swap:)/ { n += $2 } END { print n }' "/proc/$(fleet_pid controller)/smaps_rollup"
}

descriptors() {
	find "/proc/$(fleet_pid controller)/fd" -mindepth 1 | wc -l
}

back_to() {
	[ "$(descriptors)" -le "$1" ]
}

@test "an idle link takes less than 90 KiB, and leaves no descriptor behind" {
	local before fds after each
	sandbox node list -q
	before=$(own_memory)
	fds=$(descriptors)
	mkfifo "$FLEET/go"
	python3 "$TOP/tests/lib/fleet_links.py" "$FLEET/controller/d.sock" "https://localhost:$FLEET_PORT" "$FLEET/tls/ca.pem" "$LINKS" \
		<"$FLEET/go" >"$FLEET/said" 2>"$FLEET/err" 3>&- 4>&- &
	local pid=$!
	exec 7>"$FLEET/go"
	until_ok 120 grep -q "^up $LINKS" "$FLEET/said" || { cat "$FLEET/err"; false; }
	[ "$(sandbox node list --json=state | grep -o '"up"' | wc -l)" -eq "$LINKS" ]
	after=$(own_memory)
	each=$(((after - before) / LINKS))
	echo "# $LINKS links: $before to $after KiB, $each KiB each" >&3
	exec 7>&-
	wait "$pid" || { cat "$FLEET/err"; false; }
	grep -q "^kept $LINKS" "$FLEET/said"
	# Sanitizers have their own memory.
	[[ $BUILD == *asan* ]] || [ "$each" -lt 90 ]
	until_ok 30 back_to $((fds + 4))
}
