# A machine with a real systemd as its first process, in namespaces and control groups of its own over a Debian root. Its network is
# loopback alone; packages come over this machine's. Needs root, util-linux, iproute2 and control groups that may be made.

# machine_root DIR PACKAGE…: a bare Debian with those packages, none of their services started. Needs debian_root.bash.
machine_root() {
	local root=$1
	shift
	debian_root "$root"
	cp /etc/resolv.conf "$root/etc/resolv.conf"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod 755 "$root/usr/sbin/policy-rc.d"
	mount -t proc proc "$root/proc"
	chroot "$root" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "$@"' - systemd systemd-sysv dbus "$@" >"$root.packages" 2>&1 ||
		{ tail -n 5 "$root.packages"; umount "$root/proc"; return 1; }
	umount "$root/proc"
	rm -f "$root/usr/sbin/policy-rc.d"
	tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
}

# machine_start NAME DIR ROOT: boots; its files for this are in DIR.
machine_start() {
	local d
	MACHINE=$2 MACHINE_GROUP=$1
	export MACHINE MACHINE_GROUP
	mkdir -p "$MACHINE"
	machine_script >"$MACHINE/boot"
	(
		# The groups it sees as its own, below ours.
		for d in $(machine_hierarchies); do
			mkdir "$d/$MACHINE_GROUP" || exit 1
			[ ! -f "$d/cpuset.mems" ] || for f in cpuset.cpus cpuset.mems; do cat "$d/$f" >"$d/$MACHINE_GROUP/$f"; done
			echo 0 >"$d/$MACHINE_GROUP/cgroup.procs" || exit 1
		done
		exec setsid unshare -m -p -f -u -i -n -C --kill-child bash "$MACHINE/boot" "$3"
	) >"$MACHINE/console" 2>&1 </dev/null 3>&- 4>&- &
	echo $! >"$MACHINE/pid"
	until_ok 60 machine_is_up || { tail -n 20 "$MACHINE/console"; return 1; }
}

machine_hierarchies() {
	if [ -f /sys/fs/cgroup/cgroup.procs ]; then echo /sys/fs/cgroup; else ls -d /sys/fs/cgroup/*/; fi
}

machine_is_up() {
	pgrep -P "$(cat "$MACHINE/pid")" >"$MACHINE/first" && [ "$(cat "/proc/$(cat "$MACHINE/first")/comm")" = systemd ] &&
		[ "$(machine systemctl is-system-running 2>/dev/null)" = running ]
}

# The first process of the new namespaces: devices, control groups and the root, then systemd.
machine_script() {
	cat <<'SH'
set -e
root=$1
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 none "$root/dev"
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/net"
for n in null zero full random urandom tty fuse kvm loop-control net/tun; do
	[ ! -c "/dev/$n" ] || mknod -m 666 "$root/dev/$n" c $((0x$(stat -c %t "/dev/$n"))) $((0x$(stat -c %T "/dev/$n")))
done
for ((i = 0; i < 128; i++)); do mknod -m 660 "$root/dev/loop$i" b 7 "$i"; done
mount -t devpts -o newinstance,ptmxmode=666,mode=620 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for d in /dev/shm /run /tmp; do mount -t tmpfs none "$root$d"; done
if [ -f /sys/fs/cgroup/cgroup.procs ]; then
	mount -t cgroup2 none "$root/sys/fs/cgroup"
else
	mount -t tmpfs -o mode=755 none "$root/sys/fs/cgroup"
	while read -r _ at type _; do
		n=${at##*/}
		case $at:$type in
		/sys/fs/cgroup/*:cgroup2) mkdir "$root/sys/fs/cgroup/$n" && mount -t cgroup2 none "$root/sys/fs/cgroup/$n" ;;
		/sys/fs/cgroup/systemd:cgroup) mkdir "$root/sys/fs/cgroup/$n" && mount -t cgroup -o none,name=systemd none "$root/sys/fs/cgroup/$n" ;;
		/sys/fs/cgroup/*:cgroup) mkdir "$root/sys/fs/cgroup/$n" && mount -t cgroup -o "$n" none "$root/sys/fs/cgroup/$n" ;;
		esac
	done </proc/mounts
fi
ip link set lo up
hostname machine
cd "$root"
mkdir -p .old
pivot_root . .old
umount -l /.old
# As systemd does itself where it is not in a container: credentials of services are mounted elsewhere and arrive by propagation.
mount --make-rshared /
exec env -i container=test PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
SH
}

# machine COMMAND…: as root there.
machine() {
	timeout 300 nsenter -t "$(cat "$MACHINE/first")" -m -p -u -i -n -C "$@" </dev/null
}

# machine_online COMMAND…: there, but with this machine's network.
machine_online() {
	timeout 600 nsenter -t "$(cat "$MACHINE/first")" -m -p -u -i -C "$@" </dev/null
}

machine_stop() {
	[ -f "${MACHINE:-/nonexistent}/pid" ] || return 0
	local d
	kill -KILL "$(cat "$MACHINE/pid")" 2>/dev/null || true
	sbx_gone "$(cat "$MACHINE/pid")" || true
	# The kernel ends what was in it, which may take a moment.
	for d in $(machine_hierarchies); do
		until_ok 20 machine_group_gone "$d/$MACHINE_GROUP" || true
	done
}

machine_group_gone() {
	find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
	[ ! -d "$1" ]
}
