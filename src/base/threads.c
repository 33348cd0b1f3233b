/* base/threads.c - a small pool of threads. Work goes out one index at a time; an idle worker looks
 * for work for some microseconds and then sleeps. One call has the workers at a time, others run
 * alone. A forked child has none of its parent's threads: the pool starts anew there. `call` counts
 * openings and closings, so that a worker that wakes late can never join a call that is over. */
#define _GNU_SOURCE
#include "base.h"
#include <stdatomic.h>
#include <stdlib.h>

#ifdef SMX_NO_THREADS

smx_pool *smx_pool_create(int32_t threads) { return malloc(1); }
void smx_pool_run(smx_pool *pool, int64_t count, void (*task)(void *arg, int64_t i), void *arg) {
  for (int64_t i = 0; i < count; i++) task(arg, i);
}
void smx_pool_destroy(smx_pool *pool) { free(pool); }
int32_t smx_usable_cpus(void) { return 1; }
int smx_cancel_off(void) { return SMX_CANCEL_KEPT; }
void smx_cancel_back(int before) {}

#else

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  SPIN_NS = 20000,
  MAX_THREADS = 1024,
  /* stack of a worker: many times what a call takes, and thread-local variables of the program */
  STACK = 256 << 10
};

struct smx_pool {
  pthread_mutex_t owner; /* held by the call that has the workers */
  pthread_mutex_t lock;  /* guards what follows, with the two conditions */
  pthread_cond_t work, done;
  void (*task)(void *arg, int64_t i);
  void *arg;
  int64_t count;
  int32_t threads, started, busy; /* busy: workers inside the current call */
  bool stop;
  _Atomic pid_t pid;
  _Atomic uint64_t call; /* odd while a call is open */
  _Atomic int64_t next;
  pthread_t id[];
};

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void take_work(smx_pool *p) {
  for (int64_t i; (i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->count;)
    p->task(p->arg, i);
}

/* Looks for an open call other than `seen` without the lock. */
static void spin_for(smx_pool *p, uint64_t seen) {
  int64_t until = now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < 64; i++) {
      uint64_t call = atomic_load_explicit(&p->call, memory_order_relaxed);
      if ((call & 1) && call != seen) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (now_ns() < until);
}

static void *worker(void *arg) {
  smx_pool *p = arg;
  uint64_t seen = 0;
  for (;;) {
    spin_for(p, seen);
    pthread_mutex_lock(&p->lock);
    uint64_t call;
    while (!p->stop && (!((call = atomic_load_explicit(&p->call, memory_order_relaxed)) & 1) || call == seen))
      pthread_cond_wait(&p->work, &p->lock);
    if (p->stop) {
      pthread_mutex_unlock(&p->lock);
      return NULL;
    }
    seen = call;
    p->busy++;
    pthread_mutex_unlock(&p->lock);
    take_work(p);
    pthread_mutex_lock(&p->lock);
    if (--p->busy == 0) pthread_cond_signal(&p->done);
    pthread_mutex_unlock(&p->lock);
  }
}

static void reset(smx_pool *p) {
  pthread_mutex_init(&p->owner, NULL);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->work, NULL);
  pthread_cond_init(&p->done, NULL);
  p->started = p->busy = 0;
  p->stop = false;
  atomic_store(&p->call, 0);
  atomic_store(&p->pid, getpid());
}

smx_pool *smx_pool_create(int32_t threads) {
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  smx_pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof(pthread_t));
  if (!p) return NULL;
  p->threads = threads;
  reset(p);
  return p;
}

/* Starts a worker: where the program's thread-local variables do not fit its stack, with the
 * default one. */
static bool start_worker(smx_pool *p, const pthread_attr_t *small) {
  pthread_t *id = &p->id[p->started];
  return (small && pthread_create(id, small, worker, p) == 0) || pthread_create(id, NULL, worker, p) == 0;
}

/* Starts what is missing, with all signals blocked: they are the program's. A thread that cannot be
 * had is done without. */
static void start_workers(smx_pool *p) {
  sigset_t all, before;
  pthread_attr_t small;
  if (p->started == p->threads - 1) return;
  const bool attributes = pthread_attr_init(&small) == 0,
             sized = attributes && pthread_attr_setstacksize(&small, STACK) == 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (p->started < p->threads - 1 && start_worker(p, sized ? &small : NULL)) p->started++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (attributes) pthread_attr_destroy(&small);
}

/* In a forked child only the calling thread exists: the workers are gone and the locks may be held
 * by nobody. */
static void reset_after_fork(smx_pool *p) {
  static atomic_flag resetting = ATOMIC_FLAG_INIT;
  while (atomic_load(&p->pid) != getpid()) {
    if (atomic_flag_test_and_set(&resetting)) continue;
    if (atomic_load(&p->pid) != getpid()) reset(p);
    atomic_flag_clear(&resetting);
  }
}

void smx_pool_run(smx_pool *p, int64_t count, void (*task)(void *arg, int64_t i), void *arg) {
  reset_after_fork(p);
  if (pthread_mutex_trylock(&p->owner)) {
    for (int64_t i = 0; i < count; i++) task(arg, i);
    return;
  }
  start_workers(p);
  pthread_mutex_lock(&p->lock);
  p->task = task, p->arg = arg, p->count = count;
  atomic_store_explicit(&p->next, 0, memory_order_relaxed);
  atomic_fetch_add_explicit(&p->call, 1, memory_order_relaxed); /* opens */
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->lock);
  take_work(p);
  pthread_mutex_lock(&p->lock);
  atomic_fetch_add_explicit(&p->call, 1, memory_order_relaxed); /* closes: nobody joins any more */
  while (p->busy) pthread_cond_wait(&p->done, &p->lock);
  pthread_mutex_unlock(&p->lock);
  pthread_mutex_unlock(&p->owner);
}

void smx_pool_destroy(smx_pool *p) {
  if (!p) return;
  if (p->pid == getpid()) {
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < p->started; i++) pthread_join(p->id[i], NULL);
    pthread_mutex_destroy(&p->owner);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
  }
  free(p);
}

/* CPUs of a cgroup v2 quota ("200000 100000"), or a large number. */
static int32_t quota_cpus(void) {
  FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
  long long quota = 0, period = 0;
  if (!f) return MAX_THREADS;
  int n = fscanf(f, "%lld %lld", &quota, &period);
  fclose(f);
  if (n != 2 || quota <= 0 || period <= 0 || quota / period >= MAX_THREADS) return MAX_THREADS;
  return (int32_t)((quota + period - 1) / period);
}

int smx_cancel_off(void) {
  int before = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  return before;
}
void smx_cancel_back(int before) { pthread_setcancelstate(before, &before); }

int32_t smx_usable_cpus(void) {
  cpu_set_t set;
  int32_t cpus =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  int32_t quota = quota_cpus();
  if (quota < cpus) cpus = quota;
  return cpus < 1 ? 1 : cpus;
}

#endif
