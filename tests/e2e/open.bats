#!/usr/bin/env bats
# Network open: what leaves is for public addresses alone, whatever is tried from inside and with whatever rights; the same tries from deny
# and restricted meet nothing at all. The world outside is a network namespace of this machine with public and private addresses, all of
# which this machine itself reaches.

load ../lib/helpers
load ../lib/tls
load ../lib/ways.bash

PUBLIC="11.99.7.2"
PRIVATE="10.99.7.2 172.31.97.2 192.168.97.2 100.99.7.2 169.254.7.7 198.19.97.2 203.0.113.97"

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root: no interfaces can be made"
	command -v nft >/dev/null || skip "no nft (package nftables)"
	local a
	FORWARDED=$(cat /proc/sys/net/ipv4/ip_forward)
	export FORWARDED
	echo 1 >/proc/sys/net/ipv4/ip_forward
	HOST_PORT=$(free_port)
	export HOST_PORT
	sbx_prepare
	unshare -n sleep infinity 3>&- 4>&- &
	echo $! >"$SBX_DIR/world.pid"
	until_ok 20 eval '[ "$(readlink "/proc/$(cat "$SBX_DIR/world.pid")/ns/net")" != "$(readlink /proc/self/ns/net)" ]'
	ip link add sbxworld type veth peer name w0 netns "$(cat "$SBX_DIR/world.pid")"
	ip addr add 11.99.7.1/24 dev sbxworld
	ip link set sbxworld up
	in_world ip link set lo up
	in_world ip addr add "$PUBLIC/24" dev w0
	in_world ip addr add 11.99.7.53/24 dev w0
	in_world ip link set w0 up
	in_world ip route add default via 11.99.7.1
	for a in $PRIVATE; do
		in_world ip addr add "$a/32" dev w0
		ip route add "$a/32" dev sbxworld
	done
	# shellcheck disable=SC2086
	server world nsenter "--net=/proc/$(cat "$SBX_DIR/world.pid")/ns/net" python3 "$TOP/tests/lib/network_world.py" world $PUBLIC 11.99.7.53 $PRIVATE
	server host python3 "$TOP/tests/lib/network_world.py" host "$HOST_PORT"
	sbx_daemon --set worker.open_pool=198.18.0.0/20 --set worker.open_dns=11.99.7.53 --set "egress.hosts=$(printf 'good.test=%s' "$PUBLIC")"
	ways_setup
	OPEN=$(sbx_create --network open)
	SIBLING=$(sbx_create --network open)
	DENY=$(sbx_create --network deny)
	RESTRICTED=$(sbx_create --network restricted --allow '*:8080' --allow '*:1-65535')
	export OPEN SIBLING DENY RESTRICTED
}

teardown_file() {
	local f node
	for f in world.server host.server world.pid sibling.server; do
		[ ! -f "$SBX_DIR/$f" ] || kill "$(cat "$SBX_DIR/$f")" 2>/dev/null || true
	done
	ways_teardown
	ip link del sbxworld 2>/dev/null || true
	[ -z "${FORWARDED:-}" ] || echo "$FORWARDED" >/proc/sys/net/ipv4/ip_forward
	node=$(cat "$SBX_DIR/state/node-id" 2>/dev/null) || node=
	sbx_stop
	[ -n "$node" ] || return 0
	nft delete table inet "sandbox_${node: -6}" 2>/dev/null || true
	nft -a list chain ip filter DOCKER-USER 2>/dev/null | sed -n "s/.*\"s${node: -6}\*\".*handle \([0-9]*\)\$/\1/p" | while read -r f; do
		nft delete rule ip filter DOCKER-USER handle "$f" || true
	done
}

in_world() {
	nsenter "--net=/proc/$(cat "$SBX_DIR/world.pid")/ns/net" "$@"
}

# server NAME COMMAND…: in the background, once it is ready.
server() {
	local name=$1 line=
	shift
	mkfifo "$SBX_DIR/$name.ready"
	"$@" >"$SBX_DIR/$name.ready" 2>"$SBX_DIR/$name.log" </dev/null 3>&- 4>&- &
	echo $! >"$SBX_DIR/$name.server"
	read -r -t 60 line <"$SBX_DIR/$name.ready"
	[ "$line" = ready ]
}

# tries WHERE: lines of stdin, tried from a sandbox's namespace with root's rights, or from this machine's ("here") or the world's.
tries() {
	case $1 in
	here) timeout 120 python3 "$TOP/tests/lib/network_world.py" try ;;
	world) timeout 120 nsenter "--net=/proc/$(cat "$SBX_DIR/world.pid")/ns/net" python3 "$TOP/tests/lib/network_world.py" try ;;
	*) (inside_net "$1" timeout 120 python3 "$TOP/tests/lib/network_world.py" try) ;;
	esac
}

