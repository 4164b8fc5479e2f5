/* What runs on a worker's machine. Plain sh, started as host.h says: `set -e`, a usual PATH, no input unless said. */
#include "cli/enroll/enroll.h"

/* One fact a line, key=value. As whoever logged in. */
const char script_probe[] =
	"echo kernel=$(uname -s)\n"
	"echo machine=$(uname -m)\n"
	"echo name=$(uname -n)\n"
	"echo now=$(date +%s)\n"
	"echo bits=$(getconf LONG_BIT 2>/dev/null || echo 64)\n"
	"libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc=$(ldd --version 2>&1 | head -n 1)\n"
	"echo libc=$libc\n"
	"[ ! -d /run/systemd/system ] || echo systemd=1\n"
	"[ ! -e /dev/kvm ] || echo kvm=1\n"
	"[ ! -S /var/run/docker.sock ] || echo docker=1\n"
	"! command -v dockerd >/dev/null 2>&1 || echo docker_program=1\n"
	"! command -v runsc >/dev/null 2>&1 || echo runsc=1\n"
	"! command -v apt-get >/dev/null 2>&1 || echo apt=1\n"
	"[ ! -r /etc/os-release ] || echo os=$(. /etc/os-release && echo $ID $VERSION_ID)\n"
	"d=/var/lib; [ -d $d ] || d=/\n"
	"echo disk_kib=$(df -Pk $d | sed -n '2s/  */ /gp' | cut -d ' ' -f 4)\n"
	"command -v sha256sum >/dev/null 2>&1 || echo missing=sha256sum\n"
	"command -v tar >/dev/null 2>&1 || echo missing=tar\n"
	"! pgrep -x unattended-upgr >/dev/null 2>&1 || echo upgrading=1\n";

static const char unit[] =
	"[Unit]\n"
	"Description=Sandbox worker\n"
	"Wants=network-online.target\n"
	"After=network-online.target docker.service\n"
	"\n"
	"[Service]\n"
	"Type=notify\n"
	"ExecStart=" WORKER_ROOT "/current/bin/sandboxd --config " WORKER_CONFIG "\n"
	"ExecReload=/bin/kill -HUP $MAINPID\n"
	"Restart=always\n"
	"RestartSec=2s\n"
	"TimeoutStartSec=3min\n"
	"TimeoutStopSec=30s\n"
	"KillMode=process\n"
	"UMask=0077\n"
	"LimitNOFILE=65536\n"
	"TasksMax=infinity\n"
	"Delegate=yes\n"
	"NoNewPrivileges=yes\n"
	"CapabilityBoundingSet=CAP_SYS_ADMIN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_CHOWN CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETUID CAP_SETGID CAP_SYS_PTRACE "
	"CAP_SYS_RESOURCE CAP_NET_ADMIN CAP_MKNOD\n"
	"LockPersonality=yes\n"
	"RestrictRealtime=yes\n"
	"SystemCallArchitectures=native\n"
	"SystemCallFilter=~@clock @cpu-emulation @debug @keyring @module @obsolete @reboot @swap\n"
	"SystemCallErrorNumber=EPERM\n"
	"\n"
	"[Install]\n"
	"WantedBy=multi-user.target\n";

/* Where nothing supervises: a loop of its own session, which ends its child when it is ended itself. */
static const char supervisor[] =
	"#!/bin/sh\n"
	"# Keeps the sandbox worker running where no service manager does; TERM ends both.\n"
	"child=\n"
	"trap '[ -z \"$child\" ] || kill \"$child\" 2>/dev/null; exit 0' TERM INT HUP\n"
	"while :; do\n"
	"\t" WORKER_ROOT "/current/bin/sandboxd --config " WORKER_CONFIG " >>" WORKER_LOG " 2>&1 </dev/null &\n"
	"\tchild=$!\n"
	"\twait $child\n"
	"\tchild=\n"
	"\tsleep 2\n"
	"done\n";

void script_unit(struct buf *out)
{
	buf_adds(out, unit);
}

