#!/usr/bin/env bats
# Terminal sessions, on a real terminal: size, raw mode and its undoing on every ending, escape keys, job control.
load ../lib/helpers

setup_file() {
	sbx_start
	ID=$(sbx_create)
	export ID
	PTY=$BUILD/tools/pty
	export PTY
	export TERM=xterm PS1='$ '
}

teardown_file() {
	sbx_stop
}

setup() {
	[ -x "$PTY" ] || skip "tests/tools/pty is not built"
}

# Plays stdin as the script; the output of the tool is in $output.
play() {
	run timeout 60 "$PTY" "$@"
	echo "$output"
	[ "$status" -eq 0 ]
}

# A session with its prompt made known.
in_shell() {
	play 24x80 sandbox shell "$ID" -- sh < <(printf 'raw\nsend PS1="READY"\\r\nexpect READY\nexpect READY\n'; cat)
}

@test "the first command sees the terminal's size, every time" {
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		play 50x200 sandbox shell "$ID" -- stty size <<-'END'
			expect 50 200
			end
		END
	done
}

@test "a new size follows within a second" {
	in_shell <<-'END'
		size 33x99
		pause 300
		send stty size\r
		expect 33 99
		send exit\r
		end
	END
}

@test "a terminal without a size does no harm" {
	play 0x0 sandbox shell "$ID" -- stty size <<-'END'
		expect 24 80
		end
	END
	[[ $output == *"status 0"* ]]
}

@test "only the shell's own end ends the session, with its status" {
	in_shell <<-'END'
		send false\r
		expect READY
		send echo st''ill\r
		expect still
		send exit 7\r
		end
	END
	[[ $output == *"status 7"*"settings same"* ]]
}

@test "bash where there is one, else sh; TERM is passed on" {
	play 24x80 sandbox shell "$ID" <<-'END'
		raw
		send echo name=$0 term=$TERM\r
		expect name=
		expect term=xterm
		send exit\r
		end
	END
	[[ $output == *"status 0"* ]]
}

@test "keys reach the remote terminal: an interrupt there is not one here" {
	in_shell <<-'END'
		send sleep 50\r
		pause 300
		send \x03
		send \r
		expect READY
		send exit 3\r
		end
	END
	[[ $output == *"status 3"* ]]
}

@test "the terminal is as before after the client is told to end" {
	in_shell <<-'END'
		signal 15
		end
	END
	[[ $output == *"status 143"*"settings same"* ]]
	[[ $output == *"sandbox: "* ]]
}

@test "the terminal is as before after the sandbox was deleted" {
	box=$(sbx_create)
	(
		sleep 2
		timeout 60 sandbox delete "$box"
	) >/dev/null 2>&1 3>&- &
	play 24x80 sandbox shell "$box" <<-'END'
		raw
		end 40
	END
	wait
	[[ $output == *"deleted"*"status 125"*"settings same"* ]]
}

@test "the terminal is as before after the lifetime ended" {
	box=$(sbx_create --ttl 5s)
	play 24x80 sandbox shell "$box" <<-'END'
		raw
		end 30
	END
	[[ $output == *"expired"*"status 125"*"settings same"* ]]
}

@test "the remote session ends when the local terminal goes away" {
	in_shell <<-'END'
		send sleep 3011\r
		pause 500
		hangup
		end
	END
	gone() { [ "$(timeout 10 sandbox exec --no-stdin "$ID" -- sh -c 'grep -l "3[0]11" /proc/[0-9]*/cmdline 2>/dev/null | wc -l')" -eq 0 ]; }
	until_ok 10 gone
}

@test "escape keys leave, suspend and pass" {
	in_shell <<-'END'
		send echo a~.b\r
		expect a~.b
		expect READY
		send ~~\r
		expect READY
		send ~.
		end
	END
	[[ $output == *"status 129"*"settings same"* ]]
	play 24x80 sandbox shell --escape none "$ID" -- cat <<-'END'
		raw
		send ~.\r
		expect ~.
		alive 500
		send \x04
		end
	END
	[[ $output == *"status 0"* ]]
}

@test "suspended, the terminal is the shell's; in the foreground again, the session's with the new size" {
	play 24x80 bash --norc -i <<-END
		send PS1=LOC''AL\\r
		expect LOCAL
		send sandbox shell $ID -- sh\\r
		raw
		send PS1=REM''OTE\\r
		expect REMOTE
		send \\r~\\x1a
		expect Stopped
		expect LOCAL
		size 44x111
		send echo here\\r
		expect here
		send fg\\r
		pause 500
		send stty size\\r
		expect 44 111
		send exit\\r
		expect LOCAL
		send exit\\r
		end
	END
}

@test "background jobs are not stopped for touching the terminal" {
	play 24x80 bash --norc -i <<-END
		send PS1=LOC''AL\\r
		expect LOCAL
		send sandbox exec $ID -- echo hi-there & wait; echo rc=\$?\\r
		expect hi-there
		expect rc=0
		send sandbox list -q & wait; echo rc=\$?\\r
		expect rc=0
		send sandbox exec $ID -- sh -c 'read x; echo got-\$x'\\r
		pause 700
		send word\\r
		expect got-word
		expect LOCAL
		send exit\\r
		end
	END
}

@test "exec without a terminal for the command: cooked here, end of input by its key, interrupts forwarded" {
	play 24x80 sandbox exec "$ID" -- sh -c 'cat; echo after-end' <<-'END'
		pause 500
		cooked
		send typed\r
		expect typed
		send \x04
		expect after-end
		end
	END
	[[ $output == *"status 0"* ]]
	play 24x80 sandbox exec "$ID" -- sh -c 'echo begun; sleep 3012' <<-'END'
		expect begun
		send \x03
		end
	END
	[[ $output == *"status 130"* ]]
}

@test "output to a pipe while input is a terminal holds no carriage returns" {
	play 24x80 bash -c "sandbox exec $ID -- echo hi | od -An -c" <<-'END'
		expect h   i  \\n
		end
	END
}

@test "a lost daemon: the session resumes, or the terminal is as before with a reason" {
	(
		sleep 2
		sbx_kill KILL
		sbx_daemon
	) >/dev/null 2>&1 3>&- &
	in_shell <<-'END'
		send for i in 1 2 3 4 5 6 7 8; do echo tick-$i; sleep 1; done; echo all-through\r
		expect tick-1
		expect tick-8
		expect all-through
		send exit 5\r
		end
	END
	wait
	[[ $output == *"status 5"*"settings same"* ]]
	(
		sleep 2
		sbx_kill KILL
	) >/dev/null 2>&1 3>&- &
	in_shell <<-'END'
		end 40
	END
	wait
	[[ $output == *"outcome unknown"*"status 125"*"settings same"* ]]
	sbx_daemon
}
