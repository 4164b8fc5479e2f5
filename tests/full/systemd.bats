#!/usr/bin/env bats
# The packages' units under a real systemd: a machine that boots it, with an engine and an sshd, and every unit as it is shipped, its
# system-call filters and capabilities in force. Sandboxes, virtual machines and commands go on over restarts, upgrades and kills.
load ../lib/helpers.bash
load ../lib/debian_root.bash
load ../lib/systemd_machine.bash

setup_file() {
	[ "$(id -u)" -eq 0 ] || skip "not root"
	local p
	for p in debootstrap dpkg-shlibdeps ssh-keygen; do command -v $p >/dev/null || skip "no $p"; done
	mkdir "$(machine_hierarchies | head -n 1)/sbxtry$$" 2>/dev/null || skip "control groups cannot be made here"
	rmdir "$(machine_hierarchies | head -n 1)/sbxtry$$"
	# Not below /tmp where that is in memory: the engine's layers want a disk.
	W=$(mktemp -d /var/tmp/sbx-systemd.XXXXXX)
	VERSION=$(cat "$TOP/VERSION") ARCH=$(dpkg --print-architecture)
	export W VERSION ARCH
	packages_of "$W/packages"
	machine_root "$W/root" docker.io openssh-server procps curl qemu-system-x86
	cp "$W/packages/"*.deb "$W/packages/sandbox-server-$VERSION-linux-$ARCH.tar.gz" "$W/root/root/"
	"$TOP/installer/base-image" busybox >"$W/root/root/base.tar"
	ssh-keygen -q -t ed25519 -N '' -f "$W/root/root/key"
	mkdir -p -m 0700 "$W/root/root/.ssh"
	cp "$W/root/root/key.pub" "$W/root/root/.ssh/authorized_keys"
	machine_start "sbxsystemd$$" "$W/machine" "$W/root"
}

teardown_file() {
	[ -n "${W:-}" ] || return 0
	machine_stop
	grep -o "$W/[^ ]*" /proc/mounts | sort -r | while read -r m; do umount -l "$m"; done
	rm -rf "$W"
}

# property UNIT NAME
property() {
	machine systemctl show --value -p "$2" "$1"
}

# status UNIT FIELD: of its main process.
status() {
	machine sed -n "s/^$2:[[:space:]]*//p" "/proc/$(property "$1" MainPID)/status"
}

serving() {
	machine sandbox list -q
}

@test "the packages start nothing by themselves; the unit serves, narrowed as it says" {
	machine_online sh -c 'DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends /root/*.deb' >"$W/log" 2>&1 || { tail -n 5 "$W/log"; false; }
	local u
	for u in sandboxd sandboxd-controller sandboxd-worker sandboxd-edge; do
		[ "$(property $u ActiveState) $(property $u UnitFileState)" = "inactive disabled" ]
	done
	run -0 machine sandboxd init
	[[ $output == *"systemctl enable --now sandboxd"* ]]
	# Done when the daemon has said that it is ready.
	run -0 machine systemctl enable --now sandboxd
	run -0 machine curl -fsS --max-time 20 --unix-socket /run/sandbox/sandboxd.sock http://x/readyz
	[ "$(status sandboxd Seccomp) $(status sandboxd NoNewPrivs)" = "2 1" ]
	[ "$(status sandboxd CapBnd)" != 000001ffffffffff ]
	machine sandbox image import /root/base.tar sandbox-base:latest
	run -0 machine sandbox run --disk 64m -- sh -c 'echo hello from $(hostname); df /workspace | tail -n 1'
	[[ $output == *"hello from sandbox"*/dev/loop* ]]
	run -0 machine sandbox doctor --json
	[ "$(machine sandbox doctor --json | jq -r '.checks[] | select(.part == "limits") | .status')" = ok ]
}

