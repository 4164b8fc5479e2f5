/* Completion at the console's prompt: see console.h. Readline takes a function without a context, hence the one state here. */
#include "cli/console/console.h"

#include "cli/command.h"
#include "cli/completion.h"
#include "cli/help.h"
#include "shared/base/mem.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <readline/readline.h>

static struct {
	const char *program;
	struct strv words; /* of the attempt at hand */
	size_t at;
} state;

static void add_options(const struct option_row *rows)
{
	for (const struct option_row *o = rows; o && o->name; o++)
		if (help_option_shown(o))
			strv_take(&state.words, xasprintf("--%s", o->name));
}

static void add_verbs(const struct verb *const *table)
{
	for (; *table; table++)
		if (completion_shown(*table))
			strv_add(&state.words, (*table)->name);
}

/* What the program says; silence when it has nothing to say. */
static void ask(const char *what, const char *word)
{
	int fds[2];
	char line[4096];
	if (pipe(fds) != 0)
		return;
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stderr))
			_exit(1);
		execl(state.program, "sandbox", "__complete", what, word, (char *)NULL);
		_exit(1);
	}
	close(fds[1]);
	FILE *f = fdopen(fds[0], "r");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		strv_add(&state.words, line);
	}
	if (f)
		fclose(f);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

static void add_positional(const struct verb *v, size_t n, const char *word)
{
	const struct positional *p = v->positionals;
	for (; p && p->name && n > 0 && !completion_repeats(p); n--)
		p++;
	if (!p || !p->name)
		return;
	if (p->what == WHAT_VERB)
		add_verbs(verbs);
	else if (completion_asked(p->what))
		ask(completion_what(p->what), word);
}

/* Fills the words for the place behind `before`. */
static void collect(const struct strv *before, const char *word)
{
	const struct verb *v = NULL, *const *table = verbs;
	size_t n = 0;
	for (size_t i = 0; i < before->len; i++) {
		if (before->items[i][0] == '-' || (i == 0 && strcmp(before->items[i], "sandbox") == 0))
			continue;
		const struct verb *next = table ? verb_find(table, before->items[i]) : NULL;
		if (next) {
			v = next;
			table = v->subverbs;
		} else {
			n++;
		}
	}
	if (word[0] == '-') {
		add_options(v ? v->options : NULL);
		add_options(cli_globals);
	} else if (table) {
		add_verbs(table);
	} else if (v) {
		add_positional(v, n, word);
	}
}

static char *next_match(const char *text, int again)
{
	state.at = again ? state.at : 0;
	while (state.at < state.words.len) {
		const char *w = state.words.items[state.at++];
		if (strncmp(w, text, strlen(text)) == 0)
			return xstrdup(w);
	}
	return NULL;
}

static char **attempt(const char *text, int start, int end)
{
	auto_strv before = STRV_INIT;
	auto_free char *head = xstrndup(rl_line_buffer, (size_t)start);
	(void)end;
	strv_done(&state.words);
	if (console_split(head, &before, NULL) != 0 || strv_has(&before, "--"))
		return NULL; /* a file name of this side, readline's own way */
	collect(&before, text);
	char **found = rl_completion_matches(text, next_match);
	size_t n = found && found[0] ? strlen(found[0]) : 0;
	rl_completion_append_character = n && strchr("/:", found[0][n - 1]) ? '\0' : ' ';
	rl_attempted_completion_over = state.words.len > 0;
	return found;
}

void console_complete_setup(const char *program)
{
	state.program = program;
	rl_attempted_completion_function = attempt;
	rl_basic_word_break_characters = " \t";
	rl_completer_word_break_characters = " \t";
}
