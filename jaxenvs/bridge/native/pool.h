/* Synchronization of a caller and its workers: requests, answers, spinning, sleeping.
 *
 * All state is in shared memory. Each worker has a ring of requests that only the caller writes.
 * The worker processes them in order, so the number of finished requests identifies them.
 *
 * Waking a sleeping core takes 20 to 50 us, longer than a small batch. A waiting process therefore
 * spins for a while before it sleeps on a futex. The two sides write and read the awaited word and
 * the "asleep" word in opposite order, sequentially consistent, so that no wake-up is missed.
 *
 * Only Linux has futexes. Elsewhere, a sleeping process checks its word every 50 us.
 *
 * Included by pool.c, which Python calls by ctypes, and by xla.cc, which XLA calls.
 */
#ifndef JAXENVS_POOL_H
#define JAXENVS_POOL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__) && !defined(JX_NO_FUTEX)
#define JX_FUTEX
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif

/* One for each worker. The caller writes the first 64 bytes and the worker the last 64: separate
 * cache lines, which avoids false sharing. */
typedef struct {
  uint32_t asked;         /* total requests put into the ring */
  uint32_t caller_asleep; /* whether the caller sleeps on `done` */
  uint32_t read;          /* total bytes of the worker's reports that the caller has read */
  uint32_t unused0[13];
  uint32_t done;          /* futex: total requests finished */
  uint32_t worker_asleep; /* whether the worker sleeps on its bell */
  uint32_t current;       /* the current instance plus 1, or 0; set only if there is a timeout */
  uint32_t noted[2];      /* JX_INFO and JX_DONE of the last batch in each buffer */
  uint32_t hung;          /* the value of `asked` when the caller gave up on a hang */
  uint32_t alone;         /* whether its environments were measured to run in one thread */
  uint32_t reported;      /* total bytes of its reports */
  uint32_t unused1[8];
} jx_line;

/* One for the pool. */
typedef struct {
  uint32_t finished;      /* futex: total requests finished by all workers */
  uint32_t caller_asleep; /* whether the caller sleeps until `finished` reaches `wanted` */
  uint32_t wanted;
  uint32_t attention;     /* whether there may be reports to read */
  uint32_t unused0[12];
  uint32_t spin_ns;       /* how long to spin before sleeping; 0: not at all */
  int32_t home;           /* the worker that shares the caller's core, or -1 */
  uint32_t take_spin_ns;  /* `spin_ns` of a caller that waits for any instances */
  uint32_t away;          /* whether `home` is suspended, while the caller does other work */
  uint32_t bells[8];      /* futexes; 32 workers sleep on each, and one call wakes any of them */
  uint32_t lost;          /* whether a worker is lost, so that the pool cannot continue */
  uint32_t replace;       /* whether `alone` of a worker has changed since workers were placed */
  uint32_t unused1[2];
} jx_header;
#define JX_BELLS 8

/* A process's view of the shared memory. */
typedef struct {
  jx_header *header;
  jx_line *lines;        /* [num_workers] */
  uint32_t *requests;    /* [num_workers][request_room], see JX_OP */
  uint32_t num_workers;
  uint32_t request_room; /* a power of two */
  /* Of the caller only: */
  uint32_t *taken;       /* [num_workers], total requests whose answers were taken */
  uint32_t next;         /* the worker whose answers are taken first */
  int32_t core;          /* the caller's core when workers were last placed, or -1 */
  int32_t *pids;         /* [num_workers] */
} jx_pool;

/* A request: op << 29 | buffer << 28 | instance. */
enum { JX_STEP, JX_RESET, JX_STEP_ALL, JX_RESET_ALL, JX_MESSAGE, JX_QUIT };
#define JX_REQUEST(op, buffer, instance) \
  ((uint32_t)(op) << 29 | (uint32_t)(buffer) << 28 | (uint32_t)(instance))
#define JX_INSTANCE(request) ((request) & 0x0fffffffu)
#define JX_IS_MESSAGE(request) ((request) >> 29 == JX_MESSAGE) /* answered through the socket */

/* How a wait ended; the flags of a batch are added to JX_OK. */
enum { JX_OK = 0, JX_TIMEOUT = 1, JX_INTERRUPTED = 2, JX_INFO = 4, JX_DONE = 8, JX_ATTENTION = 16 };

