# A fleet for one test file: a controller that serves HTTPS, and workers that join it. Needs helpers.bash and tls.bash.
# Workers run plain processes (SANDBOX_TEST_RUNTIME=fake) unless FLEET_RUNTIME=docker; each has its folder $FLEET/NAME.

fleet_start() {
	fleet_start_dirs
	fleet_controller "$@"
}

# The folders and the certificate (for the names FLEET_CERT) alone.
fleet_start_dirs() {
	FLEET=${FLEET:-$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")}
	FLEET_PORT=$(free_port)
	export FLEET FLEET_PORT
	export HOME=$FLEET/home XDG_CONFIG_HOME=$FLEET/config XDG_STATE_HOME=$FLEET/xstate XDG_RUNTIME_DIR=$FLEET/run
	mkdir -p "$HOME" "$XDG_CONFIG_HOME" "$XDG_STATE_HOME"
	mkdir -m 0700 "$XDG_RUNTIME_DIR"
	export SANDBOX_URL=unix://$FLEET/controller/d.sock
	make_ca "$FLEET/tls"
	make_cert "$FLEET/tls" server "${FLEET_CERT:-DNS:localhost,IP:127.0.0.1}"
}

# fleet_run NAME ARGUMENT…: (in the network name space $FLEET_NETNS) starts sandboxd in the folder of NAME and waits until it serves.
fleet_run() {
	local name=$1 dir=$FLEET/$1 ready=$FLEET/$1/ready end=$((SECONDS + 60)) pid
	shift
	mkdir -p "$dir"
	: >"$ready"
	${FLEET_NETNS:+ip netns exec "$FLEET_NETNS"} "$BUILD/sandboxd" --set "daemon.state_dir=$dir" --set "daemon.socket=$dir/d.sock" --set "daemon.init_path=$BUILD/sandbox-init" \
		--set "worker.docker_socket=$DOCKER_SOCKET" --set worker.gvisor_runtime= --set daemon.log_level=debug --set policy.max_host_pressure=1 \
		--ready-fd 9 "$@" 9>"$ready" >>"$dir/log" 2>&1 </dev/null 3>&- 4>&- &
	pid=$!
	echo "$pid" >"$dir/pid"
	while ! grep -q ready "$ready" && grep -q '^State:.[^Z]' "/proc/$pid/status" 2>/dev/null && [ $SECONDS -lt $end ]; do sleep 0.05; done
	grep -q ready "$ready" || { echo "$name did not become ready; its log:" >&2; tail -n 30 "$dir/log" >&2; return 1; }
}

fleet_controller() {
	fleet_run controller --set daemon.role=controller --set "daemon.listen=127.0.0.1:$FLEET_PORT" --set "daemon.tls_cert=$FLEET/tls/server.pem" \
		--set "daemon.tls_key=$FLEET/tls/server.key" "$@"
}

# fleet_worker NAME [ARGUMENT…]: (re)starts a worker; one without a credential joins with $JOIN_TOKEN, else with a fresh token.
fleet_worker() {
	local name=$1 token=
	shift
	if [ ! -e "$FLEET/$name/node-credential" ]; then token=${JOIN_TOKEN-$(sandbox node token -q "$name")}; fi
	SANDBOX_JOIN_TOKEN=$token SANDBOX_TEST_RUNTIME=$([ "${FLEET_RUNTIME:-fake}" = docker ] || echo fake) \
		fleet_run "$name" --set daemon.role=worker --set "worker.name=$name" --set "worker.controller=${FLEET_URL:-https://localhost:$FLEET_PORT}" "$@"
}

fleet_pid() {
	cat "$FLEET/$1/pid"
}

# fleet_kill NAME [SIGNAL]: ends it and waits.
fleet_kill() {
	local pid
	pid=$(fleet_pid "$1")
	kill "-${2:-TERM}" "$pid" 2>/dev/null || return 0
	sbx_gone "$pid"
}

# node_is NAME STATE
node_is() {
	sandbox node inspect --json=state "$1" 2>/dev/null | grep -q "\"$2\""
}

# The worker's link is up and it takes streams.
fleet_linked() {
	grep -q "node=$1 ready epoch=$2 " "$FLEET/controller/log"
}

# link_up NAME: the worker says so itself.
link_up() {
	curl -fsS --max-time 5 --unix-socket "$FLEET/$1/d.sock" http://x/readyz >/dev/null 2>&1
}

fleet_stop() {
	[ -n "${FLEET:-}" ] || return 0
	local id pid node
	for id in $(timeout 20 sandbox list -q 2>/dev/null); do
		timeout 30 sandbox delete "$id" >/dev/null 2>&1 || true
	done
	for pid in "$FLEET"/*/pid; do
		[ -e "$pid" ] && kill -TERM "$(cat "$pid")" 2>/dev/null && { sbx_gone "$(cat "$pid")" || kill -KILL "$(cat "$pid")"; }
	done
	for node in "$FLEET"/*/node-id; do
		[ -e "$node" ] || continue
		for id in $(docker ps -aq --filter "label=io.sandbox.node=$(cat "$node")" 2>/dev/null); do
			docker rm -f "$id" >/dev/null 2>&1 || true
		done
	done
	grep -o "$FLEET/[^ ]*" /proc/mounts | sort -r | while read -r id; do umount -l "$id" || true; done
	pkill_fakes
	rm -rf "$FLEET"
}

# Processes of the test runtime that a killed worker left: their init names this fleet's folder.
pkill_fakes() {
	local p
	for p in $(pgrep -f -- "--socket $FLEET/"); do kill -KILL "$p" 2>/dev/null || true; done
}

# What became of a command that was posted under a key (its answer is $FLEET/answer.KEY, each run of it a line of $FLEET/ran.KEY).
field_of() {
	sandbox operation inspect --json="$2" "$1" | jq -r ".$2"
}

ended() {
	case $(field_of "$1" state) in succeeded | failed) ;; *) return 1 ;; esac
}

# ran_as_said KEY SECONDS WHAT: it ends within that time, ran at most once, and its record says no other.
ran_as_said() {
	local op outcome runs
	op=$(jq -r .operation.id "$FLEET/answer.$1")
	until_ok "$2" ended "$op"
	outcome=$(field_of "$op" outcome)
	runs=$(cat "$FLEET/ran.$1" 2>/dev/null | wc -l)
	echo "$3, key $1: $outcome, ran $runs"
	[ "$runs" -le 1 ] || return 1
	case $outcome in
	exited) [ "$runs" -eq 1 ] ;;
	not_started) [ "$runs" -eq 0 ] ;;
	lost) ;;
	*) return 1 ;;
	esac
}
