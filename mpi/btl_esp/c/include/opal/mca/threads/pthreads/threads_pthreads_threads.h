/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Replaces a header that Debian's libopenmpi-dev lacks. */
#ifndef ENET_THREADS_PTHREADS_THREADS_H
#define ENET_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <sched.h>

static inline void opal_thread_yield(void) { sched_yield(); }

#endif
