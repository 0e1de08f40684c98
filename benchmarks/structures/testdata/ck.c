// ck.c: ConcurrencyKit.
//	lookup THREADS KEYS ODD     ck_ht: keys 2*i+2 for i below KEYS, asked for +ODD
//	section THREADS             ck_epoch_begin and ck_epoch_end with one load
//	grace idle|busy READERS     ck_epoch_synchronize
//	seqread BYTES | seqwrite BYTES  ck_sequence around a copy of BYTES-8
//	ring THREADS                ck_ring spsc, by one thread or two
#include "harness.h"
#include <ck_epoch.h>
#include <ck_ht.h>
#include <ck_ring.h>
#include <ck_sequence.h>

static void nothing(void) {}

static void *table_malloc(size_t n) { return malloc(n); }

static void table_free(void *p, size_t n, bool defer)
{
	(void)n, (void)defer;
	free(p);
}

static struct ck_malloc memory = {.malloc = table_malloc, .free = table_free};
static ck_ht_t table;
static uint64_t keys, odd;

static void fill(void)
{
	uint64_t i;

	if (!ck_ht_init(&table, CK_HT_MODE_DIRECT, NULL, &memory, 2 * keys, 1))
		die("no table");
	for (i = 0; i < keys; i++) {
		ck_ht_entry_t entry;
		ck_ht_hash_t h;
		void *record = calloc(1, 64);

		if (!record)
			die("no memory");
		ck_ht_hash_direct(&h, &table, 2 * i + 2);
		ck_ht_entry_set_direct(&entry, h, 2 * i + 2, (uintptr_t)record);
		if (!ck_ht_put_spmc(&table, h, &entry))
			die("no room");
	}
}

static uint64_t lookup(int thread, uint64_t ops, uint64_t base)
{
	uint64_t i, found = 0;

	(void)thread;
	for (i = 0; i < ops; i++) {
		uint64_t key = (2 * (mix(base + i) & (keys - 1)) | odd) + 2;
		ck_ht_entry_t entry;
		ck_ht_hash_t h;

		ck_ht_hash_direct(&h, &table, key);
		ck_ht_entry_key_set_direct(&entry, key);
		found += ck_ht_get_spmc(&table, h, &entry);
	}
	return odd ? ops - found : found;
}

static ck_epoch_t epoch;
static ck_epoch_record_t *records[2];
static void *found_never;

static void register_readers(int n)
{
	int i;

	ck_epoch_init(&epoch);
	for (i = 0; i < n; i++) {
		ck_epoch_record_t *r = NULL;

		if (posix_memalign((void **)&r, 128, sizeof(*r)) != 0)
			die("no memory");
		ck_epoch_register(&epoch, r, NULL);
		if (i < 2)
			records[i] = r;
	}
}

static uint64_t section(int thread, uint64_t ops, uint64_t base)
{
	uint64_t i;

	(void)base;
	for (i = 0; i < ops; i++) {
		ck_epoch_begin(records[thread], NULL);
		if (ck_pr_load_ptr(&found_never))
			return 0;
		ck_epoch_end(records[thread], NULL);
	}
	return ops;
}

static uint64_t grace(int thread, uint64_t ops, uint64_t base)
{
	uint64_t i;

	(void)base;
	for (i = 0; i < ops; i++)
		ck_epoch_synchronize(records[thread]);
	return ops;
}

static void busy(void) { section(1, 100, 0); }

static struct {
	ck_sequence_t seq;
	uint64_t payload[31];
} record __attribute__((aligned(128)));
static uint64_t copied[31];

// The size is a constant in each, as it is in generated code.
#define SEQUENCE(bytes)                                                          \
	static uint64_t read_##bytes(int thread, uint64_t ops, uint64_t base)    \
	{                                                                        \
		uint64_t i;                                                      \
		(void)thread, (void)base;                                        \
		for (i = 0; i < ops; i++) {                                      \
			unsigned int version;                                    \
			do {                                                     \
				version = ck_sequence_read_begin(&record.seq);   \
				memcpy(copied, record.payload, (bytes) - 8);     \
			} while (ck_sequence_read_retry(&record.seq, version));  \
			__asm__ __volatile__("" ::: "memory");                   \
		}                                                                \
		return ops;                                                      \
	}                                                                        \
	static uint64_t write_##bytes(int thread, uint64_t ops, uint64_t base)   \
	{                                                                        \
		uint64_t i;                                                      \
		(void)thread, (void)base;                                        \
		for (i = 0; i < ops; i++) {                                      \
			ck_sequence_write_begin(&record.seq);                    \
			memcpy(record.payload, copied, (bytes) - 8);             \
			ck_sequence_write_end(&record.seq);                      \
			__asm__ __volatile__("" ::: "memory");                   \
		}                                                                \
		return ops;                                                      \
	}

SEQUENCE(32)
SEQUENCE(64)
SEQUENCE(128)
SEQUENCE(256)

enum { ring_items = 4096 };
static ck_ring_t ring;
static ck_ring_buffer_t ring_buffer[ring_items];

static uint64_t pairs(int thread, uint64_t ops, uint64_t base)
{
	uint64_t i, done = 0;
	void *item;

	(void)thread, (void)base;
	for (i = 0; i < ops; i++) {
		ck_ring_enqueue_spsc(&ring, ring_buffer, &ring);
		done += ck_ring_dequeue_spsc(&ring, ring_buffer, &item);
	}
	return done;
}

static uint64_t half(int thread, uint64_t ops, uint64_t base)
{
	uint64_t done = 0, tries = 0;
	void *item;

	(void)base;
	while (done < ops && tries < 1 << 28) {
		if (thread == 0 ? ck_ring_enqueue_spsc(&ring, ring_buffer, &ring)
				: ck_ring_dequeue_spsc(&ring, ring_buffer, &item)) {
			done++;
			tries = 0;
		} else {
			tries++;
			ck_pr_stall();
		}
	}
	return done;
}

int main(int argc, char **argv)
{
	struct work w = {.threads = 1, .enter = nothing, .leave = nothing};
	const char *what = argc > 1 ? argv[1] : "";
	int arg = argc > 2 ? atoi(argv[2]) : 0;

	if (argc == 5 && !strcmp(what, "lookup")) {
		w.threads = arg;
		keys = strtoul(argv[3], NULL, 10);
		odd = strtoul(argv[4], NULL, 10);
		fill();
		w.loop = lookup;
	} else if (argc == 3 && !strcmp(what, "section")) {
		w.threads = arg;
		register_readers(2);
		w.loop = section;
	} else if (argc == 4 && !strcmp(what, "grace")) {
		register_readers(atoi(argv[3]));
		w.loop = grace;
		if (!strcmp(argv[2], "busy"))
			w.beside = busy;
	} else if (argc == 3 && !strcmp(what, "seqread")) {
		w.loop = arg == 32 ? read_32 : arg == 64 ? read_64 : arg == 128 ? read_128 : read_256;
	} else if (argc == 3 && !strcmp(what, "seqwrite")) {
		w.loop = arg == 32 ? write_32 : arg == 64 ? write_64 : arg == 128 ? write_128 : write_256;
	} else if (argc == 3 && !strcmp(what, "ring")) {
		w.threads = arg;
		ck_ring_init(&ring, ring_items);
		w.loop = arg == 1 ? pairs : half;
	} else {
		die("ck: unknown arguments");
	}
	return harness_run(&w);
}