# address SANDBOX: its own, and this machine's end.
address() {
	(inside_net "$1" ip -4 -o addr show dev eth0) | sed 's|.*inet \([0-9.]*\)/.*|\1|'
}

gateway() {
	(inside_net "$1" ip -4 route show default) | sed 's|.*via \([0-9.]*\).*|\1|'
}

own_addresses() {
	ip -o -4 addr show scope global | sed 's|.*inet \([0-9.]*\)/.*|\1|'
}

# One private address, written otherwise.
notations() {
	printf 'tcp %s 8080\n' 0x0a630702 174262018 10.0x63.7.2 012.0143.7.2
}

# What nobody inside may reach: private, metadata, link-local, documentation, this machine by all its addresses and services, siblings.
forbidden() {
	local a
	for a in $PRIVATE 169.254.169.254 10.0.0.1 224.0.0.1 255.255.255.255; do
		printf '%s\n' "tcp $a 8080" "udp $a 8080" "ping $a" "dns $a"
	done
	for a in $(own_addresses) "$(gateway "$OPEN")" 127.0.0.1; do
		printf '%s\n' "tcp $a $HOST_PORT" "udp $a $HOST_PORT"
		[ "$a" = 127.0.0.1 ] || echo "ping $a"
	done
	for a in "$(address "$SIBLING")" "$(gateway "$SIBLING")"; do
		printf '%s\n' "tcp $a 8080" "udp $a 8080" "ping $a"
	done
	notations
	printf '%s\n' "tcp ::ffff:10.99.7.2 8080" "tcp 64:ff9b::a63:702 8080" "tcp 2002:a63:702::1 8080" "tcp fd00::2 8080" "udp fd00::2 8080" "tcp fe80::1 8080" "tcp 2606:4700::1111 443"
}

@test "it is offered because a probe saw the rules hold" {
	sandbox doctor --json | jq -e '[.checks[] | select(.part == "network")][0].detail | contains("a probe'\''s packets to private")'
	[ "$(sandbox inspect "$OPEN" --json | jq -r .spec.network)" = open_egress ]
}

@test "this machine reaches all that the sandboxes are to be kept from" {
	local a
	{
		notations
		for a in $PUBLIC $PRIVATE; do printf '%s\n' "tcp $a 8080" "udp $a 8080"; done
	} | tries here >"$SBX_DIR/here"
	cat "$SBX_DIR/here"
	run ! grep -v ' yes$' "$SBX_DIR/here"
	[ "$(wc -l <"$SBX_DIR/here")" -eq 20 ]
}

@test "public addresses and names answer" {
	printf '%s\n' "tcp $PUBLIC 8080" "udp $PUBLIC 8080" "ping $PUBLIC" "dns 11.99.7.53" | tries "$OPEN" >"$SBX_DIR/open"
	cat "$SBX_DIR/open"
	run ! grep -v ' yes$' "$SBX_DIR/open"
	[ "$(wc -l <"$SBX_DIR/open")" -eq 4 ]
	run timeout 60 sandbox exec "$OPEN" -- sh -c "nc -w 20 $PUBLIC 8080 </dev/null"
	[[ $output == *there* ]]
	run -0 timeout 60 sandbox exec "$OPEN" -- nslookup good.test
	[[ $output == *"Address: $PUBLIC"* ]]
	run -0 timeout 60 sandbox exec "$OPEN" -- cat /etc/resolv.conf
	[ "$output" = "nameserver 11.99.7.53" ]
}

@test "private, metadata, this machine and siblings do not answer, by any protocol" {
	server sibling nsenter "--net=/proc/$(docker inspect -f '{{.State.Pid}}' "sandbox-$SIBLING")/ns/net" python3 "$TOP/tests/lib/network_world.py" host 8080
	forbidden | tries "$OPEN" >"$SBX_DIR/open"
	cat "$SBX_DIR/open"
	[ "$(wc -l <"$SBX_DIR/open")" -ge 60 ]
	run ! grep ' yes$' "$SBX_DIR/open"
	# A name may say what it likes: its address is judged.
	run -0 timeout 60 sandbox exec "$OPEN" -- nslookup rebind.test
	[[ $output == *"Address: 10.99.7.2"* ]]
	run timeout 60 sandbox exec "$OPEN" -- sh -c "nc -w 20 10.99.7.2 8080 </dev/null"
	[ "$status" -ne 0 ]
	[[ $output != *there* ]]
}

