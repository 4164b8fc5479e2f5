#!/usr/bin/env bats
# Workers over SSH: real sshds in network namespaces as separate hosts, a controller here; from bare hosts to running sandboxes and back.
# The workers there run plain processes (tests/lib/fleet.bash): what is tried is the way there.
load ../lib/helpers
load ../lib/tls
load ../lib/fleet
load ../lib/hosts

setup_file() {
	hosts_need
	hosts_begin
	host alpha 11
	host beta 12 "RekeyLimit 64K"
	host_wire
	fleet_start_for_hosts
}

teardown_file() {
	fleet_stop
	hosts_end
}

teardown() {
	local n
	for n in $(sandbox node list -q 2>/dev/null); do sandbox node remove --force "$n" >/dev/null 2>&1 || true; done
	for n in alpha beta; do host_clean "$n"; done
}

# on VERB USER HOST [ARGUMENT…]
on() {
	local verb=$1 user=$2 at
	at=$(host_ip "$3")
	shift 3
	timeout 60 sandbox node "$verb" "$user@$at" "$@"
}

add() {
	on add "$@" --controller "https://$HOSTS_NET.1:$FLEET_PORT" --canary-image any
}

nothing_left() {
	run -0 in_host "$1" sh -c 'ls -d /opt/sandbox /etc/sandbox /var/lib/sandbox-worker /run/sandbox-worker /etc/cron.d/sandbox-worker 2>/dev/null; true'
	[ -z "$output" ]
	run in_host "$1" sh -c 'for p in /proc/[0-9]*; do readlink $p/exe; done 2>/dev/null | grep /opt/sandbox/'
	[ "$status" -eq 1 ]
}

@test "two bare hosts become workers and run sandboxes; again changes nothing; removed, nothing is left" {
	local started=$SECONDS
	run -0 --separate-stderr add root alpha -i "$HOSTS/key" --label zone=a
	[ "$output" = alpha ]
	[[ $stderr == *"a first sandbox ran there"* ]]
	[ $((SECONDS - started)) -lt 30 ]
	run add ann beta -i "$HOSTS/key" --name second
	echo "$output"
	[ "$status" -eq 0 ]
	[ "$(sandbox node list --json=name,state | jq -c 'sort_by(.name)')" = '[{"name":"alpha","state":"up"},{"name":"second","state":"up"}]' ]
	[ "$(in_host alpha stat -c %a /etc/sandbox/worker.conf /var/lib/sandbox-worker/node-credential | tr '\n' ' ')" = "600 600 " ]
	sandbox create -q --name one --image any
	[ "$(sandbox exec -w / one -- echo through)" = through ]
	sandbox delete one --wait
	local worker
	worker=$(host_worker alpha)
	run -0 add root alpha -i "$HOSTS/key" --label zone=a
	[[ $output == *"the worker is set up already"* ]]
	[ "$worker" = "$(host_worker alpha)" ]
	# A purge that fails is repeated by the same line, and never meets another worker's machine.
	run -4 sandbox node remove second --purge "ann@$(host_ip beta)" -i "$HOSTS/key" --host-key SHA256:AAAA
	run -1 sandbox node remove second --purge "ann@$(host_ip alpha)" -i "$HOSTS/key"
	[[ $output == *"this machine is the worker alpha"* ]]
	run -0 sandbox node remove second --purge "ann@$(host_ip beta)" -i "$HOSTS/key"
	nothing_left beta
	run -0 sandbox node remove alpha --purge "root@$(host_ip alpha)" -i "$HOSTS/key"
	nothing_left alpha
	[ -z "$(sandbox node list -q)" ]
}

@test "upgrade and rotate leave a worker that works; a killed worker comes back" {
	add root alpha -i "$HOSTS/key"
	local before after
	before=$(in_host alpha sha256sum /var/lib/sandbox-worker/node-credential)
	run -0 on rotate root alpha -i "$HOSTS/key"
	after=$(in_host alpha sha256sum /var/lib/sandbox-worker/node-credential)
	[ "$before" != "$after" ]
	sandbox create -q --name kept --image any
	run -0 on upgrade root alpha -i "$HOSTS/key"
	[ "$(sandbox exec -w / kept -- echo still)" = still ]
	in_host alpha kill -KILL "$(host_worker alpha)"
	until_ok 30 sandbox exec -w / kept -- true
	sandbox delete kept --wait
	run -3 on upgrade root beta -i "$HOSTS/key"
	[[ $output == *"was not set up by"* ]]
}

