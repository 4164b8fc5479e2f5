# Separate hosts for SSH: each a network namespace with a real sshd, its own /etc, /opt, /home, /root, /run and /var, over this machine's
# programs. Users: root, ann (sudo without password), bob (sudo with the password "swordfish"), eve (no sudo), tim (sudo
# wants a terminal), sheila (csh), fiona (fish) and bert (bash): all three noisy.
# Needs root, iproute2, openssh-server, sudo.

hosts_need() {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	local p
	for p in ip sudo csh ssh-keygen; do command -v "$p" >/dev/null || skip "no $p"; done
	[ -x /usr/sbin/sshd ] || skip "no sshd"
}

# A bridge that all hosts and this machine are on: 10.213.X.1 is this machine.
hosts_begin() {
	HOSTS=$(mktemp -d "${TMPDIR:-/tmp}/hosts.XXXXXX")
	HOSTS_NET=10.213.$(($$ % 250 + 1))
	HOSTS_ID=$(printf 'sh%x' $(($$ % 65536)))
	export HOSTS HOSTS_NET HOSTS_ID
	chmod 755 "$HOSTS"
	ip link add "$HOSTS_ID" type bridge
	ip addr add "$HOSTS_NET.1/25" dev "$HOSTS_ID"
	ip link set "$HOSTS_ID" up
	ssh-keygen -q -t ed25519 -N '' -f "$HOSTS/key"
	ssh-keygen -q -t ed25519 -N 'open sesame' -f "$HOSTS/locked"
	cat "$HOSTS/key.pub" "$HOSTS/locked.pub" >"$HOSTS/authorized"
	echo swordfish >"$HOSTS/password"
	chmod 600 "$HOSTS/password"
	hosts_setup
}

# host NAME NUMBER [sshd_config line]…: 10.213.X.NUMBER
host() {
	local name=$1 ip=$HOSTS_NET.$2 dir=$HOSTS/$1 ns=$HOSTS_ID-$1
	shift 2
	mkdir -p "$dir"
	ip netns add "$ns"
	ip link add "$HOSTS_ID-$name" type veth peer name eth0 netns "$ns"
	ip link set "$HOSTS_ID-$name" master "$HOSTS_ID" up
	ip -n "$ns" addr add "$ip/25" dev eth0
	ip -n "$ns" link set eth0 up
	ip -n "$ns" link set lo up
	ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key"
	{
		printf '%s\n' "HostKey $dir/host_key" "AuthorizedKeysFile $HOSTS/authorized" "StrictModes no" "UsePAM no" "PermitRootLogin yes" \
			"PasswordAuthentication yes" "SetEnv SANDBOX_TEST_RUNTIME=fake" "Banner $dir/banner" "$@"
	} >"$dir/sshd_config"
	echo "Authorized use only" >"$dir/banner"
	mkdir "$dir/fs"
	ip netns exec "$ns" unshare -u -m --propagation private -p -f --kill-child sh "$HOSTS/setup" "$dir" "$DOCKER_SOCKET" >"$dir/log" 2>&1 3>&- 4>&- &
	echo $! >"$dir/pid"
	until_ok 20 host_answers "$ip"
	# The first process of the host's own pid namespace.
	local p=$!
	while [ -n "$(cat "/proc/$p/task/$p/children")" ] && [ "$(readlink "/proc/$p/ns/pid")" = "$(readlink /proc/self/ns/pid)" ]; do
		read -r p _ <"/proc/$p/task/$p/children" || true
	done
	echo "$p" >"$dir/sshd.pid"
	echo "$ip $(cut -d ' ' -f 1,2 "$dir/host_key.pub")" >>"$HOSTS/known_hosts"
}

host_answers() {
	timeout 2 bash -c "exec 3<>/dev/tcp/$1/22" 2>/dev/null
}

