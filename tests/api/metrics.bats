#!/usr/bin/env bats
# Metrics: well-formed for Prometheus, true, and there also when the store is not.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start --set policy.max_host_pressure=1
}

teardown_file() {
	sbx_stop
}

scrape() {
	curl -sS --max-time 10 --unix-socket "$SBX_DIR/d.sock" "$@" http://x/metrics
}

value() {
	scrape | awk -v m="$1" 'index($0, m " ") == 1 { print $NF }'
}

@test "the text is what Prometheus reads" {
	run -0 scrape -i
	[[ "$output" == *"Content-Type: text/plain; version=0.0.4"* ]]
	[ "$(echo "$output" | grep -ci '^content-type:')" -eq 1 ]
	# Every sample is well-formed and its name was introduced by HELP and TYPE, each once.
	scrape | awk '
		/^# HELP / { if (help[$3]++) { print "twice: " $3; bad = 1 } next }
		/^# TYPE / { if (type[$3]++ || $4 !~ /^(counter|gauge|histogram)$/) { print "type: " $0; bad = 1 } kind[$3] = $4; next }
		!/^[a-z_]+({[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*})? -?[0-9.+eInf]+$/ { print "sample: " $0; bad = 1; next }
		{ name = $1; sub(/{.*/, "", name); base = name; sub(/_(bucket|sum|count)$/, "", base); if (!(name in kind) && kind[base] != "histogram") { print "no type: " name; bad = 1 } }
		END { exit bad }'
}

@test "operations, latencies, nodes and the store are counted" {
	local id
	id=$(sbx_create --name one | tail -n 1)
	sandbox exec one -- true
	run -3 sandbox exec one -- sh -c 'exit 3'
	[ "$(value 'sandbox_operations_total{kind="create",outcome="none",state="succeeded"}')" -eq 1 ]
	[ "$(value 'sandbox_operations_total{kind="exec",outcome="exited",state="succeeded"}')" -eq 1 ]
	[ "$(value 'sandbox_operations_total{kind="exec",outcome="exited",state="failed"}')" -eq 1 ]
	[ "$(value 'sandbox_operation_seconds_count{kind="exec",phase="total"}')" -eq 2 ]
	[ "$(value 'sandbox_operation_seconds_count{kind="create",phase="queued"}')" -eq 1 ]
	[ "$(value 'sandbox_operation_seconds_bucket{kind="create",phase="total",le="+Inf"}')" -eq 1 ]
	[ "$(value 'sandbox_sandboxes{state="running"}')" -eq 1 ]
	[ "$(value 'sandbox_node_up{node="local"}')" -eq 1 ]
	[ "$(value 'sandbox_node_sandboxes{node="local"}')" -eq 1 ]
	[ "$(value 'sandbox_store_up')" -eq 1 ]
	[ "$(value 'sandbox_store_leader')" -eq 1 ]
	[ "$(value 'sandbox_store_transactions_total')" -ge 5 ]
	[ "$(value 'sandbox_store_failures_total')" -eq 0 ]
	# Memory given to the sandbox is missing from what is free.
	awk -v t="$(value 'sandbox_node_total{node="local",resource="memory_bytes"}')" -v f="$(value 'sandbox_node_free{node="local",resource="memory_bytes"}')" \
		'BEGIN { exit t - f != 256 * 1048576 }'
	sandbox exec one -- sleep 20 >/dev/null 2>&1 3>&- &
	local pid=$!
	until_ok 5 one_runs
	kill "$pid"
	sandbox delete one --wait
	[ "$(value 'sandbox_operations_total{kind="delete",outcome="none",state="succeeded"}')" -eq 1 ]
}

one_runs() {
	[ "$(value sandbox_commands_running)" -eq 1 ]
}
