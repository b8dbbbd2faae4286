/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Replaces a header that Debian's libopenmpi-dev lacks. Mutexes and conditions are defined as in
 * Open MPI's Debian build.
 */
#ifndef ENET_THREADS_PTHREADS_MUTEX_H
#define ENET_THREADS_PTHREADS_MUTEX_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_RECURSIVE_MUTEX_INITIALIZER PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *m) { return pthread_mutex_trylock(m) != 0; }
static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *m) { pthread_mutex_lock(m); }
static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *m) { pthread_mutex_unlock(m); }
static inline void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t *m) { pthread_mutex_destroy(m); }

#endif
