// SPDX-License-Identifier: GPL-2.0-only
/*
 * A preloaded library for an experiment: the program's sockets of UDP and IPv4 become sockets of
 * EDP on eth0. The program's addresses of IPv4 are replaced by Ethernet addresses of the neighbour
 * table, and the other way round.
 *
 * It shows what a mapping of UDP to EDP could save at most. It asks no peer whether it takes part,
 * and looks at no rule and no route. Datagrams that do not fit into a frame fail with EMSGSIZE.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <err.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "af_enet.h"

#define DEVICE "eth0"
#define MOST_NEIGHBOURS 16
#define MOST_DESCRIPTORS 1024

struct neighbour {
	struct in_addr ip;
	uint8_t mac[6];
};

static struct neighbour neighbours[MOST_NEIGHBOURS];
static int known;
static unsigned int device;
static char is_edp[MOST_DESCRIPTORS];

#define NEXT(name) ((__typeof__(&name))next(#name))

static void *next(const char *name)
{
	void *function = dlsym(RTLD_NEXT, name);

	if (!function)
		errx(1, "no function %s", name);
	return function;
}

static int mapped(int fd)
{
	return fd >= 0 && fd < MOST_DESCRIPTORS && is_edp[fd];
}

/* Reads the kernel's table of neighbours. */
static void read_neighbours(void)
{
	FILE *table = fopen("/proc/net/arp", "re");
	char line[256], ip[64];
	struct neighbour *one;

	if (!table)
		err(1, "/proc/net/arp");
	known = 0;
	while (known < MOST_NEIGHBOURS && fgets(line, sizeof(line), table)) {
		one = &neighbours[known];
		if (sscanf(line, "%63s 0x1 0x2 %hhx:%hhx:%hhx:%hhx:%hhx:%hhx", ip, &one->mac[0], &one->mac[1],
			   &one->mac[2], &one->mac[3], &one->mac[4], &one->mac[5]) == 7 &&
		    inet_aton(ip, &one->ip))
			known++;
	}
	fclose(table);
}

/* Finds the neighbour with this address: of IPv4, or of Ethernet if `ip` is NULL. */
static const struct neighbour *find(const struct in_addr *ip, const uint8_t *mac)
{
	int try, i;

	for (try = 0; try < 2; try++) {
		for (i = 0; i < known; i++)
			if (ip ? neighbours[i].ip.s_addr == ip->s_addr : !memcmp(neighbours[i].mac, mac, 6))
				return &neighbours[i];
		read_neighbours();
	}
	return NULL;
}

static int to_edp(struct sockaddr_en *to, const struct sockaddr *from, int peer)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)from;
	const struct neighbour *one;

	if (!device)
		device = if_nametoindex(DEVICE);
	*to = (struct sockaddr_en){
		.sen_family = AF_ENET, .sen_port = in->sin_port, .sen_ifindex = device, .sen_addrlen = 6,
	};
	if (!peer)
		return 0;
	one = find(&in->sin_addr, NULL);
	if (!one) {
		errno = EHOSTUNREACH;
		return -1;
	}
	memcpy(to->sen_addr, one->mac, 6);
	return 0;
}

static void from_edp(struct sockaddr *to, socklen_t *length, const struct sockaddr_en *from)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = from->sen_port };
	const struct neighbour *one = find(NULL, from->sen_addr);

	if (one)
		in.sin_addr = one->ip;
	memcpy(to, &in, *length < sizeof(in) ? *length : sizeof(in));
	*length = sizeof(in);
}

int socket(int family, int type, int protocol)
{
	int datagrams = family == AF_INET && (type & 0xf) == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP);
	int fd = datagrams ? NEXT(socket)(AF_ENET, type, EPPROTO_EDP) : NEXT(socket)(family, type, protocol);

	if (fd >= 0 && fd < MOST_DESCRIPTORS)
		is_edp[fd] = datagrams;
	return fd;
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_en own;

	if (!mapped(fd))
		return NEXT(bind)(fd, address, length);
	to_edp(&own, address, 0);
	return NEXT(bind)(fd, (struct sockaddr *)&own, sizeof(own));
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_en peer;

	if (!mapped(fd))
		return NEXT(connect)(fd, address, length);
	if (to_edp(&peer, address, 1))
		return -1;
	return NEXT(connect)(fd, (struct sockaddr *)&peer, sizeof(peer));
}

int getsockname(int fd, struct sockaddr *address, socklen_t *length)
{
	struct sockaddr_en own;
	socklen_t size = sizeof(own);

	if (!mapped(fd))
		return NEXT(getsockname)(fd, address, length);
	if (NEXT(getsockname)(fd, (struct sockaddr *)&own, &size))
		return -1;
	from_edp(address, length, &own);
	return 0;
}

ssize_t sendto(int fd, const void *data, size_t size, int flags, const struct sockaddr *address, socklen_t length)
{
	static __typeof__(&sendto) function;
	struct sockaddr_en peer;

	if (!function)
		function = NEXT(sendto);
	if (!mapped(fd) || !address)
		return function(fd, data, size, flags, address, length);
	if (to_edp(&peer, address, 1))
		return -1;
	return function(fd, data, size, flags, (struct sockaddr *)&peer, sizeof(peer));
}

ssize_t recvfrom(int fd, void *data, size_t size, int flags, struct sockaddr *address, socklen_t *length)
{
	static __typeof__(&recvfrom) function;
	struct sockaddr_en peer;
	socklen_t room = sizeof(peer);
	ssize_t got;

	if (!function)
		function = NEXT(recvfrom);
	if (!mapped(fd) || !address)
		return function(fd, data, size, flags, address, length);
	got = function(fd, data, size, flags, (struct sockaddr *)&peer, &room);
	if (got >= 0)
		from_edp(address, length, &peer);
	return got;
}

int close(int fd)
{
	if (mapped(fd))
		is_edp[fd] = 0;
	return NEXT(close)(fd);
}