# What every host does before it is one: folders of its own, users, sshd in the foreground.
hosts_setup() {
	cat >"$HOSTS/setup" <<'SH'
set -e
dir=$1
# The upper layers of the overlays cannot lie on an overlay themselves.
mount -t tmpfs none "$dir/fs"
mkdir "$dir/fs/up" "$dir/fs/work"
mount -t overlay none -o "lowerdir=/etc,upperdir=$dir/fs/up,workdir=$dir/fs/work" /etc
mount -t proc proc /proc
touch "$dir/fs/engine"
[ ! -S "$2" ] || mount --bind "$2" "$dir/fs/engine"
for d in /opt /home /root /var/lib /var/log /run; do mount -t tmpfs none $d; done
mkdir -p /run/sshd /etc/sudoers.d
if [ -S "$dir/fs/engine" ]; then touch /run/docker.sock && mount --bind "$dir/fs/engine" /run/docker.sock; fi
hostname "${dir##*/}"
rm -f /etc/sudoers.d/*
printf '%s\n' 'Defaults env_keep += SANDBOX_TEST_RUNTIME' 'Defaults secure_path="/usr/sbin:/usr/bin:/sbin:/bin"' 'root ALL=(ALL) ALL' 'ann ALL=(root) NOPASSWD: ALL' \
	'bob ALL=(root) ALL' 'tim ALL=(root) NOPASSWD: ALL' 'sheila ALL=(root) NOPASSWD: ALL' \
	'fiona ALL=(root) NOPASSWD: ALL' 'bert ALL=(root) NOPASSWD: ALL' 'Defaults:tim requiretty' >/etc/sudoers
chmod 440 /etc/sudoers
password=$(openssl passwd -6 swordfish)
for u in ann bob eve tim sheila fiona bert; do
	useradd -m -s /bin/sh -p "$password" $u
done
echo 'echo welcome, user; echo sandbox-noise >&2' >/home/sheila/.cshrc
chsh -s /bin/csh sheila 2>/dev/null || usermod -s /bin/csh sheila
mkdir -p /home/fiona/.config/fish
echo 'echo welcome, fish; echo fish-noise >&2; set -x PATH /bin' >/home/fiona/.config/fish/config.fish
printf 'echo welcome, bash\necho bash-noise >&2\nexport LC_ALL=tr_TR.UTF-8 PATH=/bin\n' >/home/bert/.bashrc
[ ! -x /usr/bin/fish ] || usermod -s /usr/bin/fish fiona
usermod -s /bin/bash bert
usermod -p "$password" root
exec /usr/sbin/sshd -D -e -f "$dir/sshd_config"
SH
}

# in_host NAME COMMAND…: as root on that host.
in_host() {
	local name=$1 pid
	shift
	pid=$(cat "$HOSTS/$name/sshd.pid")
	nsenter -t "$pid" -n -m -p -u "$@"
}

hosts_end() {
	[ -n "${HOSTS:-}" ] || return 0
	local d ns p
	host_slow_end
	for d in "$HOSTS"/*/; do
		d=${d%/}
		ns=$HOSTS_ID-${d##*/}
		for p in $(ip netns pids "$ns" 2>/dev/null); do kill -KILL "$p" 2>/dev/null || true; done
		ip netns del "$ns" 2>/dev/null || true
	done
	ip link del "$HOSTS_ID" 2>/dev/null || true
	rm -rf "$HOSTS"
}

host_ip() {
	case $1 in alpha) echo "$HOSTS_NET.11" ;; beta) echo "$HOSTS_NET.12" ;; esac
}

