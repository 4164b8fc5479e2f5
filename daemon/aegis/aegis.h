/*
 * AEGIS: risk, isolation, placement. Pure functions: no I/O, no clock, no allocation beyond the decision's text.
 * docs/aegis.md has the weights and the reasons.
 */
#ifndef SANDBOX_DAEMON_AEGIS_H
#define SANDBOX_DAEMON_AEGIS_H

#include "shared/model/model.h"

enum { RISK_MAX = 100, DECISION_SIGNALS_MAX = 16, DECISION_REASON_MAX = 160 };

struct policy {
	char profile[32];            /* "strict", "trusted-workstation" */
	int microvm_risk_threshold;  /* 55; 101: never */
	int gvisor_risk_threshold;   /* -1: unset */
	int writable_root_weight;    /* 0 */
	double max_host_pressure;    /* 0.92 */
	double reserve_ratio;        /* 0.05 */
};
void policy_strict(struct policy *p);
void policy_trusted_workstation(struct policy *p);

struct risk_signal {
	char name[48];   /* "network restricted" */
	int points;
};

/* Why something is not offered; apart from what every decision reads of every node. */
struct node_reasons {
	char tier[TIER_COUNT][256];
	char network[NETWORK_COUNT][256];
};

/* What the gates look at comes first: a decision walks over thousands of these. */
struct node_view {
	bool stale, draining;
	bool tiers[TIER_COUNT];
	bool network[NETWORK_COUNT];
	bool tunnels;
	bool warm_image;               /* has the asked image */
	uint32_t max_sandboxes, sandboxes;
	double pressure;
	struct resources total, free;
	uint64_t label_bits_absent;    /* ~aegis_label_bits(labels); 0: not computed */
	const struct map *labels;      /* borrowed */
	const struct strv *anti_affinity; /* keys of the sandboxes it runs; borrowed, NULL: none */
	const struct node_reasons *reasons; /* borrowed, NULL: none */
	char region[64];
	struct id id;
	char name[NAME_MAX_LEN + 1];
};

struct node_verdict {
	struct id id;
	char name[NAME_MAX_LEN + 1];
	bool fits;
	int rank;                      /* when it fits */
	char reason[DECISION_REASON_MAX * 2]; /* the gate that failed, or how the rank came about */
};

struct decision {
	int score;
	struct risk_signal signals[DECISION_SIGNALS_MAX];
	size_t n_signals;
	enum tier required;            /* by policy and request */
	char tier_reason[DECISION_REASON_MAX];
	char profile[32];
	int threshold;                 /* microvm_risk_threshold in force */
	bool placed;
	struct id node;
	char node_name[NAME_MAX_LEN + 1];
	struct node_verdict *nodes;    /* n_nodes, owned */
	size_t n_nodes;
	char refusal[1024];            /* when not placed: score, threshold, what failed on each node, what would satisfy it */
	bool may_pass;                 /* when not placed: what some node lacks, it may have later without anybody's change of settings */
};
void decision_init(struct decision *d);
void decision_done(struct decision *d);

/* A bit for each label, several to one bit: what lacks the bit lacks the label, so that most nodes need no look at theirs. */
uint64_t aegis_label_bits(const struct map *labels);
/* Score, signals and required tier. */
void aegis_assess(const struct spec *spec, const struct policy *policy, struct decision *d);
/* Gates and rank over nodes; fills placed/node/nodes/refusal. Call after aegis_assess. Never picks a weaker tier. */
void aegis_place(const struct spec *spec, const struct policy *policy, const struct node_view *nodes, size_t n, struct decision *d);

#endif
