// urcu.c: liburcu. Built once for each flavour.
//	lookup THREADS KEYS ODD     rculfhash: even keys below 2*KEYS, asked for +ODD
//	section THREADS             a read-side section with one load
//	grace idle|busy READERS     synchronize_rcu
#include "harness.h"
#include <unistd.h>
#define _LGPL_SOURCE
#define URCU_INLINE_SMALL_FUNCTIONS
#ifdef QSBR
#include <urcu-qsbr.h>
#else
#include <urcu.h>
#endif
#include <urcu/rculfhash.h>

struct record {
	struct cds_lfht_node node;
	uint64_t key;
	char rest[64];
};

static struct cds_lfht *table;
static uint64_t keys, odd;
static void *found_never;

static void enter(void) { rcu_register_thread(); }
static void leave(void) { rcu_unregister_thread(); }

static int match(struct cds_lfht_node *node, const void *key)
{
	return caa_container_of(node, struct record, node)->key == *(const uint64_t *)key;
}

// The least bits of the hash choose the bucket.
static unsigned long hash(uint64_t key) { return mix(key) >> 20; }

static void fill(void)
{
	uint64_t i;

	table = cds_lfht_new(keys, keys, 0, 0, NULL);
	if (!table)
		die("no table");
	rcu_register_thread();
	for (i = 0; i < keys; i++) {
		struct record *r = calloc(1, sizeof(*r));
		if (!r)
			die("no memory");
		cds_lfht_node_init(&r->node);
		r->key = 2 * i;
		rcu_read_lock();
		cds_lfht_add(table, hash(r->key), &r->node);
		rcu_read_unlock();
	}
	rcu_unregister_thread();
}

static uint64_t lookup(int thread, uint64_t ops, uint64_t base)
{
	uint64_t i, found = 0;

	(void)thread;
	for (i = 0; i < ops; i++) {
		uint64_t key = 2 * (mix(base + i) & (keys - 1)) | odd;
		struct cds_lfht_iter iter;

		rcu_read_lock();
		cds_lfht_lookup(table, hash(key), match, &key, &iter);
		found += iter.node != NULL;
		rcu_read_unlock();
	}
	return odd ? ops - found : found;
}

static uint64_t section(int thread, uint64_t ops, uint64_t base)
{
	uint64_t i;

	(void)thread, (void)base;
	for (i = 0; i < ops; i++) {
		rcu_read_lock();
		if (CMM_LOAD_SHARED(found_never))
			return 0;
		rcu_read_unlock();
#ifdef QSBR
		rcu_quiescent_state();
#endif
	}
	return ops;
}

static uint64_t grace(int thread, uint64_t ops, uint64_t base)
{
	uint64_t i;

	(void)thread, (void)base;
	for (i = 0; i < ops; i++)
		synchronize_rcu();
	return ops;
}

// Threads of grace are readers only while they are busy: a thread of QSBR that
// waits for its next burst online would hold up every grace period.
static void enter_grace(void)
{
	rcu_register_thread();
#ifdef QSBR
	rcu_thread_offline();
#endif
}

static void busy(void)
{
#ifdef QSBR
	rcu_thread_online();
#endif
	section(1, 100, 0);
#ifdef QSBR
	rcu_thread_offline();
#endif
}

static void *idle(void *arg)
{
	enter_grace();
	pthread_barrier_wait(arg);
	for (;;)
		pause(); // to the end of the process
	return NULL;
}

static void idle_readers(int n)
{
	static pthread_barrier_t here;
	pthread_t thread;
	int i;

	pthread_barrier_init(&here, NULL, n + 1);
	for (i = 0; i < n; i++)
		if (pthread_create(&thread, NULL, idle, &here) != 0)
			die("no thread");
	pthread_barrier_wait(&here);
}

int main(int argc, char **argv)
{
	struct work w = {.threads = 1, .enter = enter, .leave = leave};

	if (argc == 5 && !strcmp(argv[1], "lookup")) {
		w.threads = atoi(argv[2]);
		keys = strtoul(argv[3], NULL, 10);
		odd = strtoul(argv[4], NULL, 10);
		fill();
		w.loop = lookup;
	} else if (argc == 3 && !strcmp(argv[1], "section")) {
		w.threads = atoi(argv[2]);
		w.loop = section;
	} else if (argc == 4 && !strcmp(argv[1], "grace")) {
		w.enter = enter_grace;
		w.loop = grace;
		if (!strcmp(argv[2], "busy"))
			w.beside = busy;
		idle_readers(atoi(argv[3]) - 2);
	} else {
		die("urcu: unknown arguments");
	}
	return harness_run(&w);
}
