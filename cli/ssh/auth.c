/* Who we are: keys of the agent and of files (with a passphrase where they need one), then what a person types. */
#include "cli/ssh/internal.h"

#include "shared/base/io.h"
#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <string.h>
#include <unistd.h>

enum { KEY_FILE_MAX = 64 * 1024, PASSPHRASE_TRIES = 3 };

struct attempt {
	struct ssh *s;
	const char *methods;
	struct buf tried; /* what did not work, for the error */
};

static void note(struct attempt *a, const char *what)
{
	buf_addf(&a->tried, "%s%s", a->tried.len ? ", " : "", what);
}

/* 1 authenticated, 0 not, -1 err. The same for all that follow. */
static int outcome(struct attempt *a, int rc, struct error *err)
{
	if (rc == 0)
		return 1;
	if (rc == LIBSSH2_ERROR_AUTHENTICATION_FAILED || rc == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED || rc == LIBSSH2_ERROR_PUBLICKEY_UNRECOGNIZED ||
	    rc == LIBSSH2_ERROR_FILE || rc == LIBSSH2_ERROR_METHOD_NOT_SUPPORTED || rc == LIBSSH2_ERROR_PUBLICKEY_PROTOCOL ||
	    rc == LIBSSH2_ERROR_KEYFILE_AUTH_FAILED)
		return 0;
	return ssh_fail(a->s, "authenticating", err);
}

static int with_agent_key(struct attempt *a, LIBSSH2_AGENT *agent, struct libssh2_agent_publickey *key, struct error *err)
{
	int rc;
	SSH_RETRY(a->s, rc, libssh2_agent_userauth(agent, a->s->user, key), "authenticating", err);
	return outcome(a, rc, err);
}

static int each_agent_key(struct attempt *a, LIBSSH2_AGENT *agent, struct error *err)
{
	struct libssh2_agent_publickey *key = NULL, *last = NULL;
	int got = 0;
	if (libssh2_agent_connect(agent) != 0 || libssh2_agent_list_identities(agent) != 0)
		return 0;
	while (got == 0 && libssh2_agent_get_identity(agent, &key, last) == 0) {
		got = with_agent_key(a, agent, key, err);
		last = key;
	}
	if (got == 0 && last)
		note(a, "keys of the agent");
	libssh2_agent_disconnect(agent);
	return got;
}

static int by_agent(struct attempt *a, struct error *err)
{
	const char *socket = getenv("SSH_AUTH_SOCK");
	LIBSSH2_AGENT *agent = socket && *socket ? libssh2_agent_init(a->s->session) : NULL;
	if (!agent)
		return 0;
	int got = each_agent_key(a, agent, err);
	libssh2_agent_free(agent);
	return got;
}

/* PEM files say it; OpenSSH's own format begins with a magic word and the name of the cipher. */
static bool is_encrypted(const char *text)
{
	static const char head[] = "-----BEGIN OPENSSH PRIVATE KEY-----", magic[] = "openssh-key-v1";
	const char *p = strstr(text, head);
	auto_buf raw = BUF_INIT;
	char piece[65];
	if (!p)
		return strstr(text, "ENCRYPTED") != NULL;
	p += strlen(head);
	p += strspn(p, "\r\n");
	snprintf(piece, sizeof(piece), "%s", p);
	if (strlen(piece) < 64 || base64_decode(piece, &raw, NULL) != 0 || raw.len < 23)
		return false;
	return memcmp(raw.data, magic, sizeof(magic)) == 0 && memcmp(raw.data + 19, "none", 4) != 0;
}

static int with_file(struct attempt *a, const char *path, const char *passphrase, struct error *err)
{
	int rc;
	SSH_RETRY(a->s, rc, libssh2_userauth_publickey_fromfile_ex(a->s->session, a->s->user, (unsigned)strlen(a->s->user), NULL, path, passphrase),
		  "authenticating", err);
	return outcome(a, rc, err);
}

static int with_passphrase(struct attempt *a, const char *path, struct error *err)
{
	auto_free char *prompt = xasprintf("Passphrase of %s: ", path);
	const struct ssh_ask *ask = &a->s->o->ask;
	for (int i = 0; i < PASSPHRASE_TRIES; i++) {
		auto_secret phrase = SECRET_INIT;
		if (!ask->secret || ask->secret(ask->ctx, prompt, &phrase, NULL) != 0)
			return 0;
		int got = with_file(a, path, (const char *)phrase.bytes, err);
		if (got != 0)
			return got;
	}
	return 0;
}

