/* The command-line parser: forms of options, positionals, `--`, hints, and that every verb's table is sound. */
#include "cli/command.h"
#include "cli/create.h"
#include "cli/help.h"
#include "cli/options.h"
#include "shared/base/buf.h"
#include "shared/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct line {
	struct cli cli;
	struct parse_result r;
	struct error err;
	int rc;
	char *argv[64];
};

/* The words after "sandbox", NULL-ended. */
static void parse(struct line *l, ...)
{
	va_list ap;
	int n = 1;
	memset(l, 0, sizeof(*l));
	l->argv[0] = (char *)"sandbox";
	va_start(ap, l);
	while ((l->argv[n] = va_arg(ap, char *)))
		n++;
	va_end(ap);
	l->rc = parse_command_line(n, l->argv, cli_globals, &l->cli, &l->r, &l->err);
}

#define assert_parsed(l) \
	do { \
		if ((l)->rc != 0) \
			print_error("%s\n", (l)->err.message); \
		assert_int_equal((l)->rc, 0); \
	} while (0)

static void assert_refused(struct line *l, const char *part)
{
	assert_int_equal(l->rc, -1);
	assert_int_equal(l->err.code, ERR_INVALID);
	if (!strstr(l->err.message, part))
		fail_msg("the message is '%s'", l->err.message);
	assert_null(strchr(l->err.message, '\n'));
	parse_done(&l->r);
}

/* The options struct of create begins with its create_options. */
static const struct create_options *create_of(const struct line *l)
{
	return l->r.options;
}

static void test_forms_of_a_value(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "create", "--image", "a", "--ttl=90", "-m4g", "-c", "1.5", NULL);
	assert_parsed(&l);
	assert_string_equal(create_of(&l)->image, "a");
	assert_int_equal(create_of(&l)->ttl_ms, 90000);
	assert_int_equal(create_of(&l)->memory_mib, 4096);
	assert_int_equal(create_of(&l)->cpu_millis, 1500);
	parse_done(&l.r);
}

static void test_the_last_of_a_repeated_option_wins(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "create", "--image=a", "--image=", "--image=b", NULL);
	assert_parsed(&l);
	assert_string_equal(create_of(&l)->image, "b");
	parse_done(&l.r);
}

static void test_lists_keep_every_use_in_order(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "create", "-l", "a=1", "--label=b=2", "-lc=3", NULL);
	assert_parsed(&l);
	assert_int_equal(create_of(&l)->labels.len, 3);
	assert_string_equal(create_of(&l)->labels.items[1], "b=2");
	assert_string_equal(create_of(&l)->labels.items[2], "c=3");
	parse_done(&l.r);
}

static void test_the_original_flags_are_accepted(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "create", "--tenant", "platform", "--image", "I", "--cpu-millis", "2000", "--memory-mib", "4096", "--disk-mib", "256",
	      "--pids", "64", "--ttl", "3600", "--network", "restricted", "--untrusted-repo", "--generated-code", "--expose", "3000=web",
	      "--no-wait", "--", "python", "-m", "http.server", NULL);
	assert_parsed(&l);
	assert_string_equal(l.cli.tenant, "platform");
	assert_int_equal(create_of(&l)->cpu_millis, 2000);
	assert_int_equal(create_of(&l)->memory_mib, 4096);
	assert_int_equal(create_of(&l)->disk_mib, 256);
	assert_int_equal(create_of(&l)->pids, 64);
	assert_true(create_of(&l)->untrusted_repo);
	parse_done(&l.r);
}

static void test_global_options_stand_anywhere(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "--json", "doctor", NULL);
	assert_parsed(&l);
	assert_string_equal(l.r.verb->name, "doctor");
	assert_string_equal(l.cli.json, "");
	parse_done(&l.r);
	parse(&l, "-q", "--server", "unix:///s", "list", "--json=id,state", NULL);
	assert_parsed(&l);
	assert_true(l.cli.quiet);
	assert_string_equal(l.cli.server, "unix:///s");
	assert_string_equal(l.cli.json, "id,state");
	parse_done(&l.r);
}