@test "sudo: without a password, with one, with a wrong one, without a terminal, not at all" {
	run -0 add bob beta --password-file "$HOSTS/password"
	on add bob beta --password-file "$HOSTS/password" --controller "https://$HOSTS_NET.1:$FLEET_PORT" --no-canary
	run in_host beta grep -r swordfish /var/log /opt/sandbox /etc/sandbox
	[ "$status" -ne 0 ]
	run -0 sandbox node remove beta --purge "bob@$(host_ip beta)" --password-file "$HOSTS/password"
	echo wrong >"$HOSTS/wrong"
	run -4 add bob beta -i "$HOSTS/key" --password-file "$HOSTS/wrong"
	[[ $output == *"bob ALL=(root) NOPASSWD: /bin/sh"* ]]
	run -4 add eve beta -i "$HOSTS/key" --password-file "$HOSTS/password"
	[[ $output == *"eve ALL=(root) NOPASSWD: /bin/sh"* ]]
	run -4 add bob beta -i "$HOSTS/key"
	[[ $output == *"no terminal to ask on"* ]]
	run -4 add tim beta -i "$HOSTS/key" --password-file "$HOSTS/password"
	[[ $output == *"wants a terminal"* ]]
	nothing_left beta
}

@test "csh, a noisy profile, a key with a passphrase, a host in between" {
	run -0 timeout 60 sandbox node add "sheila@$HOSTS_NET.130" -i "$HOSTS/locked" --password-file "$HOSTS/passphrase" -J "ann@$(host_ip alpha)" \
		--controller "https://$HOSTS_NET.1:$FLEET_PORT" --canary-image any
	[[ $output == *"a first sandbox ran there"* ]]
	run -0 sandbox node remove beta --purge "sheila@$(host_ip beta)" -i "$HOSTS/key"
	nothing_left beta
}

@test "a dry run shows every script and changes nothing" {
	run -0 --separate-stderr add root alpha -i "$HOSTS/key" --dry-run
	[[ $output == *"sending sandboxd"*"sha256sum"*"writing the configuration"*"controller = https://"*"supervise"* ]]
	[[ $output == *"# reads: a join token"* ]]
	nothing_left alpha
	[ -z "$(sandbox node list -q)" ]
}

@test "host keys: unknown, changed, given" {
	local print
	print=$(ssh-keygen -lf "$HOSTS/alpha/host_key.pub" | cut -d ' ' -f 2)
	cp "$HOME/.ssh/known_hosts" "$HOSTS/kept"
	: >"$HOME/.ssh/known_hosts"
	run -4 add root alpha -i "$HOSTS/key"
	[[ $output == *"is not in known_hosts"*"--host-key $print"* ]]
	run -4 add root alpha -i "$HOSTS/key" --host-key SHA256:AAAA
	[[ $output == *"not the one given"* ]]
	run -0 add root alpha -i "$HOSTS/key" --host-key "$print"
	echo "$(host_ip alpha) $(cut -d ' ' -f 1,2 "$HOSTS/key.pub")" >"$HOME/.ssh/known_hosts"
	run -4 on upgrade root alpha -i "$HOSTS/key"
	[[ $output == *"somebody may be in between"* ]]
	echo "@revoked $(host_ip alpha) $(cut -d ' ' -f 1,2 "$HOSTS/alpha/host_key.pub")" >>"$HOME/.ssh/known_hosts"
	run -4 on upgrade root alpha -i "$HOSTS/key" --host-key "$print"
	[[ $output == *revoked* ]]
	cp "$HOSTS/kept" "$HOME/.ssh/known_hosts"
}

@test "a step that fails undoes those before it" {
	# The controller's address leads nowhere: the worker never gets up.
	run on add root alpha -i "$HOSTS/key" --controller "https://$HOSTS_NET.1:9" --wait 3s
	[ "$status" -ne 0 ]
	[[ $output == *"what was set up on root@$(host_ip alpha) is removed again"* ]]
	nothing_left alpha
	[ -z "$(sandbox node list -q)" ]
	in_host alpha mount -t tmpfs -o size=200k none /opt
	run -1 add root alpha -i "$HOSTS/key"
	in_host alpha umount /opt
	echo "$output"
	[[ $output == *"sending sandboxd"*"No space left"* ]]
	nothing_left alpha
}

