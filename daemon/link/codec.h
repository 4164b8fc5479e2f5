/*
 * What crosses a link, as bytes: JSON for records, fields of the mux for commands and their results. Decoders refuse damage; who
 * has passed them may still lie, so what is decoded is checked against the records where it matters.
 */
#ifndef SANDBOX_DAEMON_LINK_CODEC_H
#define SANDBOX_DAEMON_LINK_CODEC_H

#include "daemon/controller/controller.h"
#include "daemon/link/node_port.h"
#include "daemon/link/upstream.h"
#include "shared/crypto/secret_values.h"
#include "shared/json/json.h"
#include "shared/model/egress.h"

/* What a worker says of itself when its link comes up. */
struct link_greeting {
	struct node_report report;
	char boot_id[64];
	char session[ID_TEXT_LEN + 1]; /* of this process: another one holds nothing of what was leased before */
	char version[64];
	struct strv held; /* operations leased to it that have not ended: creates and deletes in its hands */
};
void link_greeting_done(struct link_greeting *g);
cJSON *greeting_to_json(const struct link_greeting *g);
int greeting_from_json(const cJSON *j, struct link_greeting *ret, struct error *err);

cJSON *report_to_json(const struct node_report *r);
int report_from_json(const cJSON *j, struct node_report *ret, struct error *err);
cJSON *lease_to_json(const struct lease *l);
int lease_from_json(const cJSON *j, struct lease *ret, struct error *err);
cJSON *completion_to_json(const struct completion *c);
/* ret's texts are owned: completion_done. */
int completion_from_json(const cJSON *j, struct completion *ret, struct error *err);
void completion_done(struct completion *c);
/* Lines, one for each sandbox and each unfinished command. */
void desired_to_lines(const struct sandbox_list *s, const struct operation_list *execs, struct buf *out);
int desired_from_lines(const char *p, size_t n, struct sandbox_list *ret_s, struct operation_list *ret_execs, struct error *err);

cJSON *images_to_json(const struct image_list *l);
int images_from_json(const cJSON *j, struct image_list *ret, struct error *err);

/* What a sandbox may reach, and its secrets. The latter as bytes that the caller wipes. ret: owned, *_done. */
cJSON *egress_terms_to_json(const struct egress_terms *t);
int egress_terms_from_json(const cJSON *j, struct egress_terms *ret, struct error *err);
void secret_values_to_bytes(const struct secret_values *v, struct buf *out);
int secret_values_from_bytes(const char *p, size_t n, struct secret_values *ret, struct error *err);

/* How a command ended. ret's texts and result are owned: report_done. */
void exec_report_to_tlv(const struct exec_report *r, struct tlv *out);
int exec_report_from_tlv(const struct tlv *t, struct exec_report *ret, struct error *err);
void exec_report_done(struct exec_report *r);

/* A stream towards a node. The decoded one owns what it points at: node_stream_done. */
void node_stream_to_tlv(const struct node_stream *s, struct tlv *out);
int node_stream_from_tlv(const struct tlv *t, struct node_stream *ret, struct error *err);
void node_stream_done(struct node_stream *s);

/* User and password with one zero byte between them, the user not empty. */
bool login_valid(const void *p, size_t n);
/* What a pull is asked with; *ret_login is empty without a login. */
cJSON *pull_to_json(const struct image_pull *p);
int pull_from_json(const cJSON *j, char **ret_image, struct secret *ret_login, struct error *err);
/* Overwrites the login in it. */
void pull_wipe(cJSON *j);

#endif
