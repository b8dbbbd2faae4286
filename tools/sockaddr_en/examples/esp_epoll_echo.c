/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * An echo server for ESP: any number of connections in one thread, with epoll.
 *
 *   esp_epoll_echo '*%eth0:2805'
 *
 * Each connection has one buffer. While the buffer holds bytes that the peer does not accept, the
 * server reads nothing more from that peer. "listening on ..." on standard error reports that
 * clients can connect.
 */
#define _GNU_SOURCE /* accept4 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "en_address.h"

struct connection {
	int fd;
	size_t begin, end; /* the bytes of `buffer` that still have to be sent */
	int ended;         /* the peer sends no more */
	char buffer[64 * 1024];
};

static void die(const char *what)
{
	fprintf(stderr, "esp_epoll_echo: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int listen_on(const char *text)
{
	struct sockaddr_en address;
	char printed[EN_ADDRSTRLEN];
	socklen_t size = sizeof(address);
	int fd;

	switch (en_pton(text, &address)) {
	case 0:
		fprintf(stderr, "esp_epoll_echo: \"%s\" is no address: write one as *%%eth0:2805\n", text);
		exit(2);
	case -1:
		die(text);
	}
	fd = socket(AF_ENET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, EPPROTO_ESP);
	if (fd < 0 && errno == EAFNOSUPPORT) {
		fprintf(stderr, "esp_epoll_echo: the module is not loaded: run `modprobe enet`\n");
		exit(1);
	}
	if (fd < 0)
		die("socket");
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die("bind");
	if (listen(fd, SOMAXCONN) < 0)
		die("listen");
	if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
		die("getsockname");
	fprintf(stderr, "listening on %s\n", en_ntop(&address, printed, sizeof(printed)));
	return fd;
}

/* Accepts all queued connections. epoll then reports each of them, as readable or writable. */
static void accept_all(int listener, int epoll)
{
	for (;;) {
		struct connection *connection;
		struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET };
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0)
			die("accept");
		connection = calloc(1, sizeof(*connection));
		if (!connection)
			die("a connection's buffer");
		connection->fd = fd;
		event.data.ptr = connection;
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
			die("epoll_ctl");
	}
}

/* Receives and sends until a call would block. Returns 0 once the connection is over. */
static int serve(struct connection *it)
{
	for (;;) {
		ssize_t done;

		if (it->begin < it->end) {
			done = send(it->fd, it->buffer + it->begin, it->end - it->begin, MSG_NOSIGNAL);
			if (done > 0)
				it->begin += (size_t)done;
		} else if (it->ended) {
			return 0;
		} else {
			done = recv(it->fd, it->buffer, sizeof(it->buffer), 0);
			it->begin = 0;
			it->end = done > 0 ? (size_t)done : 0;
			it->ended = done == 0;
		}
		if (done < 0 && errno != EINTR)
			return errno == EAGAIN || errno == EWOULDBLOCK;
	}
}

int main(int argc, char **argv)
{
	/* The listener's events carry no connection. */
	struct epoll_event event = { .events = EPOLLIN, .data = { .ptr = NULL } };
	int epoll, listener;

	if (argc != 2) {
		fprintf(stderr, "usage: esp_epoll_echo ADDRESS\n");
		return 2;
	}
	listener = listen_on(argv[1]);
	epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) < 0)
		die("epoll");
	for (;;) {
		struct epoll_event events[64];
		int count = epoll_wait(epoll, events, 64, -1);

		if (count < 0 && errno != EINTR)
			die("epoll_wait");
		for (int i = 0; i < count; i++) {
			struct connection *connection = events[i].data.ptr;

			if (!connection) {
				accept_all(listener, epoll);
			} else if (!serve(connection)) {
				close(connection->fd);
				free(connection);
			}
		}
	}
}