/* The end of what ran before is waited for: two workers cannot share a state directory. */
const char script_stop[] =
	"if [ -d /run/systemd/system ] && [ -f " WORKER_UNIT " ]; then\n"
	"\tsystemctl stop sandboxd-worker.service\n"
	"fi\n"
	"if [ -f " WORKER_ROOT "/supervisor.pid ]; then\n"
	"\tpid=$(cat " WORKER_ROOT "/supervisor.pid)\n"
	"\tif tr '\\0' ' ' </proc/$pid/cmdline 2>/dev/null | grep -q " WORKER_ROOT "/supervise; then kill $pid; fi\n"
	"\trm -f " WORKER_ROOT "/supervisor.pid\n"
	"fi\n"
	"running() {\n"
	"\tfor p in /proc/[0-9]*; do\n"
	"\t\tcase $(readlink $p/exe 2>/dev/null) in " WORKER_ROOT "/*/bin/sandboxd*) return 0 ;; esac\n"
	"\tdone\n"
	"\treturn 1\n"
	"}\n"
	"i=0\n"
	"while [ $i -lt 150 ] && running; do i=$((i + 1)); sleep 0.2; done\n";

void script_start(bool systemd, struct buf *out)
{
	if (systemd) {
		buf_adds(out, "cat >" WORKER_UNIT ".new <<'UNIT'\n");
		script_unit(out);
		buf_adds(out, "UNIT\nmv -f " WORKER_UNIT ".new " WORKER_UNIT "\nsystemctl daemon-reload\n"
			      "systemctl enable --quiet sandboxd-worker.service\n"
			      "systemctl restart --no-block sandboxd-worker.service\n");
		return;
	}
	buf_adds(out, "cat >" WORKER_ROOT "/supervise.new <<'LOOP'\n");
	buf_adds(out, supervisor);
	/* At the machine's start, where there is a cron that knows how. */
	buf_adds(out, "LOOP\nchmod 755 " WORKER_ROOT "/supervise.new\nmv -f " WORKER_ROOT "/supervise.new " WORKER_ROOT "/supervise\n"
		      "[ ! -d /etc/cron.d ] || echo '@reboot root " WORKER_ROOT "/supervise >/dev/null 2>&1 </dev/null &' >/etc/cron.d/sandbox-worker\n"
		      "setsid " WORKER_ROOT "/supervise >/dev/null 2>&1 </dev/null &\n"
		      "echo $! >" WORKER_ROOT "/supervisor.pid\n");
}

/* Sandboxes of this node go with it; what else is in the engine stays. */
const char script_purge[] =
	"node=$(cat " WORKER_STATE "/node-id 2>/dev/null) || node=\n"
	"if [ -n \"$node\" ] && command -v docker >/dev/null 2>&1; then\n"
	"\tfor c in $(docker ps -aq --filter label=io.sandbox.node=$node 2>/dev/null); do docker rm -f $c >/dev/null; done\n"
	"fi\n"
	/* Virtual machines end with the process that keeps each; its file has its number and when it was born. Not those of a daemon beside. */
	"if grep -q '^driver = ' " WORKER_CONFIG " 2>/dev/null && ! grep -q '^driver *=' /etc/sandbox/sandboxd.conf 2>/dev/null; then\n"
	"\tfor f in " WORKER_MACHINES "/boxes/*/keeper; do\n"
	"\t\t[ -f $f ] && read -r pid born <$f || continue\n"
	"\t\tif [ \"$(cut -d ' ' -f 22 /proc/$pid/stat 2>/dev/null)\" = \"$born\" ]; then kill -KILL $pid; fi\n"
	"\tdone\n"
	"\trm -rf " WORKER_MACHINES "\n"
	"fi\n"
	"if [ -d /run/systemd/system ] && [ -f " WORKER_UNIT " ]; then\n"
	"\tsystemctl disable --quiet sandboxd-worker.service\n"
	"\trm -f " WORKER_UNIT "\n"
	"\tsystemctl daemon-reload\n"
	"fi\n"
	"rm -f " WORKER_UNIT " /etc/cron.d/sandbox-worker\n"
	"sed -n 's|^[^ ]* \\(" WORKER_STATE "/[^ ]*\\) .*|\\1|p' /proc/mounts | sort -r | while read -r m; do umount -l \"$m\"; done\n"
	"rm -rf " WORKER_ROOT " " WORKER_STATE " " WORKER_RUN " " WORKER_LOG " " WORKER_CONFIG " " WORKER_TOKEN "\n"
	"rmdir /etc/sandbox 2>/dev/null || :\n";
