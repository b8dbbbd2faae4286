/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Questions and answers as records: each receive returns the bytes of one send, so neither side
 * counts bytes.
 *
 *   esp_records serve *:2805
 *   esp_records ask 02:00:00:00:00:01%eth0:2805 QUESTION...
 *
 * The server serves one client after the other, and answers each question with the question's
 * length and text. The client sends all questions at once, then prints the answers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "en_address.h"

#define LONGEST 65536 /* bytes: every host accepts a record of this size */

static char record[LONGEST];

static void die(const char *what)
{
	fprintf(stderr, "esp_records: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int new_socket(const char *text, struct sockaddr_en *address)
{
	int fd;

	switch (en_pton(text, address)) {
	case 0:
		fprintf(stderr, "esp_records: \"%s\" is no address: write one as 02:00:00:00:00:01%%eth0:2805\n",
			text);
		exit(2);
	case -1:
		die(text);
	}
	fd = socket(AF_ENET, SOCK_SEQPACKET | SOCK_CLOEXEC, EPPROTO_ESP);
	if (fd < 0 && errno == EAFNOSUPPORT) {
		fprintf(stderr, "esp_records: the module is not loaded: run `modprobe enet`\n");
		exit(1);
	}
	if (fd < 0)
		die("socket");
	return fd;
}

/* Receives a record. Returns its length, or 0 at the end of the connection. No record is empty. */
static size_t receive(int fd)
{
	struct iovec room = { .iov_base = record, .iov_len = sizeof(record) };
	struct msghdr message = { .msg_iov = &room, .msg_iovlen = 1 };
	ssize_t length = recvmsg(fd, &message, 0);

	if (length < 0)
		die("recvmsg");
	if (message.msg_flags & MSG_TRUNC) {
		fprintf(stderr, "esp_records: a record of more than %d bytes\n", LONGEST);
		exit(1);
	}
	return (size_t)length;
}

static void answer(int fd)
{
	size_t length;

	while ((length = receive(fd)) > 0) {
		char count[40];
		int n = snprintf(count, sizeof(count), "%zu bytes: ", length);
		struct iovec parts[2] = { { count, (size_t)n }, { record, length } };
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

		if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
			die("sendmsg");
	}
}

static void serve(const char *text)
{
	struct sockaddr_en address;
	int fd = new_socket(text, &address);

	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die("bind");
	if (listen(fd, 8) < 0)
		die("listen");
	fprintf(stderr, "listening\n");
	for (;;) {
		int client = accept(fd, NULL, NULL);

		if (client < 0)
			die("accept");
		answer(client);
		close(client);
	}
}

static int ask(const char *text, char **questions, int count)
{
	struct sockaddr_en peer;
	int fd = new_socket(text, &peer);

	if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) < 0)
		die("connect");
	for (int i = 0; i < count; i++) {
		if (send(fd, questions[i], strlen(questions[i]), MSG_NOSIGNAL) < 0)
			die("send");
	}
	for (int i = 0; i < count; i++) {
		size_t length = receive(fd);

		if (length == 0) {
			fprintf(stderr, "esp_records: the server has gone\n");
			return 1;
		}
		printf("%.*s\n", (int)length, record);
	}
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		serve(argv[2]);
	if (argc > 3 && strcmp(argv[1], "ask") == 0)
		return ask(argv[2], argv + 3, argc - 3);
	fprintf(stderr, "usage: esp_records serve ADDRESS | ask ADDRESS QUESTION...\n");
	return 2;
}
