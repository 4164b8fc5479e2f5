#!/usr/bin/env bats
# From bare machines and the guides alone: a controller from the packages, a workstation from the hosted installer, a worker added over SSH
# (Docker Engine installed by it), a first remote sandbox, and nothing left afterwards. Each machine is a debootstrapped Debian of its own
# with its own network, mounts and processes; its packages come through a proxy here.
load ../lib/helpers.bash
load ../lib/debian_root.bash

setup_file() {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	local p
	for p in debootstrap ip ssh-keygen minisign dpkg-shlibdeps; do command -v $p >/dev/null || skip "no $p"; done
	W=$(mktemp -d "${TMPDIR:-/tmp}/sbx-bare.XXXXXX")
	NET=10.215.$(($$ % 250 + 1)) ID=$(printf 'sb%x' $(($$ % 65536))) ARCH=$(dpkg --print-architecture) VERSION=$(cat "$TOP/VERSION")
	export W NET ID ARCH VERSION
	chmod 755 "$W"
	debian_root "$W/root"
	ip link add "$ID" type bridge
	ip addr add "$NET.1/24" dev "$ID"
	ip link set "$ID" up
	# A firewall of this machine may forward nothing.
	iptables -I FORWARD -i "$ID" -o "$ID" -j ACCEPT 2>/dev/null || true
	python3 "$TOP/tests/lib/http_proxy.py" "$NET.1" >"$W/proxy.port" 2>"$W/proxy.log" 3>&- 4>&- &
	echo $! >"$W/proxy.pid"
	until_ok 20 test -s "$W/proxy.port"
	echo "Acquire::http::Proxy \"http://$NET.1:$(cat "$W/proxy.port")\";" >"$W/root/etc/apt/apt.conf.d/99proxy"
	for p in controller worker workstation; do bare $p; done
	# The release, as its home would serve it; and the key of whoever sits at the workstation.
	minisign -G -W -p "$W/k.pub" -s "$W/k.sec" >/dev/null
	mkdir "$W/www"
	nsenter -t "$(pid_of workstation)" -n python3 "$TOP/tests/lib/files_server.py" "$W/www" >"$W/www.port" 2>"$W/www.log" 3>&- 4>&- &
	echo $! >"$W/www.pid"
	until_ok 20 test -s "$W/www.port"
	# Linked again as releases are: the libraries that travel with the client are found beside it.
	mkdir "$W/b-$ARCH"
	tar -C "$BUILD" --exclude=./tests --exclude=./asan --exclude=./kernel -cf - . | tar -C "$W/b-$ARCH" -xf -
	rm -f "$W/b-$ARCH"/sandbox*
	SANDBOX_DIST_BUILD=$W/b timeout 600 "$TOP/installer/release.sh" --url "http://127.0.0.1:$(cat "$W/www.port")" --key "$W/k.sec" --public-key "$W/k.pub" --out "$W/www" "$ARCH" >"$W/log" 2>&1 ||
		{ cat "$W/log"; return 1; }
	ssh-keygen -q -t ed25519 -N '' -f "$W/key"
}

teardown_file() {
	[ -n "${W:-}" ] || return 0
	local p m
	iptables -D FORWARD -i "$ID" -o "$ID" -j ACCEPT 2>/dev/null || true
	for p in controller worker workstation; do
		[ ! -f "$W/$p/pid" ] || kill -KILL "$(pid_of $p)" 2>/dev/null || true
		ip netns del "$ID-$p" 2>/dev/null || true
	done
	for p in proxy www; do [ ! -f "$W/$p.pid" ] || kill "$(cat "$W/$p.pid")" 2>/dev/null || true; done
	ip link del "$ID" 2>/dev/null || true
	for ((m = 0; m < 100; m++)); do
		grep -o "$W/[^ ]*" /proc/mounts | sort -r | while read -r p; do umount -l "$p" 2>/dev/null || true; done
		rm -rf "$W" 2>/dev/null && break
		sleep 0.2
	done
	[ ! -e "$W" ]
}

ip_of() {
	case $1 in controller) echo "$NET.11" ;; worker) echo "$NET.12" ;; workstation) echo "$NET.13" ;; esac
}

pid_of() {
	cat "$W/$1/pid"
}