@test "whole output and the right status: long, on both streams, slow and lossy, rekeyed, cut off" {
	local ip
	ip=$(host_ip beta)
	ssh_run() { SSH_IDENTITY=$HOSTS/key timeout 60 "$BUILD/tools/ssh_run" "$BUILD/sandbox-ssh.so" "root@$ip" 22 "$@"; }
	[ "$(ssh_run 30000 'seq 1 400000' </dev/null | md5sum)" = "$(seq 1 400000 | md5sum)" ]
	[ "$(ssh_run 30000 'seq 1 400000 >&2' </dev/null 2>&1 >/dev/null | md5sum)" = "$(seq 1 400000 | md5sum)" ]
	head -c 3000000 /dev/urandom >"$HOSTS/blob"
	[ "$(ssh_run 30000 sha256sum <"$HOSTS/blob")" = "$(sha256sum <"$HOSTS/blob")" ]
	ip=$HOSTS_NET.130
	[ "$(ssh_run 30000 sha256sum root "$(host_ip alpha)" 22 <"$HOSTS/blob")" = "$(sha256sum <"$HOSTS/blob")" ]
	ip=$(host_ip beta)
	run -7 ssh_run 10000 'exit 7'
	run -255 ssh_run 1000 'sleep 20'
	[[ $output == *"no end in time"* ]]
	run -255 ssh_run 20000 'kill -KILL $PPID; sleep 20'
	[[ $output == *"the connection ended"* ]]
	# Both streams at once, each whole.
	ssh_run 30000 'seq 1 100000; seq 1 100000 >&2; seq 1 100000' </dev/null >"$HOSTS/out" 2>"$HOSTS/err"
	cmp <(seq 1 100000; seq 1 100000) "$HOSTS/out"
	cmp <(seq 1 100000) "$HOSTS/err"
	host_slow beta 20 1 || skip "this kernel makes no tun devices"
	ip=$HOSTS_NET.134
	[ "$(ssh_run 60000 'seq 1 20000; seq 1 2000 >&2' </dev/null 2>/dev/null | md5sum)" = "$(seq 1 20000 | md5sum)" ]
	[ "$(head -c 200000 "$HOSTS/blob" | ssh_run 60000 sha256sum)" = "$(head -c 200000 "$HOSTS/blob" | sha256sum)" ]
	host_slow_end
}

@test "the end of a short input is told at once" {
	local ip i took empty=60000 short=60000
	ip=$(host_ip alpha)
	once() {
		local from=${EPOCHREALTIME/./}
		SSH_IDENTITY=$HOSTS/key timeout 60 "$BUILD/tools/ssh_run" "$BUILD/sandbox-ssh.so" "root@$ip" 22 30000 cat <"$1" >"$HOSTS/out"
		took=$(((${EPOCHREALTIME/./} - from) / 1000))
	}
	echo token >"$HOSTS/token"
	# Waiting for the other side instead costs half a second each time; on a busy machine the best of several counts.
	for ((i = 0; i < 20; i++)); do
		once /dev/null
		[ "$took" -ge "$empty" ] || empty=$took
		once "$HOSTS/token"
		cmp "$HOSTS/token" "$HOSTS/out"
		[ "$took" -ge "$short" ] || short=$took
		[ $i -lt 2 ] || [ "$short" -gt $((empty + 350)) ] || break
	done
	echo "without input $empty ms, with $short ms"
	[ "$short" -le $((empty + 350)) ]
}

@test "a key that only the agent has" {
	command -v ssh-agent >/dev/null || skip "no ssh-agent"
	run -4 add root alpha
	[[ $output == *"does not let root in"* ]]
	# One that hangs up is no agent.
	python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
while True:
    c, _ = s.accept()
    c.recv(1)
    c.close()' "$HOSTS/rude" >/dev/null 2>&1 3>&- 4>&- &
	local rude=$!
	until_ok 20 test -S "$HOSTS/rude"
	SSH_AUTH_SOCK=$HOSTS/rude run -4 add root alpha
	kill "$rude"
	[[ $output == *"does not let root in"* ]]
	SSH_AUTH_SOCK=$HOSTS/agent ssh-agent -D -a "$HOSTS/agent" >/dev/null 2>&1 3>&- 4>&- &
	local agent=$!
	until_ok 20 test -S "$HOSTS/agent"
	export SSH_AUTH_SOCK=$HOSTS/agent
	# One that the host does not know comes first.
	[ -f "$HOSTS/stranger" ] || ssh-keygen -q -t ed25519 -N '' -f "$HOSTS/stranger"
	ssh-add -q "$HOSTS/stranger"
	ssh-add -q "$HOSTS/key"
	run add root alpha
	unset SSH_AUTH_SOCK
	kill "$agent"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"a first sandbox ran there"* ]]
}
