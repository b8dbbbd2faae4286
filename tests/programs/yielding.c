// SPDX-License-Identifier: GPL-2.0-only
/*
 * A preloaded library: a program that polls its descriptors in vain lets another one run. It is for
 * programs that poll while they wait, where several of them share a processor.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <sys/epoll.h>

int epoll_wait(int queue, struct epoll_event *events, int most, int timeout)
{
	static __typeof__(&epoll_wait) real;
	int ready;

	if (!real)
		real = (__typeof__(real))dlsym(RTLD_NEXT, "epoll_wait");
	ready = real(queue, events, most, timeout);
	if (ready == 0 && timeout == 0)
		sched_yield();
	return ready;
}
