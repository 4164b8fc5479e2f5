#!/usr/bin/env bats
# docs/tunnels.md as it is written: its blocks are taken from the page and followed, with real Caddy and OpenSSH. Only what a test cannot have
# is replaced: public certificates by Caddy's own authority, host names by addresses, and the port of this machine's edge.

load ../lib/helpers
load ../lib/tls

setup_file() {
	need_engine
	[ "$(id -u)" -eq 0 ] || skip "not root: no public machine can be played"
	command -v caddy >/dev/null || skip "no caddy"
	EDGE=$(free_port)
	export EDGE
	sbx_prepare
	block '### Caddy on this machine' 1 | sed "s/127.0.0.1:8480/127.0.0.1:$EDGE/" >"$SBX_DIR/conf"
	sbx_daemon --config "$SBX_DIR/conf"
	sbx_create --name one --expose 8080=one >/dev/null
	(inside_net one python3 "$TOP/tests/lib/edge_origin.py" 8080 one) >/dev/null 2>>"$SBX_DIR/servers.log" </dev/null 3>&- &
	echo $! >"$SBX_DIR/origin.server"
	until_ok 60 eval '[ "$(curl -sS -m 20 -H "Host: one.boxes.example.net" "http://127.0.0.1:$EDGE/")" = one ]'
}

