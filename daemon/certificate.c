/* A key and a self-signed certificate: see certificate.h. */
#include "daemon/certificate.h"

#include "shared/base/id.h"
#include "shared/base/mem.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>

enum { HOUR_S = 3600, DAY_S = 24 * HOUR_S, NAME_MAX_BYTES = 253 };

static void free_key(EVP_PKEY **k)
{
	EVP_PKEY_free(*k);
}

static void free_cert(X509 **c)
{
	X509_free(*c);
}

static void free_bio(BIO **b)
{
	BIO_free_all(*b);
}

static int fail(struct error *err)
{
	char text[200];
	ERR_error_string_n(ERR_get_error(), text, sizeof(text));
	return error_set(err, ERR_INTERNAL, "making a certificate: %s", text);
}

static bool is_address(const char *name)
{
	unsigned char raw[16];
	return inet_pton(AF_INET, name, raw) == 1 || inet_pton(AF_INET6, name, raw) == 1;
}

/* Nothing that would end one name and begin another in OpenSSL's notation. */
static int check_name(const char *name, struct error *err)
{
	size_t n = strlen(name);
	if (is_address(name))
		return 0;
	if (n == 0 || n > NAME_MAX_BYTES ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-*") != n)
		return error_set(err, ERR_INVALID, "'%.64s' is no host name and no address", name);
	return 0;
}

static int add_extension(X509 *cert, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	int ok = e && X509_add_ext(cert, e, -1);
	X509_EXTENSION_free(e);
	return ok;
}

static int add_names(X509 *cert, const struct strv *names)
{
	auto_buf alt = BUF_INIT;
	for (size_t i = 0; i < names->len; i++)
		buf_addf(&alt, "%s%s:%s", i ? "," : "", is_address(names->items[i]) ? "IP" : "DNS", names->items[i]);
	X509_NAME *subject = X509_get_subject_name(cert);
	/* The common name is for people, and bounded; clients look at the alternative names. */
	auto_free char *common = xasprintf("%.64s", names->items[0]);
	return X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)common, -1, -1, 0) &&
	       X509_set_issuer_name(cert, subject) && add_extension(cert, NID_subject_alt_name, buf_str(&alt)) &&
	       add_extension(cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	       add_extension(cert, NID_key_usage, "critical,digitalSignature,keyCertSign") && add_extension(cert, NID_ext_key_usage, "serverAuth");
}

static int fill(X509 *cert, EVP_PKEY *key, const struct strv *names, int days)
{
	unsigned char serial[16];
	random_bytes(serial, sizeof(serial));
	serial[0] &= 0x7f;
	BIGNUM *n = BN_bin2bn(serial, sizeof(serial), NULL);
	int ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert)) && X509_set_version(cert, 2) &&
		 X509_gmtime_adj(X509_getm_notBefore(cert), -HOUR_S) && X509_gmtime_adj(X509_getm_notAfter(cert), (long)days * DAY_S) &&
		 X509_set_pubkey(cert, key) && add_names(cert, names) && X509_sign(cert, key, EVP_sha256()) > 0;
	BN_free(n);
	return ok;
}

static void take(BIO *from, struct buf *to)
{
	char *p = NULL;
	long n = BIO_get_mem_data(from, &p);
	buf_add(to, p, (size_t)n);
}

int certificate_make(const struct strv *names, int days, struct buf *ret_key, struct buf *ret_cert, struct error *err)
{
	for (size_t i = 0; i < names->len; i++)
		if (check_name(names->items[i], err) != 0)
			return -1;
	EVP_PKEY *key __attribute__((cleanup(free_key))) = EVP_EC_gen("P-256");
	X509 *cert __attribute__((cleanup(free_cert))) = X509_new();
	BIO *key_text __attribute__((cleanup(free_bio))) = BIO_new(BIO_s_secmem());
	BIO *cert_text __attribute__((cleanup(free_bio))) = BIO_new(BIO_s_mem());
	if (!key || !cert || !key_text || !cert_text || !fill(cert, key, names, days))
		return fail(err);
	if (!PEM_write_bio_PKCS8PrivateKey(key_text, key, NULL, NULL, 0, NULL, NULL) || !PEM_write_bio_X509(cert_text, cert))
		return fail(err);
	take(key_text, ret_key);
	take(cert_text, ret_cert);
	return 0;
}
