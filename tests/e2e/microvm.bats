#!/usr/bin/env bats
# The QEMU driver: what it makes of a machine on the host, when it offers its tier, and how its machines end.

load ../lib/helpers.bash
load ../lib/tiers.bash

setup_file() {
	need_engine
	need_microvm
	sbx_start --set "worker.driver=$MICROVM_DIR/driver" --set worker.driver_development=true
	BOX=$(sbx_create --tier microvm)
	export BOX
}

teardown_file() {
	sbx_stop
	microvm_stop
}

vm_of() {
	cut -d' ' -f1 "$MICROVM_DIR/state/boxes/$1/vm"
}

status_line() {
	sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"
}

no_box() {
	[ -z "$(ls -A "$MICROVM_DIR/state/boxes")" ]
}

@test "the driver does what a driver must" {
	run timeout 120 sandboxd driver-check --image "$IMAGE" --docker-socket "$DOCKER_SOCKET" "$MICROVM_DIR/driver"
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"18 ok, 0 failed"* ]]
}

@test "QEMU has no right, no network, no file but its own, and its own control group" {
	local vm
	vm=$(vm_of "$BOX")
	[ "$(status_line "$vm" Uid | cut -f1)" -ge 65536 ]
	[ "$(status_line "$vm" CapEff)" = 0000000000000000 ]
	[ "$(status_line "$vm" CapBnd)" = 0000000000000000 ]
	[ "$(status_line "$vm" NoNewPrivs)" = 1 ]
	[ "$(status_line "$vm" Seccomp)" = 2 ]
	local ns
	for ns in net mnt pid ipc uts; do
		[ "$(readlink "/proc/$vm/ns/$ns")" != "$(readlink "/proc/self/ns/$ns")" ]
	done
	[ "$(nsenter -t "$vm" -n cat /proc/net/dev | grep -c :)" -le 1 ]
	run ! ls "/proc/$vm/root/home"
	run ! ls "/proc/$vm/root/root"
	run ! ls "/proc/$vm/root/var"
	run ! touch "/proc/$vm/root/usr/x"
	run -0 ls "/proc/$vm/root/vm"
	[ "$output" = $'disk\nimage\ninitrd\nkernel' ]
	[ "$(ls "/proc/$vm/fd" | wc -l)" -lt 60 ]
	grep -q "/sandbox/.*/$BOX" "/proc/$vm/cgroup"
	# The keeper is no stronger.
	local keeper
	keeper=$(cut -d' ' -f1 "$MICROVM_DIR/state/boxes/$BOX/keeper")
	[ "$(status_line "$keeper" CapEff)" = 0000000000000000 ]
	[ "$(status_line "$keeper" Uid | cut -f1)" = "$(status_line "$vm" Uid | cut -f1)" ]
}

@test "the guest has no device but what it needs" {
	run -0 timeout 20 sandbox exec "$BOX" -- ls /sys/class/net
	[ "$output" = lo ]
	run ! timeout 20 sandbox exec "$BOX" -- ls /dev/vda
	run -0 timeout 20 sandbox exec "$BOX" -- sh -c 'ls /sys/bus/virtio/devices | wc -l'
	[ "$output" -eq 3 ]
}

