/* Watches: who wants to know that an operation ended. In memory; a table of chains by operation id and by handle. */
#include "daemon/controller/internal.h"

enum { BUCKETS = 1024 };

struct watch {
	struct watch *next; /* same bucket, or the list being fired */
	uint64_t handle;
	struct id operation;
	operation_watch fn;
	void *ctx;
};

/* A watch that has left the table and whose fn is about to run or running. */
struct firing {
	struct firing *next;
	uint64_t handle;
	pthread_t thread;
};

struct watches {
	pthread_mutex_t lock;
	pthread_cond_t fired;
	struct watch *buckets[BUCKETS];
	struct firing *firing;
	uint64_t last_handle;
};

struct watches *watches_new(void)
{
	struct watches *w = xcalloc(1, sizeof(*w));
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->fired, NULL);
	return w;
}

void watches_free(struct watches *w)
{
	if (!w)
		return;
	for (int i = 0; i < BUCKETS; i++) {
		while (w->buckets[i]) {
			struct watch *next = w->buckets[i]->next;
			free(w->buckets[i]);
			w->buckets[i] = next;
		}
	}
	pthread_cond_destroy(&w->fired);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

static unsigned bucket_of(const struct id *operation)
{
	return (unsigned)(hash_text(HASH_INIT, operation->text) % BUCKETS);
}

/* The bucket stands in the low digits of the handle, so that a handle finds its watch without a second table. */
static struct watch *take_by_handle(struct watches *w, uint64_t handle)
{
	for (struct watch **p = &w->buckets[handle % BUCKETS]; *p; p = &(*p)->next) {
		if ((*p)->handle == handle) {
			struct watch *found = *p;
			*p = found->next;
			found->next = NULL;
			return found;
		}
	}
	return NULL;
}

/* Takes one watch of the operation and marks it as being fired by this thread. */
static struct watch *take_by_operation(struct watches *w, const struct id *operation, struct firing *f)
{
	for (struct watch **p = &w->buckets[bucket_of(operation)]; *p; p = &(*p)->next) {
		if (id_eq(&(*p)->operation, operation)) {
			struct watch *found = *p;
			*p = found->next;
			*f = (struct firing){ .next = w->firing, .handle = found->handle, .thread = pthread_self() };
			w->firing = f;
			return found;
		}
	}
	return NULL;
}

static void end_firing(struct watches *w, struct firing *f)
{
	struct firing **p = &w->firing;
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	pthread_cond_broadcast(&w->fired);
}

void watches_fire(struct watches *w, const struct id *operation)
{
	pthread_mutex_lock(&w->lock);
	for (;;) {
		struct firing f;
		struct watch *one = take_by_operation(w, operation, &f);
		if (!one)
			break;
		pthread_mutex_unlock(&w->lock);
		one->fn(one->ctx, operation);
		free(one);
		pthread_mutex_lock(&w->lock);
		end_firing(w, &f);
	}
	pthread_mutex_unlock(&w->lock);
}

/* Waits until fn has returned, unless it is fn itself that asks. */
static void wait_fired(struct watches *w, uint64_t handle)
{
	struct firing *f = w->firing;
	while (f) {
		if (f->handle != handle) {
			f = f->next;
			continue;
		}
		if (pthread_equal(f->thread, pthread_self()))
			return;
		pthread_cond_wait(&w->fired, &w->lock);
		f = w->firing;
	}
}

bool controller_unwatch(struct controller *c, uint64_t handle)
{
	struct watches *w = c->watches;
	pthread_mutex_lock(&w->lock);
	struct watch *found = take_by_handle(w, handle);
	if (!found)
		wait_fired(w, handle);
	pthread_mutex_unlock(&w->lock);
	free(found);
	return found != NULL;
}

static int state_now(struct controller *c, const struct id *operation, enum op_state *ret, struct error *err)
{
	auto_tx *tx = NULL;
	struct op_head h;
	if (store_begin(c->store, DB_READ, &tx, err) != 0)
		return -1;
	int rc = store_op_head(tx, operation, &h, err);
	if (rc == 0)
		return error_set(err, ERR_NOT_FOUND, "no operation has the id '%s'", operation->text);
	if (rc < 0)
		return -1;
	*ret = h.state;
	return 0;
}

/* The watched operations, for looking without the lock. */
static struct id *watched(struct watches *w, size_t *ret_n)
{
	struct id *list = NULL;
	size_t n = 0;
	pthread_mutex_lock(&w->lock);
	for (int i = 0; i < BUCKETS; i++) {
		for (const struct watch *one = w->buckets[i]; one; one = one->next) {
			if (n % 64 == 0)
				list = xrealloc(list, n + 64, sizeof(*list));
			list[n++] = one->operation;
		}
	}
	pthread_mutex_unlock(&w->lock);
	*ret_n = n;
	return list;
}

void watches_look(struct controller *c)
{
	size_t n = 0;
	auto_free struct id *list = watched(c->watches, &n);
	for (size_t i = 0; i < n; i++) {
		enum op_state state = OP_PENDING;
		struct error err = ERROR_INIT;
		int rc = state_now(c, &list[i], &state, &err);
		if (rc != 0 && err.code != ERR_NOT_FOUND)
			return;
		if (rc != 0 || op_ended(state))
			watches_fire(c->watches, &list[i]);
	}
}

int controller_watch(struct controller *c, const struct id *operation, operation_watch fn, void *ctx, uint64_t *ret_watch, struct error *err)
{
	struct watches *w = c->watches;
	struct watch *one = xcalloc(1, sizeof(*one));
	*one = (struct watch){ .operation = *operation, .fn = fn, .ctx = ctx };
	unsigned bucket = bucket_of(operation);
	pthread_mutex_lock(&w->lock);
	uint64_t handle = ++w->last_handle * BUCKETS + bucket;
	one->handle = handle;
	one->next = w->buckets[bucket];
	w->buckets[bucket] = one;
	pthread_mutex_unlock(&w->lock);
	*ret_watch = handle;
	/* First listen, then look: an end between the two is seen by one of them, and fn runs once. */
	enum op_state state = OP_PENDING;
	if (state_now(c, operation, &state, err) != 0) {
		controller_unwatch(c, handle);
		return -1;
	}
	if (op_ended(state))
		watches_fire(w, operation);
	return 0;
}