@test "sandboxes, commands and virtual machines go on over restart, kill and upgrade of the service" {
	local before after
	# A virtual machine, where the tests' kernel is: its processes are the service's own, unlike the engine's.
	if [ -d "$BUILD/kernel" ] && [ "$(uname -m)" = x86_64 ]; then
		cp -r "$BUILD/kernel" "$W/root/usr/libexec/sandbox/kernel"
		machine sh -c 'printf "[qemu]\nallow_emulation = true\n" >/etc/sandbox/driver-qemu.conf
			printf "[worker]\ndriver = /usr/libexec/sandbox/sandbox-driver-qemu\ndriver_development = true\n" >>/etc/sandbox/sandboxd.conf; systemctl restart sandboxd'
		machine sandbox create -q --name vm --tier microvm --disk 64m --memory 128m
		machine sandbox exec vm -- sh -c 'echo machine >/workspace/f'
	fi
	machine sandbox create -q --name kept --disk 64m
	machine sandbox exec kept -- sh -c 'echo here >/workspace/f'
	machine sh -c 'setsid sandbox exec kept -- sh -c "while [ ! -e /workspace/end ]; do sleep 0.1; done; echo whole" >/root/out 2>/root/said </dev/null; echo $? >/root/status' &
	until_ok 60 sh -c "nsenter -t $(cat "$MACHINE/first") -m -p sandbox ps kept </dev/null | grep -q workspace/end"
	before=$(property sandboxd MainPID)
	machine systemctl restart sandboxd
	after=$(property sandboxd MainPID)
	[ "$before" != "$after" ]
	[ "$(machine sandbox exec kept -- cat /workspace/f)" = here ]
	# Killed, it comes back by itself.
	machine kill -KILL "$after"
	until_ok 60 serving
	[ "$(machine sandbox exec kept -- cat /workspace/f)" = here ]
	# Its directories outlive a stop: what is mounted from there into sandboxes stays the same directory.
	before=$(machine stat -c %i /run/sandbox /var/lib/sandbox/sandboxes)
	machine systemctl stop sandboxd
	# What waits for it starts no other in its place.
	run -8 machine sandbox list
	[[ $output == *"systemctl start sandboxd"* ]]
	[ "$before" = "$(machine stat -c %i /run/sandbox /var/lib/sandbox/sandboxes)" ]
	machine systemctl start sandboxd
	# The same version installed again is an upgrade to dpkg: what runs is restarted.
	before=$(property sandboxd MainPID)
	machine dpkg -i "/root/sandboxd_${VERSION}_$ARCH.deb"
	until_ok 60 serving
	[ "$before" != "$(property sandboxd MainPID)" ]
	[ "$(machine sandbox exec kept -- cat /workspace/f)" = here ]
	machine sandbox exec kept -- touch /workspace/end
	wait
	[ "$(machine cat /root/out /root/status)" = $'whole\n0' ]
	machine sandbox delete kept --wait
	if [ -d "$BUILD/kernel" ] && [ "$(uname -m)" = x86_64 ]; then
		[ "$(machine sandbox exec vm -- cat /workspace/f)" = machine ]
		machine sandbox delete vm --wait
	fi
}

@test "reload takes new settings, the journal rotates under it" {
	local pid
	pid=$(property sandboxd MainPID)
	machine sh -c 'printf "[daemon]\nlog_level = debug\n" >>/etc/sandbox/sandboxd.conf; systemctl reload sandboxd'
	until_ok 30 machine sh -c 'journalctl -q -u sandboxd | grep -q "configuration reloaded"'
	machine journalctl --rotate
	machine sandbox run --disk 64m -- true
	[ "$pid" = "$(property sandboxd MainPID)" ]
	machine sh -c 'journalctl --sync; journalctl -q -u sandboxd -n 50 -o cat | grep -q "info worker created"'
}

@test "the edge's unit: a user of its own, no rights, the daemon's configuration, and visitors" {
	machine sh -c 'printf "[edge]\nlisten = 127.0.0.1:8088\ndomain = localhost\nlink = /run/sandbox/edge-link.sock\n" >>/etc/sandbox/sandboxd.conf; systemctl restart sandboxd'
	run -0 machine systemctl enable --now sandboxd-edge
	[ "$(status sandboxd-edge CapBnd) $(status sandboxd-edge Seccomp)" = "0000000000000000 2" ]
	[ "$(machine stat -c %U "/proc/$(property sandboxd-edge MainPID)")" = sandbox-edge ]
	machine sandbox create -q --name site --disk 64m
	machine sandbox exec site -- sh -c 'echo a page >/workspace/index.html; httpd -p 127.0.0.1:8080 -h /workspace'
	machine sandbox tunnel create site --port 8080 --subdomain one
	visit() { [ "$(machine curl -sS --max-time 10 -H 'Host: one.localhost:8088' http://127.0.0.1:8088/)" = "a page" ]; }
	until_ok 30 visit
	machine systemctl restart sandboxd-edge
	until_ok 30 visit
	machine systemctl restart sandboxd
	until_ok 30 visit
	machine sandbox delete site --wait
	machine systemctl disable --now sandboxd-edge sandboxd
}