# bare NAME: a machine. Its first process only waits; the root is an overlay over the one bare Debian.
bare() {
	local d=$W/$1 ns=$ID-$1 p
	mkdir -p "$d/up" "$d/work" "$d/root"
	mount -t overlay none -o "lowerdir=$W/root,upperdir=$d/up,workdir=$d/work" "$d/root"
	ip netns add "$ns"
	ip link add "$ID-${1:0:6}${#1}" type veth peer name eth0 netns "$ns"
	ip link set "$ID-${1:0:6}${#1}" master "$ID" up
	ip -n "$ns" addr add "$(ip_of "$1")/24" dev eth0
	ip -n "$ns" link set eth0 up
	ip -n "$ns" link set lo up
	cat >"$d/start" <<-SH
		set -e
		hostname $1
		mount --rbind /sys "$d/root/sys"
		mount --rbind /dev "$d/root/dev"
		mount -t proc proc "$d/root/proc"
		mount -t tmpfs none "$d/root/run"
		# A disk of its own: the engine's layers cannot lie on an overlay.
		mkdir -p "$d/disk" "$d/root/var/lib/docker"
		mount --bind "$d/disk" "$d/root/var/lib/docker"
		cd "$d/root"
		mkdir -p .old
		pivot_root . .old
		umount -l /.old
		rmdir /.old
		echo "127.0.0.1 localhost $1" >/etc/hosts
		echo up >/run/up
		exec sleep infinity
	SH
	# By nsenter, since \`ip netns exec\` would hide the control groups.
	nsenter --net="/run/netns/$ns" unshare -u -m --propagation private -p -f --kill-child sh "$d/start" >"$d/log" 2>&1 </dev/null 3>&- 4>&- &
	p=$!
	until_ok 30 first_child "$p" "$d"
	until_ok 30 test -e "/proc/$(cat "$d/pid")/root/run/up" || { cat "$d/log"; false; }
}

first_child() {
	local c=
	read -r c _ <"/proc/$1/task/$1/children" || true
	[ -n "$c" ] && echo "$c" >"$2/pid"
}

# on NAME COMMAND…: as root there, with nothing of this machine's environment.
on() {
	local pid
	pid=$(pid_of "$1")
	shift
	timeout 1200 nsenter -t "$pid" -n -m -p -u env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@" </dev/null
}

# bring NAME FILE…: into /root there.
bring() {
	local n=$1
	shift
	cp -r "$@" "/proc/$(pid_of "$n")/root/root/"
}

# at_work COMMAND: at the workstation, as whoever reads the guide would type it.
at_work() {
	on workstation env SANDBOX_CA_FILE=/root/tls.crt sh -c "$1"
}

@test "a controller from the packages, by docs/guides/server.md" {
	bring controller "$W/www/$VERSION"/*.deb
	run -0 on controller sh -c 'apt-get -q update && apt-get -q -y install --no-install-recommends /root/*.deb'
	run -0 on controller sandboxd init --role controller --listen 0.0.0.0:8443 --tls --name "$(ip_of controller)"
	[ "$(on controller stat -c '%U %a' /etc/sandbox-controller /etc/sandbox-controller/sandboxd.conf /etc/sandbox-controller/tls.key | tr '\n' ' ')" = "sandboxd 700 sandboxd 600 sandboxd 600 " ]
	# What the unit would start: here is no systemd.
	local line
	line=$(on controller sed -n 's|^ExecStart=||p' /lib/systemd/system/sandboxd-controller.service | sed 's|%S|/var/lib|g; s|%t|/run|g')
	on controller install -d -o sandboxd -g sandboxd /run/sandbox /var/lib/sandbox-controller
	on controller sh -c "setsid setpriv --reuid sandboxd --regid sandboxd --init-groups --bounding-set=-all --inh-caps=-all --no-new-privs $line >>/var/log/sandboxd.log 2>&1 </dev/null &"
	until_ok 60 on controller sandbox node list -q
}

@test "a workstation from the hosted installer, by docs/guides/client.md" {
	on workstation apt-get -q update >/dev/null 2>&1
	run -0 on workstation apt-get -q -y install --no-install-recommends curl ca-certificates
	run on workstation sh -c "curl -fsSL http://127.0.0.1:$(cat "$W/www.port")/setup.sh | sh"
	echo "$output"
	[ "$status" -eq 0 ]
	# What it says is missing, by the line it gives.
	[[ $output == *"libraries are missing here for stored tokens (sandbox login)"* ]]
	on workstation sh -c "$(sed -n 's/.*as root: \(apt-get install\) /\1 -y --no-install-recommends /p' <<<"$output")"
	[ "$(on workstation sandbox --version)" = "sandbox $VERSION" ]
	bring workstation "/proc/$(pid_of controller)/root/etc/sandbox-controller/tls.crt" "$W/key" "$W/www/$VERSION/sandbox-server-$VERSION-linux-$ARCH.tar.gz"
	local token
	token=$(on controller sandbox token create -q --role admin laptop)
	[ -n "$token" ]
	at_work "sandbox context create work --url https://$(ip_of controller):8443 --use && echo $token | sandbox login --token-stdin"
	[ "$(at_work 'sandbox node list -q')" = "" ]
}

# node_add ARGUMENT…
node_add() {
	at_work "sandbox node add root@$(ip_of worker) -i /root/key --host-key $(cut -d ' ' -f 2 "$W/fingerprint") --archive /root/sandbox-server-$VERSION-linux-$ARCH.tar.gz $*"
}

@test "a bare worker over SSH, its engine installed by the way" {
	on worker apt-get -q update >/dev/null 2>&1
	run -0 on worker apt-get -q -y install --no-install-recommends openssh-server
	on worker sh -c 'mkdir -p /run/sshd /root/.ssh && chmod 700 /root/.ssh'
	cp "$W/key.pub" "/proc/$(pid_of worker)/root/root/.ssh/authorized_keys"
	on worker sh -c 'setsid /usr/sbin/sshd -D >/var/log/sshd.log 2>&1 </dev/null &'
	on worker ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub >"$W/fingerprint"
	# Without an engine and without leave to install one nothing is done.
	run -2 node_add
	[[ $output == *"--install-docker"* ]]
	[ ! -e "/proc/$(pid_of worker)/root/opt/sandbox" ]
	run node_add --install-docker
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"installing and starting Docker Engine"*"a first sandbox ran there"* ]]
	[ "$(at_work 'sandbox node list --json=name,state')" = '[{"name":"worker","state":"up"}]' ]
	# From here on its key is known, as it is to who connected once with ssh.
	at_work "mkdir -p /root/.ssh && echo $(ip_of worker) $(cut -d ' ' -f 1,2 "/proc/$(pid_of worker)/root/etc/ssh/ssh_host_ed25519_key.pub") >/root/.ssh/known_hosts"
}

@test "a first remote sandbox" {
	"$TOP/installer/base-image" busybox >"$W/base.tar"
	bring workstation "$W/base.tar"
	at_work 'sandbox image import /root/base.tar sandbox-base:latest'
	run -0 at_work 'sandbox run --disk 64m -- sh -c "echo hello from \$(hostname); ls /sys/class/net; df /workspace | tail -n 1"'
	[[ $output == *"hello from sandbox"*lo*/dev/loop* ]]
	run -3 at_work 'sandbox run --disk 64m -- sh -c "exit 3"'
	[ "$(at_work 'echo one two | sandbox run --disk 64m -- wc -w')" = 2 ]
}