static void test_json_takes_a_value_only_with_an_equals_sign(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "inspect", "--json", "abcd", NULL);
	assert_parsed(&l);
	assert_string_equal(l.cli.json, "");
	assert_string_equal(*(const char **)l.r.options, "abcd");
	parse_done(&l.r);
}

static void test_a_command_after_dashes_is_untouched(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "create", "--image", "i", "--", "--json", "--", "-q", NULL);
	assert_parsed(&l);
	assert_null(l.cli.json);
	assert_false(l.cli.quiet);
	parse_done(&l.r);
}

static struct words *words_of(const struct line *l)
{
	for (const struct positional *p = l->r.verb->positionals; p->name; p++)
		if (p->kind >= POS_COMMAND)
			return (struct words *)(void *)((char *)l->r.options + p->offset);
	fail_msg("%s takes no command", l->r.verb->name);
	return NULL;
}

static void test_the_first_word_after_the_positionals_begins_the_command(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "exec", "web", "ls", "-q", "--json", "--", "x", NULL);
	assert_parsed(&l);
	struct words *w = words_of(&l);
	assert_int_equal(w->len, 5);
	assert_string_equal(w->items[0], "ls");
	assert_string_equal(w->items[3], "--");
	assert_null(w->items[5]);
	assert_false(l.cli.quiet);
	parse_done(&l.r);
}

static void test_options_between_positional_and_dashes_are_the_verbs(void **state)
{
	(void)state;
	struct line l;
	char secret[] = "A=b";
	parse(&l, "exec", "web", "--cwd", "/workspace", "--env", secret, "--json", "--", "printf", "%s", "", "--help", NULL);
	assert_parsed(&l);
	struct words *w = words_of(&l);
	assert_int_equal(w->len, 4);
	assert_string_equal(w->items[2], "");
	assert_string_equal(w->items[3], "--help");
	assert_string_equal(l.cli.json, "");
	assert_false(l.r.help);
	/* Process lists show argv to everybody. */
	assert_string_equal(secret, "A=");
	parse_done(&l.r);
}

static void test_dashes_before_the_sandbox_do_not_hide_that_it_is_missing(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "exec", "--", "ls", NULL);
	assert_refused(&l, "needs SANDBOX");
	parse(&l, "exec", "web", NULL);
	assert_refused(&l, "needs COMMAND");
	parse(&l, "exec", "web", "--", NULL);
	assert_refused(&l, "needs COMMAND");
}

static void test_a_start_command_needs_dashes(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "create", "python", NULL);
	assert_refused(&l, "after --");
}

static void test_negation(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "delete", "a", "--no-wait", NULL);
	assert_parsed(&l);
	parse_done(&l.r);
	parse(&l, "list", "--no-all", NULL);
	assert_refused(&l, "unknown option");
	parse(&l, "delete", "a", "--no-wait=1", NULL);
	assert_refused(&l, "takes no value");
}

static void test_bundled_letters(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "list", "-aq", "-lk=v", NULL);
	assert_parsed(&l);
	assert_true(l.cli.quiet);
	parse_done(&l.r);
	parse(&l, "list", "-az", NULL);
	assert_refused(&l, "'-z'");
}

