/* Which token goes to which server: see token.h. The store is token_store.c, helpers are token_helper.c. */
#include "cli/token.h"

#include "cli/settings.h"
#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/base/parse.h"
#include "shared/config/server_url.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static const char *environment_token(void)
{
	const char *v = getenv("SANDBOX_TOKEN");
	return v && *v ? v : NULL;
}

/* A key of the first context whose server has this origin. */
static char *context_key(const char *origin, const char *key)
{
	auto_ini *d = NULL;
	struct ini_item item;
	if (settings_read(&d, NULL) != 0)
		return NULL;
	for (size_t at = 0; ini_doc_next(d, &at, &item);) {
		auto_server_url u = { .url = NULL };
		if (!item.key || strcmp(item.key, "url") != 0 || server_url_parse(item.value, &u, NULL) != 0 || strcmp(u.origin, origin) != 0)
			continue;
		const char *value = ini_doc_get(d, item.section, key);
		if (value && *value)
			return xstrdup(value);
	}
	return NULL;
}

char *token_helper_of(const char *origin)
{
	return context_key(origin, "token-helper");
}

int token_check(const struct secret *token, struct error *err)
{
	if (token->n == 0)
		return error_set(err, ERR_INVALID, "the token is empty");
	if (token->n > TOKEN_MAX)
		return error_set(err, ERR_INVALID, "the token is longer than %d bytes", TOKEN_MAX);
	for (size_t i = 0; i < token->n; i++)
		if (token->bytes[i] <= ' ' || token->bytes[i] >= 127)
			return error_set(err, ERR_INVALID, "the token holds blanks, control characters or bytes that are no ASCII");
	return 0;
}

/* In clear text over a network a token is everybody's. */
static int check_clear(const char *origin, struct error *err)
{
	auto_server_url u = { .url = NULL };
	if (server_url_parse(origin, &u, err) != 0)
		return -1;
	if (u.tls || u.loopback)
		return 0;
	auto_free char *allowed = context_key(origin, "allow-http");
	if (allowed && strcmp(allowed, "yes") == 0)
		return 0;
	return error_set(err, ERR_FORBIDDEN, "%s has no TLS, so the token is not sent; use https, or `sandbox config set allow-http yes`", origin);
}

static int find(const char *origin, struct secret *ret, struct error *err)
{
	auto_free char *helper = NULL;
	const char *own = environment_token();
	if (own) {
		secret_set(ret, own, strlen(own));
		return 0;
	}
	helper = token_helper_of(origin);
	return helper ? token_helper_run(helper, "get", origin, NULL, ret, err) : token_store_get(origin, ret, err);
}

int token_for_origin(const char *origin, struct secret *ret, struct error *err)
{
	struct error e = ERROR_INIT;
	auto_secret found = SECRET_INIT;
	if (check_clear(origin, err) != 0)
		return -1;
	if (find(origin, &found, &e) != 0) {
		if (e.code == ERR_NOT_FOUND)
			return error_set(err, ERR_UNAUTHORIZED, "there is no token for %s; `sandbox login` takes one", origin);
		return error_set(err, e.code, "%s", e.message);
	}
	if (token_check(&found, err) != 0)
		return -1;
	secret_done(ret);
	*ret = found;
	found = (struct secret)SECRET_INIT;
	return 0;
}

enum token_source token_source(const char *origin)
{
	auto_free char *helper = NULL;
	if (environment_token())
		return TOKEN_ENVIRONMENT;
	helper = token_helper_of(origin);
	return helper ? TOKEN_HELPER : token_store_source(origin);
}

int token_keep(const char *origin, const struct secret *token, const struct secret *passphrase, struct error *err)
{
	auto_free char *helper = token_helper_of(origin);
	if (helper && passphrase)
		return error_set(err, ERR_INVALID, "%s keeps its token by the helper %s, which has no passphrase", origin, helper);
	if (helper)
		return token_helper_run(helper, "store", origin, token, NULL, err);
	return token_store_put(origin, token, passphrase, err);
}

int token_forget(const char *origin, struct error *err)
{
	auto_free char *helper = token_helper_of(origin);
	return helper ? token_helper_run(helper, "erase", origin, NULL, NULL, err) : token_store_remove(origin, err);
}

static volatile sig_atomic_t asked_to_end;

static void on_end_signal(int sig)
{
	asked_to_end = sig;
}

/* A line from the terminal, its settings before and after untouched, also when a signal ends us: it is raised again after that. */
static ssize_t read_silently(int tty, const struct termios *before, const char *prompt, char *line, size_t max, size_t *ret_n)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	struct sigaction note = { .sa_handler = on_end_signal }, old[ARRAY_LEN(ends)];
	struct termios silent = *before;
	ssize_t got;

	silent.c_lflag &= ~(tcflag_t)(ECHO | ECHONL);
	asked_to_end = 0;
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		sigaction(ends[i], NULL, &old[i]);
		if (old[i].sa_handler != SIG_IGN)
			sigaction(ends[i], &note, NULL);
	}
	/* Silent first: what is typed as soon as the prompt shows is not shown. */
	tcsetattr(tty, TCSAFLUSH, &silent);
	io_write_full(tty, prompt, strlen(prompt));
	*ret_n = 0;
	while ((got = 0, *ret_n < max) && !asked_to_end && (got = read(tty, line + *ret_n, 1)) == 1 && line[*ret_n] != '\n')
		++*ret_n;
	tcsetattr(tty, TCSAFLUSH, before);
	io_write_full(tty, "\n", 1);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++)
		sigaction(ends[i], &old[i], NULL);
	return got;
}

int token_ask(const char *prompt, struct secret *ret, struct error *err)
{
	struct termios before;
	char line[TOKEN_MAX + 2];
	size_t n;
	auto_close int tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (tty < 0 || tcgetattr(tty, &before) != 0)
		return error_set(err, ERR_INVALID, "there is no terminal to ask on");
	ssize_t got = read_silently(tty, &before, prompt, line, sizeof(line), &n);
	if (asked_to_end) {
		explicit_bzero(line, sizeof(line));
		raise(asked_to_end);
		return error_set(err, ERR_INVALID, "interrupted");
	}
	secret_set(ret, line, n);
	explicit_bzero(line, sizeof(line));
	return got < 0 ? error_errno(err, "reading from the terminal") : 0;
}
