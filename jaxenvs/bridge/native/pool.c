/* The functions that Python calls by ctypes: those of pool.h, and the end of a worker with its
 * caller. */
#include "pool.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#define JX_EXPORT __attribute__((visibility("default")))

/* Sends the same request to every worker, without waiting. */
JX_EXPORT void jaxenvs_ask_all(jx_pool *pool, uint32_t request) {
  jx_ask_all(pool, request, 0);
}

/* Sends the same request to every worker and waits for all of them. */
JX_EXPORT int jaxenvs_step_all(jx_pool *pool, uint32_t request, int64_t timeout_ns) {
  jx_ask_all(pool, request, 1);
  return jx_wait_all(pool, request >> 28 & 1, jx_now() + timeout_ns);
}

JX_EXPORT void jaxenvs_ask_some(jx_pool *pool, uint32_t op, uint32_t buffer,
                                const int32_t *instances, const int32_t *owners, uint32_t count) {
  jx_ask_some(pool, (int)op, buffer, instances, owners, count);
}

JX_EXPORT void jaxenvs_ask(jx_pool *pool, uint32_t w, uint32_t request) {
  jx_ask(pool, w, request);
}

JX_EXPORT int jaxenvs_wait_all(jx_pool *pool, uint32_t buffer, int64_t timeout_ns) {
  return jx_wait_all(pool, buffer, jx_now() + timeout_ns);
}

JX_EXPORT int jaxenvs_take(jx_pool *pool, uint32_t count, int32_t *instances, int64_t timeout_ns) {
  int status = jx_wait_some(pool, count, jx_now() + timeout_ns);
  if (!(status & (JX_TIMEOUT | JX_INTERRUPTED))) jx_take(pool, count, instances);
  return status;
}

JX_EXPORT uint32_t jaxenvs_next(jx_pool *pool, uint32_t w, uint32_t seen) {
  return jx_next(pool, w, seen);
}

/* A single call between two requests of a worker. */
JX_EXPORT uint32_t jaxenvs_finish_and_next(jx_pool *pool, uint32_t w, uint32_t done) {
  jx_finish(pool, w, done);
  return jx_next(pool, w, done);
}

JX_EXPORT void jaxenvs_finish(jx_pool *pool, uint32_t w, uint32_t done) {
  jx_finish(pool, w, done);
}

/* Ends this process and its group when the process behind `pidfd` ends. A thread in C, because an
 * environment may hold Python's lock for any time. */
static void *watch(void *argument) {
  struct pollfd parent = {(int)(intptr_t)argument, POLLIN, 0};
  while (poll(&parent, 1, -1) < 0 && errno == EINTR) {}
  kill(0, SIGKILL); /* its own group, so also the processes that its environments have started */
  return NULL;
}

JX_EXPORT int jaxenvs_end_with(int pidfd) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* Python's own threads handle signals */
  int status = pthread_create(&thread, NULL, watch, (void *)(intptr_t)pidfd);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!status) pthread_detach(thread);
  return status;
}
