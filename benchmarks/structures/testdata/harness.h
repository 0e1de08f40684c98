// harness.h: what the C programs share. A program is started with what to do and
// reads from standard input how many operations each thread shall do, a line for
// each burst. It answers with the mean time of the threads in ns, and how many
// operations gave what they should. It ends at the end of its input.
#ifndef HARNESS_H
#define HARNESS_H
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// work is one contender. Threads call enter first and leave last. beside, if there
// is one, runs on the other processor all the while.
struct work {
	int threads;
	void (*enter)(void);
	void (*leave)(void);
	uint64_t (*loop)(int thread, uint64_t ops, uint64_t base);
	void (*beside)(void);
};

static uint64_t mix(uint64_t i)
{
	i *= 0x9e3779b97f4a7c15ULL;
	return i ^ i >> 32;
}

static void die(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static void pin(int cpu)
{
	cpu_set_t all, one;
	int i, n = -1;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return;
	cpu %= CPU_COUNT(&all);
	for (i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all) && ++n == cpu)
			break;
	CPU_ZERO(&one);
	CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct {
	struct work *work;
	pthread_barrier_t begin, end;
	uint64_t ops, base;
	uint64_t ns[2], good[2];
	atomic_int quit, stop;
} harness;

static void *harness_thread(void *arg)
{
	int thread = (int)(intptr_t)arg;
	struct work *w = harness.work;

	pin(thread);
	w->enter();
	for (;;) {
		pthread_barrier_wait(&harness.begin);
		if (harness.quit)
			break;
		if (thread < w->threads) {
			uint64_t begin = now_ns();
			harness.good[thread] = w->loop(thread, harness.ops,
				harness.base + ((uint64_t)thread << 40));
			harness.ns[thread] = now_ns() - begin;
			harness.stop = 1;
		} else {
			while (!harness.stop)
				w->beside();
		}
		pthread_barrier_wait(&harness.end);
	}
	w->leave();
	return NULL;
}

static int harness_run(struct work *w)
{
	int i, all = w->threads + (w->beside != NULL);
	pthread_t threads[2];

	harness.work = w;
	pthread_barrier_init(&harness.begin, NULL, all + 1);
	pthread_barrier_init(&harness.end, NULL, all + 1);
	for (i = 0; i < all; i++)
		if (pthread_create(&threads[i], NULL, harness_thread, (void *)(intptr_t)i) != 0)
			die("no thread");
	while (scanf("%lu", &harness.ops) == 1) {
		harness.stop = 0;
		pthread_barrier_wait(&harness.begin);
		pthread_barrier_wait(&harness.end);
		printf("%lu %lu\n", (harness.ns[0] + harness.ns[1]) / w->threads,
			harness.good[0] + harness.good[1]);
		fflush(stdout);
		harness.base += harness.ops;
	}
	harness.quit = 1;
	pthread_barrier_wait(&harness.begin);
	for (i = 0; i < all; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
#endif