static void test_refusals_name_the_fault(void **state)
{
	(void)state;
	struct line l;
	static const struct {
		const char *words[6];
		const char *part;
	} rows[] = {
		{ { "creat" }, "did you mean 'create'" },
		{ { "lst" }, "did you mean 'list'" },
		{ { "zzzzzz" }, "is not a command" },
		{ { "image", "pul" }, "did you mean 'image pull'" },
		{ { "create", "--imgae", "x" }, "did you mean --image" },
		{ { "list", "--jsn" }, "did you mean --json" },
		{ { "create", "--zzzzzzzz" }, "unknown option '--zzzzzzzz'" },
		{ { "create", "--image" }, "needs a value" },
		{ { "create", "-m" }, "needs a value" },
		{ { "create", "--network", "some" }, "not one of deny|restricted|open" },
		{ { "create", "--network", "den" }, "not one of" },
		{ { "create", "--network=" }, "not one of" },
		{ { "create", "--ttl", "0" }, "--ttl" },
		{ { "create", "--ttl", "-1" }, "--ttl" },
		{ { "create", "--ttl", "1e9" }, "--ttl" },
		{ { "create", "--ttl", "99999999999999999999" }, "--ttl" },
		{ { "create", "--ttl", " 5m" }, "--ttl" },
		{ { "create", "--ttl", "" }, "--ttl" },
		{ { "create", "--ttl", "30d" }, "--ttl" },
		{ { "create", "--cpus", "0" }, "--cpus" },
		{ { "create", "--cpus", "2." }, "--cpus" },
		{ { "create", "--cpus", "-1" }, "--cpus" },
		{ { "create", "--cpus", "1.2345" }, "--cpus" },
		{ { "create", "--memory", "10" }, "--memory" },
		{ { "create", "--memory", "67108865" }, "whole number of MiB" },
		{ { "create", "--pids", "x" }, "--pids" },
		{ { "create", "--untrusted-repo=yes" }, "takes no value" },
		{ { "inspect" }, "needs SANDBOX" },
		{ { "inspect", "" }, "SANDBOX is empty" },
		{ { "inspect", "a", "b" }, "unexpected argument 'b'" },
		{ { "doctor", "x" }, "takes none" },
		{ { "wait" }, "needs OPERATION" },
		{ { "wait", "x", "--timeout", "0" }, "--timeout" },
		{ { "--nosuch" }, "unknown option '--nosuch'" },
		{ { "list", "--\x1b[2J" }, "\\x1b" },
		{ { "\x1b[2J" }, "\\x1b" },
	};
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *const *w = rows[i].words;
		parse(&l, w[0], w[1], w[2], w[3], w[4], NULL);
		assert_refused(&l, rows[i].part);
	}
}

static void test_help_needs_nothing_else(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "inspect", "--help", NULL);
	assert_parsed(&l);
	assert_true(l.r.help);
	parse_done(&l.r);
	parse(&l, "image", "-h", NULL);
	assert_parsed(&l);
	assert_true(l.r.help);
	assert_string_equal(l.r.verb->name, "image");
	parse_done(&l.r);
	parse(&l, "--version", NULL);
	assert_parsed(&l);
	assert_true(l.r.version);
	parse_done(&l.r);
}

static void test_subverbs_and_aliases(void **state)
{
	(void)state;
	struct line l;
	parse(&l, "image", "--json", "rm", "a", "b", NULL);
	assert_parsed(&l);
	assert_string_equal(l.r.parent->name, "image");
	assert_string_equal(l.r.verb->name, "remove");
	assert_int_equal(((const struct strv *)l.r.options)->len, 2);
	parse_done(&l.r);
	parse(&l, "ls", NULL);
	assert_parsed(&l);
	assert_string_equal(l.r.verb->name, "list");
	parse_done(&l.r);
}

