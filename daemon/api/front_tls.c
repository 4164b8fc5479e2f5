/* The TLS context of the front: versions, protocol, certificate. */
#include "daemon/api/front_tls.h"

#include "daemon/api/front.h"

#include <errno.h>
#include <openssl/err.h>
#include <string.h>
#include <unistd.h>

const char *front_tls_reason(char *out, size_t n)
{
	unsigned long code = ERR_peek_last_error();
	const char *text = code ? ERR_reason_error_string(code) : NULL;
	snprintf(out, n, "%s", text ? text : "no reason given");
	ERR_clear_error();
	return out;
}

/* Streams are upgraded HTTP/1.1 connections: nothing else is offered. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_n, const unsigned char *in, unsigned n, void *ctx)
{
	static const unsigned char ours[] = "\x08http/1.1";
	(void)ssl;
	(void)ctx;
	unsigned char *chosen;
	if (SSL_select_next_proto(&chosen, out_n, ours, sizeof(ours) - 1, in, n) != OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static int refused(const char *what, const char *path, struct error *err)
{
	char why[256];
	if (access(path, R_OK) != 0)
		return error_set(err, ERR_INVALID, "%s: cannot read %s: %s", what, path, strerror(errno));
	return error_set(err, ERR_INVALID, "%s: %s is not usable: %s", what, path, front_tls_reason(why, sizeof(why)));
}

/* A key with a passphrase cannot be used unattended: OpenSSL would ask on the terminal. */
static int no_passphrase(char *to, int n, int writing, void *ctx)
{
	(void)to;
	(void)n;
	(void)writing;
	(void)ctx;
	return -1;
}

static int load(SSL_CTX *c, const char *cert, const char *key, struct error *err)
{
	char why[256];
	if (SSL_CTX_use_certificate_chain_file(c, cert) != 1)
		return refused("daemon.tls_cert", cert, err);
	if (SSL_CTX_use_PrivateKey_file(c, key, SSL_FILETYPE_PEM) != 1) {
		if (ERR_GET_REASON(ERR_peek_last_error()) != X509_R_KEY_VALUES_MISMATCH)
			return refused("daemon.tls_key", key, err);
	} else if (SSL_CTX_check_private_key(c) == 1) {
		return 0;
	}
	return error_set(err, ERR_INVALID, "daemon.tls_key: %s does not belong to %s: %s", key, cert, front_tls_reason(why, sizeof(why)));
}

int front_context(const char *cert, const char *key, SSL_CTX **ret, struct error *err)
{
	ERR_clear_error();
	SSL_CTX *c = SSL_CTX_new(TLS_server_method());
	if (!c)
		return error_set(err, ERR_INTERNAL, "OpenSSL gives no TLS context");
	SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION);
	/* A close without notice counts as an end: the protocols inside mark their own ends. */
	SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
				       SSL_OP_IGNORE_UNEXPECTED_EOF);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF); /* tickets resume without a table here */
	SSL_CTX_set_alpn_select_cb(c, choose_protocol, NULL);
	SSL_CTX_set_default_passwd_cb(c, no_passphrase);
	if (load(c, cert, key, err) != 0) {
		SSL_CTX_free(c);
		return -1;
	}
	*ret = c;
	return 0;
}

int front_check(const char *cert, const char *key, struct error *err)
{
	SSL_CTX *c;
	if (front_context(cert, key, &c, err) != 0)
		return -1;
	SSL_CTX_free(c);
	return 0;
}
