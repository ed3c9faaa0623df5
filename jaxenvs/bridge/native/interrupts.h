// Ctrl-C during calls of compiled programs. Included by xla.cc alone.
#ifndef JAXENVS_INTERRUPTS_H
#define JAXENVS_INTERRUPTS_H

#include "pool.h"

#include <atomic>
#include <signal.h>

// When Ctrl-C was last pressed. Python itself notices only when its main thread runs Python again,
// which it does not while it waits for a program.
extern "C" {
__attribute__((visibility("default"))) std::atomic<int64_t> jaxenvs_interrupted_at{0};
}

namespace {

std::atomic<bool> spares_one{false};  // whether to leave the next Ctrl-C to a Python handler
struct sigaction before_ours;

void on_interrupt(int number, siginfo_t *info, void *context) {
  if (!spares_one.exchange(false)) jaxenvs_interrupted_at = jx_now();
  if (before_ours.sa_flags & SA_SIGINFO) before_ours.sa_sigaction(number, info, context);
  else before_ours.sa_handler(number);
}

}  // namespace

// Makes calls notice Ctrl-C; with `spares`, only the second one. It may be called again after
// Python has installed its handler over this one, but it only chains to the handler of the first
// time, so that handlers never call each other in a loop.
extern "C" __attribute__((visibility("default"))) void jaxenvs_watch_interrupts(int32_t spares) {
  static std::atomic<bool> has_watched{false};
  struct sigaction now, ours = {};
  if (sigaction(SIGINT, nullptr, &now)) return;
  if (!(now.sa_flags & SA_SIGINFO) && (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN)) return;
  spares_one = spares != 0;
  bool takes_info = now.sa_flags & SA_SIGINFO;
  if (takes_info && now.sa_sigaction == on_interrupt) return;
  if (!has_watched.exchange(true)) {
    before_ours = now;
  } else {
    if (takes_info != bool(before_ours.sa_flags & SA_SIGINFO)) return;
    if (takes_info ? now.sa_sigaction != before_ours.sa_sigaction
                   : now.sa_handler != before_ours.sa_handler)
      return;
  }
  ours.sa_sigaction = on_interrupt;
  ours.sa_flags = now.sa_flags | SA_SIGINFO;
  ours.sa_mask = now.sa_mask;
  sigaction(SIGINT, &ours, nullptr);
}

#endif