@test "an image is exported once, and the engine keeps nothing of it; another machine is another user" {
	local before box
	before=$(stat -c '%i %s' "$MICROVM_DIR"/state/images/*.ext4)
	box=$(sbx_create --tier microvm --writable-root)
	[ "$(stat -c '%i %s' "$MICROVM_DIR"/state/images/*.ext4)" = "$before" ]
	[ -z "$(docker ps -aq --filter label=io.sandbox.export)" ] || until_ok 20 test -z "$(docker ps -aq --filter label=io.sandbox.export)"
	[ "$(status_line "$(vm_of "$box")" Uid | cut -f1)" != "$(status_line "$(vm_of "$BOX")" Uid | cut -f1)" ]
	# Its root can be written, as far as its disk goes, and the image stays what it was.
	run -0 timeout 20 sandbox exec "$box" -- sh -c 'echo new >/etc/new && cat /etc/new && rm /bin/ls && test ! -e /bin/ls'
	[ "$output" = new ]
	run timeout 60 sandbox exec "$box" -- dd if=/dev/zero of=/fill bs=1M count=100
	[ "$status" -ne 0 ]
	[[ "$output" == *"No space left"* ]]
	run ! timeout 20 sandbox exec "$BOX" -- cat /etc/new
	timeout 60 sandbox delete "$box"
	[ ! -e "$MICROVM_DIR/state/boxes/$box" ]
}

@test "a guest whose kernel stops is gone: the command is lost, and the record says so" {
	local box
	box=$(sbx_create --tier microvm)
	run -125 timeout 60 sandbox exec "$box" -- sh -c 'echo c >/proc/sysrq-trigger; sleep 30'
	until_ok 20 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	timeout 60 sandbox delete "$box"
	run -0 timeout 20 sandbox exec "$BOX" -- echo alive
}

@test "a keeper that is killed takes its machine along" {
	local box vm
	box=$(sbx_create --tier microvm)
	vm=$(vm_of "$box")
	kill -KILL "$(cut -d' ' -f1 "$MICROVM_DIR/state/boxes/$box/keeper")"
	until_ok 20 sh -c "sandbox inspect --json $box | jq -e '.state == \"failed\"'"
	until_ok 10 sh -c "! grep -q '^State:.[^Z]' /proc/$vm/status 2>/dev/null"
	timeout 60 sandbox delete "$box"
}

@test "a daemon killed while a machine boots: the create is finished or undone, and nothing is left" {
	timeout 100 sandbox create -q --image "$IMAGE" --disk-mib 64 --memory-mib 128 --name half --tier microvm >/dev/null 2>&1 3>&- &
	local create=$!
	until_ok 40 sh -c "ls $MICROVM_DIR/state/boxes/*/vm | grep -v $BOX"
	sbx_kill KILL
	sbx_daemon
	until_ok 60 sh -c "sandbox inspect --json half | jq -e '.state == \"running\" or .state == \"failed\"'"
	run -0 timeout 20 sandbox exec "$BOX" -- echo alive
	[ "$output" = alive ]
	timeout 60 sandbox delete half
	[ "$(ls "$MICROVM_DIR/state/boxes")" = "$BOX" ]
	wait "$create" || true
}

@test "emulation is offered only when two settings say so; nothing weaker is given" {
	if ! sandbox doctor --json | jq -e '.checks[] | select(.part == "tier microvm") | .status == "warn"' >/dev/null; then
		skip "KVM boots machines here"
	fi
	timeout 60 sandbox delete "$BOX"
	until_ok 10 no_box
	sbx_kill TERM
	sbx_daemon --set "worker.driver=$MICROVM_DIR/driver"
	run -6 timeout 30 sandbox create --image "$IMAGE" --tier microvm
	[[ "$output" == *"worker.driver_development"* ]]
	run -6 timeout 30 sandbox create --image "$IMAGE" --sensitivity restricted --untrusted-repo
	sbx_kill TERM
	microvm_config "allow_emulation = false"
	sbx_daemon --set "worker.driver=$MICROVM_DIR/driver" --set worker.driver_development=true
	run -6 timeout 30 sandbox create --image "$IMAGE" --tier microvm
	[[ "$output" == *"KVM is required"* ]]
	[ -z "$(sandbox list -q)" ]
}

@test "settings that are wrong are named" {
	sbx_kill TERM
	microvm_config "allow_emulatoin = yes"
	sbx_daemon --set "worker.driver=$MICROVM_DIR/driver"
	run -0 sandbox doctor --json
	echo "$output" | jq -e '.checks[] | select(.part == "tier microvm") | .detail | test("unknown key .allow_emulatoin.")'
	sbx_kill TERM
	microvm_config "allow_emulation = true"
	chmod 666 "$MICROVM_DIR/conf"
	sbx_daemon --set "worker.driver=$MICROVM_DIR/driver"
	run -0 sandbox doctor --json
	echo "$output" | jq -e '.checks[] | select(.part == "tier microvm") | .detail | test("writable by nobody else")'
}