teardown_file() {
	local f
	for f in "$SBX_DIR"/*.server; do
		[ ! -f "$f" ] || kill "$(cat "$f")" 2>/dev/null || true
	done
	ip link del sbxfront 2>/dev/null || true
	sbx_stop
}

# block HEADING N: the N-th block of code below a heading of the page.
block() {
	awk -v heading="$1" -v n="$2" '
		/^#/ { here = index($0, heading) == 1 }
		/^```/ { inside = !inside; if (inside && here) seen++; next }
		inside && here && seen == n' "$TOP/docs/tunnels.md"
}

# caddy_run NAME PROGRAM…: a Caddy with the configuration $SBX_DIR/NAME.caddy, started by PROGRAM.
caddy_run() {
	local name=$1
	shift
	"$@" env HOME="$SBX_DIR/$name" XDG_DATA_HOME="$SBX_DIR/$name" XDG_CONFIG_HOME="$SBX_DIR/$name" caddy run --config "$SBX_DIR/$name.caddy" --adapter caddyfile \
		>"$SBX_DIR/$name.log" 2>&1 </dev/null 3>&- 4>&- &
	echo $! >"$SBX_DIR/$name.server"
}

front() {
	nsenter "--net=/proc/$(cat "$SBX_DIR/front.server")/ns/net" "$@"
}

# A public machine: a network namespace with sshd.
front_start() {
	ssh-keygen -q -t ed25519 -N '' -f "$SBX_DIR/hostkey"
	ssh-keygen -q -t ed25519 -N '' -f "$SBX_DIR/key"
	{ block '### Behind an outbound connector' 2 | sed "s|ssh-ed25519 .*|$(cut -d' ' -f1,2 "$SBX_DIR/key.pub")|"; } >"$SBX_DIR/authorized_keys"
	printf '%s\n' "HostKey $SBX_DIR/hostkey" "AuthorizedKeysFile $SBX_DIR/authorized_keys" 'PermitRootLogin prohibit-password' 'StrictModes no' 'UsePAM no' 'PidFile none' >"$SBX_DIR/sshd_config"
	unshare -nm sh -c 'mount -t tmpfs none /run && mkdir -m 755 /run/sshd && ip link set lo up && exec /usr/sbin/sshd -D -e -f "$0"' "$SBX_DIR/sshd_config" \
		>"$SBX_DIR/sshd.log" 2>&1 </dev/null 3>&- 4>&- &
	echo $! >"$SBX_DIR/front.server"
	until_ok 30 grep -q 'Server listening' "$SBX_DIR/sshd.log"
	ip link add sbxfront type veth peer name w0 netns "$(cat "$SBX_DIR/front.server")"
	ip addr add 10.251.98.1/30 dev sbxfront
	ip link set sbxfront up
	front ip addr add 10.251.98.2/30 dev w0
	front ip link set w0 up
}

connector_start() {
	local line
	line=$(block '### Behind an outbound connector' 3 | sed "s|:127.0.0.1:8480|:127.0.0.1:$EDGE|; s|connector@front.example.net|root@10.251.98.2|; s|^ssh |-F none -i $SBX_DIR/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null |")
	# shellcheck disable=SC2086
	ssh $line >"$SBX_DIR/ssh.log" 2>&1 </dev/null 3>&- 4>&- &
	echo $! >"$SBX_DIR/ssh.server"
}

# visit NAME PATH ARGUMENT…: from this machine to the public one.
visit() {
	curl -sSk -m 20 --resolve "$1.boxes.example.net:443:10.251.98.2" "${@:3}" "https://$1.boxes.example.net$2"
}

@test "behind an outbound connector the tunnels answer, and the machine has no open port" {
	[ -x /usr/sbin/sshd ] || skip "no sshd"
	[ "$(sandbox tunnel list one --json | jq -r '.[0].public_url')" = https://one.boxes.example.net ]
	front_start
	block '### Behind an outbound connector' 1 | sed 's/^\t\ton_demand$/&\n\t\tissuer internal/; s/^{$/&\n\tadmin off\n\tskip_install_trust/; ' >"$SBX_DIR/public.caddy"
	caddy_run public nsenter "--net=/proc/$(cat "$SBX_DIR/front.server")/ns/net"
	connector_start
	until_ok 60 eval '[ "$(visit one / 2>/dev/null)" = one ]'
	visit one /dump -H 'X-Forwarded-For: 6.6.6.6' >"$SBX_DIR/dump"
	grep -q 'X-Forwarded-For: 10.251.98.1' "$SBX_DIR/dump"
	grep -q 'X-Forwarded-Proto: https' "$SBX_DIR/dump"
	grep -q 'X-Forwarded-Host: one.boxes.example.net' "$SBX_DIR/dump"
	[ "$(visit one /big/3000000 | wc -c)" = 3000000 ]
	timeout 60 python3 "$TOP/tests/lib/idle.py" 1 wss@10.251.98.2:443/one.boxes.example.net ssse@10.251.98.2:443/one.boxes.example.net
	# No certificate for a name that no tunnel has.
	run -35 visit nosuch / -o /dev/null
	# Where the visitors are nothing of this machine answers.
	run ! front curl -sS -m 3 "http://10.251.98.1:$EDGE/"
	# What the key may do is this alone.
	local options="-F none -i $SBX_DIR/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
	# shellcheck disable=SC2086
	run ! timeout 30 ssh $options root@10.251.98.2 touch "$SBX_DIR/did"
	[ ! -e "$SBX_DIR/did" ]
	# shellcheck disable=SC2086
	run ! timeout 30 ssh $options -W 127.0.0.1:443 root@10.251.98.2
	# shellcheck disable=SC2086
	run -255 timeout 30 ssh $options -N -o ExitOnForwardFailure=yes -R 127.0.0.1:9999:127.0.0.1:1 root@10.251.98.2
	# The connector goes and comes.
	kill "$(cat "$SBX_DIR/ssh.server")"
	until_ok 30 eval '[ "$(visit one / -o /dev/null -w "%{http_code}")" = 502 ]'
	connector_start
	until_ok 60 eval '[ "$(visit one / 2>/dev/null)" = one ]'
}

@test "with an origin certificate only who shows the provider's gets an answer" {
	local tls plain
	tls=$(free_port)
	plain=$(free_port)
	make_ca "$SBX_DIR/origin"
	make_cert "$SBX_DIR/origin" boxes "DNS:*.boxes.example.net"
	make_ca "$SBX_DIR/pull"
	make_cert "$SBX_DIR/pull" provider "DNS:provider.example"
	make_ca "$SBX_DIR/other"
	make_cert "$SBX_DIR/other" stranger "DNS:provider.example"
	{
		printf '{\n\tadmin off\n\thttp_port %s\n\thttps_port %s\n}\n' "$plain" "$tls"
		block '### With an origin certificate' 1 | sed "s|/etc/caddy/boxes|$SBX_DIR/origin/boxes|g; s|/etc/caddy/origin-pull-ca.pem|$SBX_DIR/pull/ca.pem|; s|127.0.0.1:8480|127.0.0.1:$EDGE|; s|192.0.2.0/24|127.0.0.1|"
	} >"$SBX_DIR/provided.caddy"
	caddy_run provided env
	pull() {
		curl -sS -m 20 --cacert "$SBX_DIR/origin/ca.pem" --resolve "one.boxes.example.net:$tls:127.0.0.1" "$@" "https://one.boxes.example.net:$tls/dump"
	}
	until_ok 60 pull --cert "$SBX_DIR/pull/provider.pem" --key "$SBX_DIR/pull/provider.key" -H 'X-Forwarded-For: 203.0.113.9' -o "$SBX_DIR/dump"
	grep -q 'X-Forwarded-For: 203.0.113.9' "$SBX_DIR/dump"
	grep -q 'X-Forwarded-Proto: https' "$SBX_DIR/dump"
	run ! pull
	run ! pull --cert "$SBX_DIR/other/stranger.pem" --key "$SBX_DIR/other/stranger.key"
	pull --cert "$SBX_DIR/pull/provider.pem" --key "$SBX_DIR/pull/provider.key" -o /dev/null
}