static void test_edit_distance(void **state)
{
	(void)state;
	assert_int_equal(edit_distance("create", "create", 9), 0);
	assert_int_equal(edit_distance("craete", "create", 9), 1);
	assert_int_equal(edit_distance("crate", "create", 9), 1);
	assert_int_equal(edit_distance("", "abc", 9), 3);
	assert_int_equal(edit_distance("abcdef", "uvwxyz", 4), 4);
	char longer[200];
	memset(longer, 'a', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(edit_distance(longer, "a", 3), 3);
}

/* --- the tables themselves ---------------------------------------------------------------------------------------- */

static size_t field_size(const struct option_row *o)
{
	switch (o->kind) {
	case OPT_KIND_FLAG:
		return sizeof(bool);
	case OPT_KIND_LIST:
		return sizeof(struct strv);
	case OPT_KIND_CALL:
		return 1;
	case OPT_KIND_TEXT:
	case OPT_KIND_OPTIONAL:
	case OPT_KIND_INT:
	case OPT_KIND_DURATION:
	case OPT_KIND_SIZE:
	case OPT_KIND_WORD:
		break;
	}
	return sizeof(int64_t);
}

static void check_option(const struct verb *v, const struct option_row *o)
{
	if (!o->name[0])
		return;
	assert_true(o->offset + field_size(o) <= v->size);
	assert_non_null(o->help);
	assert_true(o->kind == OPT_KIND_FLAG || o->arg);
	assert_true(o->kind != OPT_KIND_WORD || o->words);
	assert_true(o->kind != OPT_KIND_CALL || o->parse);
	assert_true(o->help[strlen(o->help) - 1] != '.');
	for (const struct option_row *other = v->options; other != o; other++) {
		assert_string_not_equal(other->name, o->name);
		assert_true(!o->letter || other->letter != o->letter);
	}
	/* A dry run of its own shows more than the requests: a verb may take that option over. */
	bool own_dry_run = strcmp(o->name, "dry-run") == 0;
	for (const struct option_row *g = cli_globals; g->name; g++)
		assert_true((own_dry_run || strcmp(g->name, o->name) != 0) && (!o->letter || g->letter != o->letter));
	assert_true(o->letter != 'h' && o->letter != 'V');
}

static void check_positionals(const struct verb *v)
{
	for (const struct positional *p = v->positionals; p && p->name; p++) {
		bool last = !p[1].name;
		assert_non_null(p->help);
		assert_true(p->offset < v->size);
		assert_true(last || p->kind == POS_ONE || p->kind == POS_OPTIONAL);
	}
}

static void check_verb(const struct verb *v, const struct verb *parent)
{
	assert_true(strlen(v->summary) <= 56);
	assert_true((v->run != NULL) != (v->subverbs != NULL));
	for (const struct option_row *o = v->options; o && o->name; o++)
		check_option(v, o);
	check_positionals(v);
	if (!(v->flags & VERB_HIDDEN)) {
		auto_buf text = BUF_INIT;
		help_verb(v, parent, &text);
		size_t lines = 0;
		for (const char *p = text.data; *p; p += strcspn(p, "\n") + 1, lines++)
			if (strcspn(p, "\n") > 79)
				fail_msg("help of %s has a line of %zu bytes: %.*s", v->name, strcspn(p, "\n"), (int)strcspn(p, "\n"), p);
		if (lines > 24)
			fail_msg("help of %s has %zu lines", v->name, lines);
	}
	for (const struct verb *const *s = v->subverbs; s && *s; s++)
		check_verb(*s, v);
}

static void test_every_table_is_sound(void **state)
{
	(void)state;
	for (const struct verb *const *v = verbs; *v; v++) {
		check_verb(*v, NULL);
		for (const struct verb *const *other = verbs; *other != *v; other++) {
			assert_string_not_equal((*other)->name, (*v)->name);
			assert_true(!(*v)->alias || strcmp((*v)->alias, (*other)->name) != 0);
			assert_true(!(*other)->alias || strcmp((*other)->alias, (*v)->name) != 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms_of_a_value),
		cmocka_unit_test(test_the_last_of_a_repeated_option_wins),
		cmocka_unit_test(test_lists_keep_every_use_in_order),
		cmocka_unit_test(test_the_original_flags_are_accepted),
		cmocka_unit_test(test_global_options_stand_anywhere),
		cmocka_unit_test(test_json_takes_a_value_only_with_an_equals_sign),
		cmocka_unit_test(test_a_command_after_dashes_is_untouched),
		cmocka_unit_test(test_the_first_word_after_the_positionals_begins_the_command),
		cmocka_unit_test(test_options_between_positional_and_dashes_are_the_verbs),
		cmocka_unit_test(test_dashes_before_the_sandbox_do_not_hide_that_it_is_missing),
		cmocka_unit_test(test_a_start_command_needs_dashes),
		cmocka_unit_test(test_negation),
		cmocka_unit_test(test_bundled_letters),
		cmocka_unit_test(test_refusals_name_the_fault),
		cmocka_unit_test(test_help_needs_nothing_else),
		cmocka_unit_test(test_subverbs_and_aliases),
		cmocka_unit_test(test_edit_distance),
		cmocka_unit_test(test_every_table_is_sound),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