static inline uint32_t jx_load(const uint32_t *word) {
  return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

static inline void jx_store(uint32_t *word, uint32_t value) {
  __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}

static inline int jx_reached(const uint32_t *word, uint32_t target) {
  return (int32_t)(jx_load(word) - target) >= 0; /* counts wrap around */
}

static inline int64_t jx_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int32_t jx_home(const jx_pool *pool) {
  return pool->header->away ? -1 : pool->header->home;
}

static inline void jx_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

#define JX_EVERYBODY 0xffffffffu /* all sleepers on a word */

#ifdef JX_FUTEX
#define JX_NAP 100000000 /* upper bound of a sleep in ns, in case a wake-up is lost */

static inline void jx_wake(uint32_t *word, uint32_t bits) {
  syscall(SYS_futex, word, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, bits);
}

/* Sleeps while `word` is `seen`, until it is woken, or for `nap` ns. Returns whether a signal came,
 * which Python has to handle. */
static inline int jx_sleep(uint32_t *word, uint32_t seen, uint32_t bits, int64_t nap) {
  int64_t end = jx_now() + nap;
  struct timespec until = {end / 1000000000, end % 1000000000};
  return syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &until, NULL, bits) < 0 &&
         errno == EINTR;
}
#else
#define JX_NAP 50000

static inline void jx_wake(uint32_t *word, uint32_t bits) { (void)word, (void)bits; }

static inline int jx_sleep(uint32_t *word, uint32_t seen, uint32_t bits, int64_t nap) {
  struct timespec time = {0, nap};
  (void)bits;
  return jx_load(word) == seen && nanosleep(&time, NULL) < 0 && errno == EINTR;
}
#endif

/* Spins until `word` reaches `target`, at most for `spin_ns`; returns whether it did. */
static inline int jx_spin(const uint32_t *word, uint32_t target, int64_t spin_ns) {
  if (jx_reached(word, target)) return 1;
  if (spin_ns <= 0) return 0;
  int64_t end = jx_now() + spin_ns;
  do {
    for (int i = 0; i < 32; i++) {
      if (jx_reached(word, target)) return 1;
      jx_pause();
    }
  } while (jx_now() < end);
  return 0;
}

/* Waits until `word` reaches `target` or jx_now() reaches `deadline`. `asleep` tells the other side
 * whether to wake this one. */
static inline int jx_wait(uint32_t *word, uint32_t target, uint32_t *asleep, int64_t spin_ns,
                          int64_t deadline) {
  if (jx_spin(word, target, spin_ns)) return JX_OK;
  int status = JX_OK;
  jx_store(asleep, 1);
  for (;;) {
    uint32_t seen = jx_load(word);
    if ((int32_t)(seen - target) >= 0) break;
    int64_t left = deadline - jx_now();
    if (left <= 0) { status = JX_TIMEOUT; break; }
    if (jx_sleep(word, seen, JX_EVERYBODY, left < JX_NAP ? left : JX_NAP)) {
      status = JX_INTERRUPTED;
      break;
    }
  }
  jx_store(asleep, 0);
  return status;
}

/* --- the caller's side ------------------------------------------------------------------- */

/* Puts a request into the ring of worker w without waking it. */
static inline void jx_put(jx_pool *pool, uint32_t w, uint32_t request) {
  jx_line *line = &pool->lines[w];
  uint32_t asked = line->asked;
  pool->requests[(size_t)w * pool->request_room + (asked & (pool->request_room - 1))] = request;
  jx_store(&line->asked, asked + 1);
}

/* The bell of worker w, and its bit in the bell's mask. */
static inline uint32_t jx_bell(uint32_t w) { return w / 32 % JX_BELLS; }
static inline uint32_t jx_bit(uint32_t w) { return 1u << (w % 32); }

static inline void jx_ring(jx_pool *pool, uint32_t bell, uint32_t bits) {
  uint32_t *word = &pool->header->bells[bell];
  __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
  jx_wake(word, bits);
}