# Whatever a test left there.
host_clean() {
	in_host "$1" sh -c '[ ! -f /opt/sandbox/supervisor.pid ] || kill -KILL $(cat /opt/sandbox/supervisor.pid)
	for p in /proc/[0-9]*; do
		case $(readlink $p/exe) in /opt/sandbox/*) kill -KILL ${p#/proc/} ;; esac
	done 2>/dev/null; rm -rf /opt/sandbox /etc/sandbox /var/lib/sandbox-worker /run/sandbox-worker /etc/cron.d/sandbox-worker /var/log/sandboxd-worker.log; true'
}

# A controller that hosts reach at 10.213.X.1, and a HOME that knows their keys.
fleet_start_for_hosts() {
	FLEET=$(mktemp -d "${TMPDIR:-/tmp}/fleet.XXXXXX")
	FLEET_PORT=$(free_port)
	export FLEET FLEET_PORT
	export HOME=$FLEET/home XDG_CONFIG_HOME=$FLEET/config XDG_STATE_HOME=$FLEET/xstate XDG_RUNTIME_DIR=$FLEET/run
	mkdir -p "$HOME/.ssh" "$XDG_CONFIG_HOME" "$XDG_STATE_HOME"
	mkdir -m 0700 "$XDG_RUNTIME_DIR"
	unset SSH_AUTH_SOCK
	cp "$HOSTS/known_hosts" "$HOME/.ssh/known_hosts"
	echo 'open sesame' >"$HOSTS/passphrase"
	export SANDBOX_URL=unix://$FLEET/controller/d.sock
	make_ca "$FLEET/tls"
	make_cert "$FLEET/tls" server "DNS:localhost,IP:127.0.0.1,IP:$HOSTS_NET.1"
	fleet_controller --set "daemon.listen=0.0.0.0:$FLEET_PORT"
}

# A wire of their own between alpha and beta: a firewall of this machine may forbid what goes over the bridge. beta is 10.213.X.130 there.
host_wire() {
	ip -n "$HOSTS_ID-alpha" link add eth1 type veth peer name eth1 netns "$HOSTS_ID-beta"
	ip -n "$HOSTS_ID-alpha" addr add "$HOSTS_NET.129/30" dev eth1
	ip -n "$HOSTS_ID-beta" addr add "$HOSTS_NET.130/30" dev eth1
	ip -n "$HOSTS_ID-alpha" link set eth1 up
	ip -n "$HOSTS_ID-beta" link set eth1 up
	echo "$HOSTS_NET.130 $(cut -d ' ' -f 1,2 "$HOSTS/beta/host_key.pub")" >>"$HOSTS/known_hosts"
}

# host_slow NAME DELAY_MS LOSS_PERCENT: another way to that host, slow and lossy: it is 10.213.X.134 there. 1: this kernel has no tun devices.
host_slow() {
	local name=${HOSTS_ID}l
	[ -c /dev/net/tun ] || return 1
	python3 "$TOP/tests/lib/lossy_link.py" "$HOSTS_ID-$1" "$name" "$2" "$3" >"$HOSTS/link" 2>&1 3>&- 4>&- &
	echo $! >"$HOSTS/link.pid"
	until_ok 20 test -s "$HOSTS/link"
	[ "$(cat "$HOSTS/link")" = up ] || return 1
	ip addr add "$HOSTS_NET.133/30" dev "$name"
	ip link set "$name" up
	ip -n "$HOSTS_ID-$1" addr add "$HOSTS_NET.134/30" dev "$name"
	ip -n "$HOSTS_ID-$1" link set "$name" up
	echo "$HOSTS_NET.134 $(cut -d ' ' -f 1,2 "$HOSTS/$1/host_key.pub")" >>"$HOME/.ssh/known_hosts"
}

host_slow_end() {
	[ ! -f "$HOSTS/link.pid" ] || kill "$(cat "$HOSTS/link.pid")" 2>/dev/null || true
	rm -f "$HOSTS/link.pid" "$HOSTS/link"
}

# The worker's process, by its number on that host.
host_worker() {
	in_host "$1" sh -c 'for p in /proc/[0-9]*; do case $(readlink $p/exe) in /opt/sandbox/*/bin/sandboxd) echo ${p#/proc/} ;; esac; done 2>/dev/null; true'
}