@test "the same from inside, with the rights of its own root; and no other kind of socket" {
	ways_answer_here
	ways_give "$OPEN"
	[ "$(echo "tcp $PUBLIC 8080" | timeout 60 sandbox exec "$OPEN" -- /workspace/ways reach)" = "tcp $PUBLIC 8080 yes" ]
	{
		ways_there
		ways_elsewhere
		printf 'tcp %s 8080\n' $PRIVATE "$(gateway "$OPEN")" "$(address "$SIBLING")"
		notations
	} | ways_none "$OPEN"
}

@test "nothing comes in but answers" {
	local a
	a=$(address "$SIBLING")
	printf '%s\n' "tcp $a 8080" "udp $a 8080" "ping $a" | tries world >"$SBX_DIR/in"
	run ! grep ' yes$' "$SBX_DIR/in"
	[ "$(wc -l <"$SBX_DIR/in")" -eq 3 ]
}

@test "an invented source does not leave" {
	local before table node
	node=$(cat "$SBX_DIR/state/node-id")
	table="sandbox_${node: -6}"
	refused() {
		nft list counters table inet "$table" | grep -A1 'counter refused' | sed -n 's/.*packets \([0-9]*\).*/\1/p'
	}
	before=$(refused)
	(inside_net "$OPEN" python3 "$TOP/tests/lib/network_world.py" spoof 10.99.7.2 "$PUBLIC" 8080)
	(inside_net "$OPEN" python3 "$TOP/tests/lib/network_world.py" spoof "$(address "$SIBLING")" "$PUBLIC" 8080)
	until_ok 20 eval '[ "$(refused)" -ge $((before + 2)) ]'
	# Programs of the sandbox have no right to try.
	run timeout 30 sandbox exec "$OPEN" -- ping -c 1 -w 2 "$PUBLIC"
	[ "$status" -ne 0 ]
}

@test "from deny and restricted nothing leaves at all" {
	local box
	for box in "$DENY" "$RESTRICTED"; do
		{
			forbidden | grep -v ' 127\.0\.0\.1 '
			printf '%s\n' "tcp $PUBLIC 8080" "udp $PUBLIC 8080" "ping $PUBLIC" "dns 11.99.7.53"
		} | tries "$box" >"$SBX_DIR/none"
		[ "$(wc -l <"$SBX_DIR/none")" -ge 60 ]
		run ! grep ' yes$' "$SBX_DIR/none"
		run -0 timeout 20 sandbox exec "$box" -- ls /sys/class/net
		[ "$output" = lo ]
	done
	# The proxy judges addresses, whatever its rules allow.
	for box in $PRIVATE 169.254.169.254 "$(gateway "$OPEN")"; do
		run timeout 60 sandbox exec "$RESTRICTED" -- sh -c "printf 'CONNECT $box:8080 HTTP/1.1\r\nHost: $box:8080\r\n\r\n' | nc -w 10 127.0.0.1 61080"
		[[ $output == *" 403 "* ]] || { echo "$box: $output"; false; }
	done
}

@test "rules that another program takes away are put back" {
	local node
	node=$(cat "$SBX_DIR/state/node-id")
	nft delete table inet "sandbox_${node: -6}"
	until_ok 60 nft list chain inet "sandbox_${node: -6}" leaving >/dev/null 2>&1
	printf '%s\n' "tcp 10.99.7.2 8080" "tcp $(gateway "$OPEN") $HOST_PORT" | tries "$OPEN" >"$SBX_DIR/again"
	run ! grep ' yes$' "$SBX_DIR/again"
}

@test "after a kill of the daemon the network is as it was; a deleted sandbox leaves no interface" {
	local name
	sbx_kill KILL
	sbx_daemon
	printf '%s\n' "tcp $PUBLIC 8080" | tries "$OPEN" | grep -q yes
	printf '%s\n' "tcp 10.99.7.2 8080" "tcp $(gateway "$OPEN") $HOST_PORT" | tries "$OPEN" >"$SBX_DIR/again"
	run ! grep ' yes$' "$SBX_DIR/again"
	name=$(ip -o link show | grep -o "s[0-9a-f]*${SIBLING: -8}" | head -n 1)
	[ -n "$name" ]
	# The namespace ends with the last who is in it.
	kill "$(cat "$SBX_DIR/sibling.server")"
	sandbox delete "$SIBLING" >/dev/null
	until_ok 20 eval '! ip link show "$name" >/dev/null 2>&1'
}