/* Sends one request to worker w. */
static inline void jx_ask(jx_pool *pool, uint32_t w, uint32_t request) {
  jx_put(pool, w, request);
  if (jx_load(&pool->lines[w].worker_asleep)) jx_ring(pool, jx_bell(w), jx_bit(w));
}

/* Sends a request for `op` of each of `count` instances, whose workers are `owners`. All requests
 * are visible to spinning workers before the sleeping ones are woken, because a woken worker may
 * preempt this thread. */
static inline void jx_ask_some(jx_pool *pool, int op, uint32_t buffer, const int32_t *instances,
                               const int32_t *owners, uint32_t count) {
  uint32_t bits[JX_BELLS] = {0};
  for (uint32_t i = 0; i < count; i++) {
    uint32_t request = JX_REQUEST(op, buffer, instances[i]);
    jx_put(pool, (uint32_t)owners[i], request);
  }
  for (uint32_t i = 0; i < count; i++) {
    uint32_t w = (uint32_t)owners[i];
    if (jx_load(&pool->lines[w].worker_asleep)) bits[jx_bell(w)] |= jx_bit(w);
  }
  for (uint32_t bell = 0; bell < JX_BELLS; bell++)
    if (bits[bell]) jx_ring(pool, bell, bits[bell]);
}

/* Keeps workers off the caller's core if there are enough others, except the one at home, which is
 * pinned to it. Workers are moved after the system has moved the caller, which is never pinned. A
 * worker whose environments have threads of their own may use every core. */
static inline void jx_place(jx_pool *pool) {
#ifdef JX_FUTEX
  int core = sched_getcpu();
  if (core < 0 || (core == pool->core && !jx_load(&pool->header->replace))) return;
  jx_store(&pool->header->replace, 0);
  pool->core = core;
  cpu_set_t all, here, others;
  if (sched_getaffinity(0, sizeof all, &all)) return;
  CPU_ZERO(&here);
  CPU_SET(core, &here);
  others = all;
  CPU_CLR(core, &others);
  int32_t home = jx_home(pool);
  if (CPU_COUNT(&others) + (home >= 0) < (int)pool->num_workers || !CPU_COUNT(&others))
    others = all;
  for (uint32_t w = 0; w < pool->num_workers; w++) {
    cpu_set_t *cores = !jx_load(&pool->lines[w].alone) ? &all : (int32_t)w == home ? &here : &others;
    sched_setaffinity(pool->pids[w], sizeof all, cores);
  }
#else
  (void)pool;
#endif
}

/* Sends the same request to every worker. A caller that `waits` for the answers lends its core to
 * the worker at home. A caller that does not keeps its core busy, so that worker runs elsewhere. */
static inline void jx_ask_all(jx_pool *pool, uint32_t request, int waits) {
  if (pool->header->home >= 0) {
    if (pool->header->away != !waits) {
      pool->header->away = !waits;
      pool->core = -1; /* places the workers again */
    }
    jx_place(pool);
  }
  int32_t home = jx_home(pool);
  /* The one at home last, since it cannot run before this thread sleeps. */
  for (uint32_t i = 1; i <= pool->num_workers; i++)
    jx_ask(pool, home < 0 ? i - 1 : (home + i) % pool->num_workers, request);
}

/* JX_ATTENTION if there may be reports, or if a worker is lost, which stays so. */
static inline int jx_attention(const jx_pool *pool) {
  return jx_load(&pool->header->attention) || jx_load(&pool->header->lost) ? JX_ATTENTION : JX_OK;
}

/* Waits until every worker has finished all requests, and counts the answers as taken. The one at
 * home runs on this core, so the wait for it sleeps at once; the waits for the others spin. Returns
 * the flags of the batch in `buffer`. */
static inline int jx_wait_all(jx_pool *pool, uint32_t buffer, int64_t deadline) {
  uint32_t n = pool->num_workers, noted = 0;
  int32_t home = jx_home(pool);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t w = home < 0 ? i : (home + i) % n;
    jx_line *line = &pool->lines[w];
    int64_t spin = (int32_t)w == home ? 0 : pool->header->spin_ns;
    int status = jx_wait(&line->done, line->asked, &line->caller_asleep, spin, deadline);
    if (status != JX_OK) return status;
    noted |= line->noted[buffer];
  }
  for (uint32_t w = 0; w < n; w++) pool->taken[w] = pool->lines[w].asked;
  return (int)noted | jx_attention(pool);
}

