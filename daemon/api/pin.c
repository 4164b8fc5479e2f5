/* See pin.h. */
#include "daemon/api/pin.h"

#include "shared/base/mem.h"
#include "shared/json/json.h"

#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <stdio.h>

static X509 *read_certificate(const char *path)
{
	BIO *file = BIO_new_file(path, "r");
	X509 *cert = file ? PEM_read_bio_X509(file, NULL, NULL, NULL) : NULL;
	BIO_free(file);
	return cert;
}

int pin_of_certificate(const char *path, char ret[static PIN_TEXT_MAX], struct error *err)
{
	unsigned char *der = NULL, digest[SHA256_DIGEST_LENGTH];
	X509 *cert = read_certificate(path);
	int n = cert ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der) : -1;
	X509_free(cert);
	if (n <= 0)
		return error_set(err, ERR_INVALID, "there is no certificate to read in %s", path);
	SHA256(der, (size_t)n, digest);
	OPENSSL_free(der);
	auto_free char *text = base64_encode(digest, sizeof(digest));
	snprintf(ret, PIN_TEXT_MAX, "sha256//%s", text);
	return 0;
}
