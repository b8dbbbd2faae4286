/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Puts: a client writes to memory of the server's program, which makes no call for it.
 *
 *   esp_put serve *:2805
 *   esp_put put 02:00:00:00:00:01%eth0:2805 OFFSET WORD...
 *
 * The server offers each client its memory: it sends the key and the length. The client puts one
 * word after the other. The last put tells, and the server then prints what is there.
 */
#include <endian.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "en_address.h"

static char memory[1 << 20];

static void die(const char *what)
{
	fprintf(stderr, "esp_put: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Returns a channel with a domain of its own. */
static int new_channel(const char *text, struct sockaddr_en *address)
{
	int fd;

	switch (en_pton(text, address)) {
	case 0:
		fprintf(stderr, "esp_put: \"%s\" is no address: write one as 02:00:00:00:00:01%%eth0:2805\n",
			text);
		exit(2);
	case -1:
		die(text);
	}
	fd = socket(AF_ENET, SOCK_SEQPACKET | SOCK_CLOEXEC, EPPROTO_ESP);
	if (fd < 0 && errno == EAFNOSUPPORT) {
		fprintf(stderr, "esp_put: the module is not loaded: run `modprobe enet`\n");
		exit(1);
	}
	if (fd < 0)
		die("socket");
	if (setsockopt(fd, SOL_EP, EP_SO_DOMAIN, &fd, sizeof(fd)) < 0)
		die("EP_SO_DOMAIN");
	return fd;
}

/* Returns 0, or -1 after an error. */
static int send_message(int fd, struct ep_message *header, const void *bytes, size_t length)
{
	struct iovec parts[2] = { { header, sizeof(*header) }, { (void *)bytes, length } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

	return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

/*
 * Receives the header of a message. Returns 1, 0 at the end of the connection, or -1 after an
 * error.
 */
static int receive(int fd, struct ep_message *header)
{
	ssize_t length = recv(fd, header, sizeof(*header), 0);

	return length < 0 ? -1 : length > 0;
}

/* Waits until all puts are in their place. Returns 0, or -1 if the connection has ended. */
static int complete(int fd)
{
	socklen_t length = sizeof(errno);
	int left = 1;

	while (left > 0) {
		struct pollfd state = { .fd = fd };

		if (ioctl(fd, SIOCOUTQ, &left) < 0)
			return -1;
		if (poll(&state, 1, left > 0) < 0)
			return -1;
		if (state.revents & (POLLERR | POLLHUP)) {
			getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &length);
			return -1;
		}
	}
	return 0;
}

static void serve(const char *text)
{
	struct ep_region region = { .address = (uintptr_t)memory, .length = sizeof(memory) };
	struct sockaddr_en address;
	int fd = new_channel(text, &address);

	if (ioctl(fd, EP_IOC_REGION, &region) < 0)
		die("EP_IOC_REGION");
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die("bind");
	if (listen(fd, 8) < 0)
		die("listen");
	fprintf(stderr, "listening\n");
	for (;;) {
		struct ep_message message = {
			.op = EP_SEND,
			.key = htobe64(region.key),
			.offset = htobe64(region.length),
		};
		int client = accept(fd, NULL, NULL);

		if (client < 0) {
			perror("esp_put: accept");
			continue;
		}
		if (send_message(client, &message, NULL, 0) < 0)
			perror("esp_put: the offer");
		/* What a client says is not trusted, and its end is not the server's. */
		while (receive(client, &message) > 0) {
			uint64_t start = be32toh(message.immediate);

			if (message.op != EP_PUT || start >= sizeof(memory))
				break;
			printf("at %llu: %.*s\n", (unsigned long long)start,
			       (int)(sizeof(memory) - start), memory + start);
			fflush(stdout);
		}
		close(client);
	}
}

static int put(const char *text, uint64_t offset, char **words, int count)
{
	struct ep_message message;
	struct sockaddr_en peer;
	uint64_t start = offset;
	int fd = new_channel(text, &peer);

	if (connect(fd, (struct sockaddr *)&peer, sizeof(peer)) < 0)
		die("connect");
	if (receive(fd, &message) <= 0) {
		fprintf(stderr, "esp_put: the server has gone\n");
		return 1;
	}
	if (offset >= be64toh(message.offset)) {
		fprintf(stderr, "esp_put: the server's memory has %llu bytes\n",
			(unsigned long long)be64toh(message.offset));
		return 2;
	}
	message.op = EP_PUT;
	for (int i = 0; i < count; i++) {
		int last = i == count - 1;
		size_t length = strlen(words[i]);
		char end = last ? '\0' : ' ';

		message.flags = 0;
		message.offset = htobe64(offset);
		if (send_message(fd, &message, words[i], length) < 0)
			die("a put");
		message.flags = last ? EP_TELLS : 0;
		message.immediate = htobe32((uint32_t)start);
		message.offset = htobe64(offset + length);
		if (send_message(fd, &message, &end, 1) < 0)
			die("a put");
		offset += length + 1;
	}
	if (complete(fd) < 0)
		die("the puts did not all arrive");
	close(fd);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		serve(argv[2]);
	if (argc > 4 && strcmp(argv[1], "put") == 0) {
		char *end;
		unsigned long long offset = strtoull(argv[3], &end, 10);

		if (*argv[3] == '\0' || *end != '\0') {
			fprintf(stderr, "esp_put: \"%s\" is no offset: write a number of bytes\n", argv[3]);
			return 2;
		}
		return put(argv[2], offset, argv + 4, argc - 4);
	}
	fprintf(stderr, "usage: esp_put serve ADDRESS | put ADDRESS OFFSET WORD...\n");
	return 2;
}