/* Takes up to `count` finished instances of worker w and writes their indices. */
static inline uint32_t jx_take_from(jx_pool *pool, uint32_t w, uint32_t count, int32_t *instances) {
  uint32_t *ring = pool->requests + (size_t)w * pool->request_room;
  uint32_t done = jx_load(&pool->lines[w].done), got = 0;
  for (; pool->taken[w] != done; pool->taken[w]++) {
    uint32_t request = ring[pool->taken[w] & (pool->request_room - 1)];
    if (JX_IS_MESSAGE(request)) continue;
    if (got == count) break;
    instances[got++] = (int32_t)JX_INSTANCE(request);
  }
  return got;
}

/* The number of finished instances of worker w that were not taken yet. */
static inline uint32_t jx_ready(jx_pool *pool, uint32_t w) {
  uint32_t *ring = pool->requests + (size_t)w * pool->request_room;
  uint32_t done = jx_load(&pool->lines[w].done), ready = 0;
  for (uint32_t i = pool->taken[w]; i != done; i++)
    ready += !JX_IS_MESSAGE(ring[i & (pool->request_room - 1)]);
  return ready;
}

/* Waits until `count` finished instances can be taken. */
static inline int jx_wait_some(jx_pool *pool, uint32_t count, int64_t deadline) {
  jx_header *header = pool->header;
  for (;;) {
    uint32_t seen = jx_load(&header->finished), ready = 0;
    for (uint32_t w = 0; w < pool->num_workers; w++) ready += jx_ready(pool, w);
    if (ready >= count) return jx_attention(pool);
    uint32_t target = seen + (count - ready);
    jx_store(&header->wanted, target);
    /* `finished` is read first and incremented last, so this wakes too early at worst. */
    int status =
        jx_wait(&header->finished, target, &header->caller_asleep, header->take_spin_ns, deadline);
    if (status != JX_OK) return status;
  }
}

/* Takes `count` instances, which have finished, and writes their indices. */
static inline void jx_take(jx_pool *pool, uint32_t count, int32_t *instances) {
  for (uint32_t got = 0; got < count; pool->next = (pool->next + 1) % pool->num_workers)
    got += jx_take_from(pool, pool->next, count - got, instances + got);
}

/* --- the worker's side ------------------------------------------------------------------- */

/* Waits for the request after the first `seen` ones and returns it, or JX_NO_REQUEST if a signal
 * came first. */
#define JX_NO_REQUEST 0xffffffffu
static inline uint32_t jx_next(jx_pool *pool, uint32_t w, uint32_t seen) {
  jx_line *line = &pool->lines[w];
  uint32_t *bell = &pool->header->bells[jx_bell(w)];
  int64_t spin = (int32_t)w == jx_home(pool) ? 0 : pool->header->spin_ns;
  if (!jx_spin(&line->asked, seen + 1, spin)) {
    int interrupted = 0;
    jx_store(&line->worker_asleep, 1);
    while (!interrupted) {
      uint32_t rung = jx_load(bell); /* first, so that a later ring prevents the sleep */
      if (jx_reached(&line->asked, seen + 1)) break;
      interrupted = jx_sleep(bell, rung, jx_bit(w), JX_NAP);
    }
    jx_store(&line->worker_asleep, 0);
    if (interrupted) return JX_NO_REQUEST;
  }
  return pool->requests[(size_t)w * pool->request_room + (seen & (pool->request_room - 1))];
}

/* Records that worker w has finished its first `done` requests, one more than before. */
static inline void jx_finish(jx_pool *pool, uint32_t w, uint32_t done) {
  jx_line *line = &pool->lines[w];
  jx_header *header = pool->header;
  jx_store(&line->done, done);
  if (jx_load(&line->caller_asleep)) jx_wake(&line->done, JX_EVERYBODY);
  uint32_t finished = __atomic_add_fetch(&header->finished, 1, __ATOMIC_SEQ_CST);
  if (jx_load(&header->caller_asleep) && (int32_t)(finished - jx_load(&header->wanted)) >= 0)
    jx_wake(&header->finished, JX_EVERYBODY);
}

#endif