static int by_file(struct attempt *a, const char *path, struct error *err)
{
	auto_buf text = BUF_INIT;
	int got;
	if (io_read_file(path, KEY_FILE_MAX, &text, NULL) != 0)
		return 0;
	bool encrypted = is_encrypted(buf_str(&text));
	explicit_bzero(text.data, text.len);
	got = encrypted ? with_passphrase(a, path, err) : with_file(a, path, NULL, err);
	if (got == 0)
		note(a, path);
	return got;
}

static int by_files(struct attempt *a, struct error *err)
{
	static const char *const usual[] = { "id_ed25519", "id_ecdsa", "id_rsa" };
	const char *home = getenv("HOME");
	int got = 0;
	for (size_t i = 0; home && i < ARRAY_LEN(usual) && got == 0; i++) {
		auto_free char *path = xasprintf("%s/.ssh/%s", home, usual[i]);
		got = by_file(a, path, err);
	}
	return got;
}

static int by_keys(struct attempt *a, struct error *err)
{
	const char *named = a->s->o->identity;
	if (!strstr(a->methods, "publickey"))
		return 0;
	if (named && access(named, R_OK) != 0)
		return error_set(err, ERR_NOT_FOUND, "the key %s cannot be read", named);
	int got = named ? by_file(a, named, err) : by_agent(a, err);
	if (got == 0)
		got = named ? by_agent(a, err) : by_files(a, err);
	return got;
}

/* keyboard-interactive asks as many questions as the server likes; the password answers those that hide what is typed. */
static void answer(const char *name, int name_n, const char *text, int text_n, int n, const LIBSSH2_USERAUTH_KBDINT_PROMPT *prompts,
		   LIBSSH2_USERAUTH_KBDINT_RESPONSE *responses, void **abstract)
{
	struct ssh *s = *abstract;
	const struct secret *password = s->typing;
	(void)name;
	(void)name_n;
	(void)text;
	(void)text_n;
	for (int i = 0; i < n; i++)
		if (!prompts[i].echo && password) {
			responses[i].text = xstrndup((const char *)password->bytes, password->n);
			responses[i].length = (unsigned)password->n;
		}
}

static int with_password(struct attempt *a, const struct secret *password, struct error *err)
{
	struct ssh *s = a->s;
	int rc = LIBSSH2_ERROR_METHOD_NOT_SUPPORTED;
	unsigned n = (unsigned)strlen(s->user);
	if (strstr(a->methods, "password"))
		SSH_RETRY(s, rc, libssh2_userauth_password_ex(s->session, s->user, n, (const char *)password->bytes, (unsigned)password->n, NULL),
			  "authenticating", err);
	if (rc != 0 && strstr(a->methods, "keyboard-interactive")) {
		s->typing = password;
		SSH_RETRY(s, rc, libssh2_userauth_keyboard_interactive_ex(s->session, s->user, n, answer), "authenticating", err);
		s->typing = NULL;
	}
	return outcome(a, rc, err);
}

static int by_password(struct attempt *a, struct error *err)
{
	const struct ssh_ask *ask = &a->s->o->ask;
	auto_free char *prompt = xasprintf("Password of %s at %s: ", a->s->user, a->s->host);
	auto_secret password = SECRET_INIT;
	if (!strstr(a->methods, "password") && !strstr(a->methods, "keyboard-interactive"))
		return 0;
	if (!ask->secret || ask->secret(ask->ctx, prompt, &password, NULL) != 0)
		return 0;
	int got = with_password(a, &password, err);
	if (got == 0)
		note(a, "the password");
	return got;
}

static int refused(struct attempt *a, struct error *err)
{
	const char *tried = a->tried.len ? buf_str(&a->tried) : "nothing, for want of an agent, a key or a password";
	return error_set(err, ERR_UNAUTHORIZED, "%s does not let %s in (it takes %s; tried: %s)%s", a->s->host, a->s->user, a->methods, tried,
			 strstr(tried, "rsa") ? "; today's servers refuse the kind of RSA signatures this program makes: use an Ed25519 key" : "");
}

int ssh_authenticate(struct ssh *s, struct error *err)
{
	struct attempt a = { .s = s, .tried = BUF_INIT };
	const char *methods;
	while (!(methods = libssh2_userauth_list(s->session, s->user, (unsigned)strlen(s->user)))) {
		if (libssh2_userauth_authenticated(s->session))
			return 0;
		if (libssh2_session_last_errno(s->session) != LIBSSH2_ERROR_EAGAIN)
			return ssh_fail(s, "authenticating", err);
		if (ssh_wait(s, "authenticating", err) != 0)
			return -1;
	}
	/* libssh2 overwrites its text with the next answer. */
	auto_free char *kept = xstrdup(methods);
	a.methods = kept;
	int got = by_keys(&a, err);
	if (got == 0)
		got = by_password(&a, err);
	if (got == 0)
		got = refused(&a, err);
	buf_done(&a.tried);
	return got > 0 ? 0 : -1;
}
