// SPDX-License-Identifier: GPL-2.0-only
/*
 * datagrams take KIND PORT: receives datagrams and counts them.
 *
 * datagrams give KIND ADDRESS PORT MEGABYTES: sends MEGABYTES MiB, waits until the receiver has
 * them, and prints the time of a MiB in ns. ADDRESS is of IPv4, or a neighbour's Ethernet address
 * for the kind edp.
 *
 * KIND:
 *   udp        a call for each datagram of UDP
 *   segments   a call for 44 datagrams of UDP: the kernel or the device cuts them (UDP_SEGMENT),
 *              and the receiver's kernel joins them (UDP_GRO)
 *   edp        a call for each datagram of EDP
 *
 * A datagram has 1,400 bytes. The sender has one burst under way: the receiver answers each burst
 * with one byte, so that no datagram is dropped.
 */
#include <arpa/inet.h>
#include <err.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "af_enet.h"

#define LENGTH 1400
#define BURST (44 * LENGTH)

static char data[1 << 16];

union address {
	struct sockaddr any;
	struct sockaddr_in udp;
	struct sockaddr_en edp;
};

struct kind {
	const char *name;
	int family, per_call;
};

static const struct kind kinds[] = {
	{ "udp", AF_INET, LENGTH },
	{ "segments", AF_INET, BURST },
	{ "edp", AF_ENET, LENGTH },
};

static const struct kind *kind_named(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, name))
			return &kinds[i];
	errx(2, "no kind %s", name);
}

/* Returns the size of the kind's address. */
static socklen_t address_of(union address *address, const struct kind *kind, const char *text, const char *port)
{
	uint8_t *mac = address->edp.sen_addr;

	memset(address, 0, sizeof(*address));
	if (kind->family == AF_INET) {
		address->udp.sin_family = AF_INET;
		address->udp.sin_port = htons(atoi(port));
		if (text && !inet_aton(text, &address->udp.sin_addr))
			errx(2, "no address of IPv4: %s", text);
		return sizeof(address->udp);
	}
	address->edp.sen_family = AF_ENET;
	address->edp.sen_port = htons(atoi(port));
	address->edp.sen_ifindex = if_nametoindex("eth0");
	if (text && sscanf(text, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", &mac[0], &mac[1], &mac[2], &mac[3], &mac[4], &mac[5]) != 6)
		errx(2, "no Ethernet address: %s", text);
	return sizeof(address->edp);
}

static int open_socket(const struct kind *kind)
{
	int fd = socket(kind->family, SOCK_DGRAM, 0);
	int room = 4 << 20;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
		err(1, "socket");
	return fd;
}

static void take(const struct kind *kind, const char *port)
{
	union address own, peer;
	socklen_t length = address_of(&own, kind, NULL, port);
	int fd = open_socket(kind), on = 1;
	size_t in_burst = 0;

	if (kind->per_call == BURST && setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof(on)))
		err(1, "UDP_GRO");
	if (bind(fd, &own.any, length))
		err(1, "bind");
	for (;;) {
		socklen_t size = sizeof(peer);
		ssize_t got = recvfrom(fd, data, sizeof(data), 0, &peer.any, &size);

		if (got < 0)
			err(1, "recvfrom");
		in_burst += got;
		if (in_burst < BURST)
			continue;
		in_burst -= BURST;
		if (sendto(fd, "", 1, 0, &peer.any, size) != 1)
			err(1, "sendto");
	}
}

static void give(const struct kind *kind, const char *host, const char *port, size_t megabytes)
{
	size_t bursts = (megabytes << 20) / BURST, i, sent;
	struct timeval patience = { .tv_sec = 10 };
	struct timespec from, until;
	union address peer;
	socklen_t length = address_of(&peer, kind, host, port);
	int fd = open_socket(kind), segment = LENGTH;
	char answer;

	if (kind->per_call == BURST && setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)))
		err(1, "UDP_SEGMENT");
	if (connect(fd, &peer.any, length) || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)))
		err(1, "connect");
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (i = 0; i < bursts; i++) {
		for (sent = 0; sent < BURST; sent += kind->per_call)
			if (send(fd, data, kind->per_call, 0) != kind->per_call)
				err(1, "send");
		if (recv(fd, &answer, 1, 0) != 1)
			err(1, "a datagram is lost");
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	printf("%.0f\n", ((until.tv_sec - from.tv_sec) * 1e9 + (until.tv_nsec - from.tv_nsec)) / ((double)bursts * BURST / (1 << 20)));
}

int main(int argc, char **argv)
{
	if (argc == 4 && !strcmp(argv[1], "take"))
		take(kind_named(argv[2]), argv[3]);
	else if (argc == 6 && !strcmp(argv[1], "give"))
		give(kind_named(argv[2]), argv[3], argv[4], atol(argv[5]));
	else
		errx(2, "usage: datagrams take KIND PORT | datagrams give KIND ADDRESS PORT MEGABYTES");
	return 0;
}