# The times that node add prints: "sandbox: WHAT (N.N s)".
@test "again on a prepared host: in seconds, and what the steps cost besides the machine's own work" {
	at_work "sandbox node remove worker --force --purge root@$(ip_of worker) -i /root/key"
	run on worker sh -c 'ls -d /opt/sandbox /etc/sandbox /var/lib/sandbox-worker /run/sandbox-worker 2>/dev/null'
	[ -z "$output" ]
	local started=${EPOCHREALTIME/./} took
	run -0 node_add
	took=$(((${EPOCHREALTIME/./} - started) / 1000))
	echo "node add on a prepared host, to a first sandbox: $took ms; load $(cut -d ' ' -f 1 /proc/loadavg)" >&3
	echo "$output" | sed 's/^/#   /' >&3
	[[ $output == *"a first sandbox ran there"* ]]
	# 15 s on an idle machine; a busy one takes longer, and would have to be three times as slow to fail here.
	[ "$took" -lt 45000 ]
	# It is set up: connecting, four scripts that look, three questions to the controller, a sandbox. Nothing of it waits for a clock.
	started=${EPOCHREALTIME/./}
	run -0 at_work "sandbox node add root@$(ip_of worker) -i /root/key --host-key $(cut -d ' ' -f 2 "$W/fingerprint") --archive /root/sandbox-server-$VERSION-linux-$ARCH.tar.gz --no-canary"
	took=$(((${EPOCHREALTIME/./} - started) / 1000))
	[[ $output == *"set up already"* ]]
	echo "  again, nothing to do (connect, look, ask): $took ms" >&3
}

@test "purged, the worker's machine has nothing of it, and uninstalled the workstation neither" {
	at_work "sandbox node remove worker --force --purge root@$(ip_of worker) -i /root/key"
	run on worker sh -c 'ls -d /opt/sandbox /etc/sandbox /var/lib/sandbox-worker /run/sandbox-worker /etc/cron.d/sandbox-worker /var/log/sandboxd-worker.log 2>/dev/null; docker ps -aq'
	[ -z "$output" ]
	run -0 on workstation sh -c "curl -fsSL http://127.0.0.1:$(cat "$W/www.port")/setup.sh | sh -s -- --uninstall"
	run on workstation find /usr/local -type f
	[ -z "$output" ]
	on controller sh -c 'kill $(pidof sandboxd)'
	run -0 on controller apt-get -q -y purge sandbox sandboxd
	run on controller sh -c 'ls -d /etc/sandbox* /var/lib/sandbox* /run/sandbox* /usr/share/sandbox /usr/libexec/sandbox 2>/dev/null'
	[ -z "$output" ]
}
