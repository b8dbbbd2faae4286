/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Asks a question by EDP and repeats it until an answer comes, since datagrams may be lost.
 *
 *   edp_ask 02:00:00:00:00:01%eth0:2805 QUESTION
 *
 * The wait starts at 100 ms and doubles: seven attempts, 12.7 s in all. A question and its answer
 * begin with the question's number, 4 bytes in network order, so that a late answer to an earlier
 * question is recognized. The program prints the answer. Its exit status is 1 if no answer came.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "en_address.h"

#define ATTEMPTS 7
#define FIRST_WAIT 100 /* milliseconds */

static void die(const char *what)
{
	fprintf(stderr, "edp_ask: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static int socket_to(const char *text)
{
	struct sockaddr_en peer;
	int fd;

	switch (en_pton(text, &peer)) {
	case 0:
		fprintf(stderr, "edp_ask: \"%s\" is no address: write one as 02:00:00:00:00:01%%eth0:2805\n",
			text);
		exit(2);
	case -1:
		die(text);
	}
	fd = socket(AF_ENET, SOCK_DGRAM | SOCK_CLOEXEC, EPPROTO_EDP);
	if (fd < 0 && errno == EAFNOSUPPORT) {
		fprintf(stderr, "edp_ask: the module is not loaded: run `modprobe enet`\n");
		exit(1);
	}
	if (fd < 0)
		die("socket");
	/* From now on the socket receives datagrams of this peer only. */
	if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) < 0)
		die("connect");
	return fd;
}

/*
 * Waits for the answer to question `number` until `deadline`. Returns the answer's length in bytes,
 * or -1 if no answer came.
 */
static ssize_t answer_to(int fd, uint32_t number, char *answer, size_t size, long long deadline)
{
	for (;;) {
		struct pollfd ready = { .fd = fd, .events = POLLIN };
		long long left = deadline - now();
		ssize_t length;

		if (left <= 0 || poll(&ready, 1, (int)left) == 0)
			return -1;
		length = recv(fd, answer, size, MSG_DONTWAIT);
		if (length >= (ssize_t)sizeof(number) && memcmp(answer, &number, sizeof(number)) == 0)
			return length;
		if (length < 0 && errno != EAGAIN && errno != EINTR)
			die("recv");
	}
}

int main(int argc, char **argv)
{
	char question[1024], answer[9000];
	uint32_t number = htonl((uint32_t)now());
	size_t length;
	int fd, wait = FIRST_WAIT;

	if (argc != 3) {
		fprintf(stderr, "usage: edp_ask ADDRESS QUESTION\n");
		return 2;
	}
	length = strlen(argv[2]);
	if (length > sizeof(question) - sizeof(number)) {
		fprintf(stderr, "edp_ask: a question has at most %zu bytes\n", sizeof(question) - sizeof(number));
		return 2;
	}
	memcpy(question, &number, sizeof(number));
	memcpy(question + sizeof(number), argv[2], length);
	fd = socket_to(argv[1]);
	for (int attempt = 1; attempt <= ATTEMPTS; attempt++, wait *= 2) {
		ssize_t got;

		/* If the device's queue or the send buffer is full, the datagram counts as lost. */
		if (send(fd, question, sizeof(number) + length, 0) < 0 && errno != ENOBUFS && errno != EAGAIN)
			die("send");
		got = answer_to(fd, number, answer, sizeof(answer), now() + wait);
		if (got >= 0) {
			printf("%.*s\n", (int)(got - (ssize_t)sizeof(number)), answer + sizeof(number));
			fprintf(stderr, "answered at attempt %d\n", attempt);
			return 0;
		}
	}
	fprintf(stderr, "edp_ask: no answer to %d attempts\n", ATTEMPTS);
	return 1;
}
