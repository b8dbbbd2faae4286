// SPDX-License-Identifier: GPL-2.0-only
/*
 * memget ADDRESS PORT REQUESTS: stores a value in a memcached, gets it REQUESTS times over one
 * connection, and prints the time of a request. It is linked statically.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Sends `question`, and reads until the answer ends with `end`. */
static void ask(int fd, const char *question, const char *end)
{
	char answer[4096];
	size_t got = 0;
	size_t tail = strlen(end);

	if (write(fd, question, strlen(question)) != (ssize_t)strlen(question))
		err(1, "write");
	do {
		ssize_t n = read(fd, answer + got, sizeof(answer) - got);

		if (n <= 0)
			err(1, "read");
		got += n;
	} while (got < tail || memcmp(answer + got - tail, end, tail));
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct timespec from, until;
	int fd, on = 1;
	long n;

	if (argc != 4 || !inet_aton(argv[1], &to.sin_addr))
		errx(2, "usage: memget ADDRESS PORT REQUESTS");
	to.sin_port = htons(atoi(argv[2]));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		err(1, "socket");
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)))
		err(1, "connect");
	ask(fd, "set key 0 0 5\r\nvalue\r\n", "STORED\r\n");
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (n = atol(argv[3]); n > 0; n--)
		ask(fd, "get key\r\n", "VALUE key 0 5\r\nvalue\r\nEND\r\n");
	clock_gettime(CLOCK_MONOTONIC, &until);
	printf("%.0f ns per request\n",
	       ((until.tv_sec - from.tv_sec) * 1e9 + (until.tv_nsec - from.tv_nsec)) / atol(argv[3]));
	return 0;
}
