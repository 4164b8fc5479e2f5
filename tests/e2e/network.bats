#!/usr/bin/env bats
# What leaves a sandbox with network deny: nothing. What works inside: both loopbacks.

load ../lib/helpers.bash

setup_file() {
	need_engine
	sbx_start
	BOX=$(sbx_create)
	export BOX
}

teardown_file() {
	sbx_stop
}

@test "there is no interface but loopback" {
	run -0 timeout 20 sandbox exec "$BOX" -- ls /sys/class/net
	[ "$output" = lo ]
	run -0 timeout 20 sandbox exec "$BOX" -- sh -c 'tail -n +2 /proc/net/route | wc -l'
	[ "$output" -eq 0 ]
}

@test "addresses outside are unreachable: public, host, metadata, engine bridge" {
	local a
	for a in 1.1.1.1 169.254.169.254 172.17.0.1 10.0.0.1; do
		run timeout 20 sandbox exec "$BOX" -- nc -w 2 "$a" 80
		[ "$status" -ne 0 ]
		[[ "$output" == *nreachable* ]] || { echo "$a: $output"; false; }
	done
}

@test "names do not resolve" {
	run timeout 20 sandbox exec "$BOX" -- nslookup example.com
	[ "$status" -ne 0 ]
}

@test "a server on 127.0.0.1 answers inside" {
	run -0 timeout 20 sandbox exec "$BOX" -- sh -c 'echo hi | nc -l -p 8080 127.0.0.1 >/tmp/got & sleep 0.5; echo x | nc -w 2 127.0.0.1 8080; wait'
}

@test "localhost resolves, and ::1 exists" {
	run -0 timeout 20 sandbox exec "$BOX" -- sh -c 'echo from-localhost | nc -l -p 8081 & sleep 0.3; nc -w 2 localhost 8081 </dev/null; wait'
	[ "$output" = from-localhost ]
	run -0 timeout 20 sandbox exec "$BOX" -- sh -c 'echo from-six | nc -l -p 8082 & sleep 0.3; nc -w 2 ::1 8082 </dev/null; wait'
	[ "$output" = from-six ]
	run -0 timeout 20 sandbox exec "$BOX" -- grep -c . /proc/net/if_inet6
	[ "$output" -ge 1 ]
}

@test "raw sockets are refused" {
	run timeout 20 sandbox exec "$BOX" -- sh -c 'grep CapEff /proc/self/status'
	[[ "$output" == *0000000000000000* ]]
}