@test "controller and worker, each by its unit: the one has no rights, the other runs sandboxes for it" {
	run -0 machine sandboxd init --role controller --listen 127.0.0.1:8443 --tls --name 127.0.0.1
	[[ $output == *sandboxd-controller* ]]
	run -0 machine systemctl enable --now sandboxd-controller
	[ "$(status sandboxd-controller CapBnd) $(status sandboxd-controller Seccomp)" = "0000000000000000 2" ]
	[ "$(machine stat -c %U "/proc/$(property sandboxd-controller MainPID)")" = sandboxd ]
	machine sh -c 'umask 077; sandbox node token -q rack >/etc/sandbox/join-token
		printf "[daemon]\nrole = worker\n[worker]\nname = rack\ncontroller = https://127.0.0.1:8443\njoin_token_file = /etc/sandbox/join-token\n" >/etc/sandbox/worker.conf'
	run -0 machine systemctl enable --now sandboxd-worker
	[ "$(status sandboxd-worker Seccomp) $(status sandboxd-worker NoNewPrivs)" = "2 1" ]
	up() { [ "$(machine sandbox node list --json=state 2>/dev/null)" = '[{"state":"up"}]' ]; }
	until_ok 60 up
	machine sandbox create -q --name far --disk 64m
	machine sandbox exec far -- sh -c 'echo far >/workspace/f'
	for u in sandboxd-worker sandboxd-controller; do
		machine systemctl reload $u
		machine systemctl restart $u
		until_ok 60 up
		until_ok 60 machine sandbox exec far -- true
	done
	[ "$(machine sandbox exec far -- cat /workspace/f)" = far ]
	machine sandbox delete far --wait
	machine systemctl disable --now sandboxd-worker
	machine sandbox node remove rack --force
	machine rm -rf /var/lib/sandbox-worker /etc/sandbox/worker.conf
}

# node VERB [ARGUMENT…]: over SSH to this machine itself.
node() {
	machine sandbox node "$1" root@127.0.0.1 -i /root/key --host-key "$(machine ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d ' ' -f 2)" "${@:2}"
}

@test "node add starts a unit of its own; upgraded, given a new credential and removed over the same way" {
	local pid
	run node add --name here --controller https://127.0.0.1:8443 --archive "/root/sandbox-server-$VERSION-linux-$ARCH.tar.gz"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ $output == *"a first sandbox ran there"* ]]
	[ "$(property sandboxd-worker FragmentPath) $(property sandboxd-worker UnitFileState)" = "/etc/systemd/system/sandboxd-worker.service enabled" ]
	[ "$(status sandboxd-worker Seccomp) $(status sandboxd-worker NoNewPrivs)" = "2 1" ]
	machine sandbox create -q --name kept --disk 64m
	pid=$(property sandboxd-worker MainPID)
	run -0 node upgrade --archive "/root/sandbox-server-$VERSION-linux-$ARCH.tar.gz"
	[ "$pid" != "$(property sandboxd-worker MainPID)" ]
	run -0 node rotate
	machine sandbox exec kept -- true
	machine sandbox delete kept --wait
	run -0 machine sandbox node remove here --purge root@127.0.0.1 -i /root/key --host-key "$(machine ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub | cut -d ' ' -f 2)"
	# The package's unit is what is left.
	[ "$(property sandboxd-worker FragmentPath) $(property sandboxd-worker ActiveState)" = "/lib/systemd/system/sandboxd-worker.service inactive" ]
	run machine sh -c 'ls -d /opt/sandbox /etc/sandbox/worker.conf /var/lib/sandbox-worker /run/sandbox-worker 2>/dev/null; docker ps -aq'
	[ -z "$output" ]
}

@test "purged, nothing is left and nothing has failed" {
	rm -rf "$W/root/usr/libexec/sandbox/kernel"
	machine apt-get -q -y purge sandbox sandboxd >"$W/log" 2>&1 || { tail -n 5 "$W/log"; false; }
	run machine sh -c 'ls -d /etc/sandbox* /var/lib/sandbox* /run/sandbox* /usr/share/sandbox /usr/libexec/sandbox 2>/dev/null; getent passwd sandboxd sandbox-edge
		systemctl list-unit-files --no-legend "sandbox*"; systemctl --failed --plain --no-legend'
	[ -z "$output" ]
}
