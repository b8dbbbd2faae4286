/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Converts PF_ENET addresses to and from text, as inet_ntop(3) and inet_pton(3) do for IP
 * addresses:
 *
 *   02:00:00:00:00:01%eth0:2805   a host's Ethernet address, the interface to send through, a port
 *   *%eth0:2805                   for bind: the port on one interface
 *   *:2805                        for bind: the port on all interfaces
 *
 * If the name of the interface consists of digits, it is taken as the interface's number.
 *
 * en_lookup() finds the Ethernet address for a host's name or IP address.
 */
#ifndef EN_ADDRESS_H
#define EN_ADDRESS_H

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "af_enet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the longest text that en_ntop() writes, including its NUL. */
#define EN_ADDRSTRLEN (sizeof("00:00:00:00:00:00%:65535") + IF_NAMESIZE - 1)

/* Returns the value of a hexadecimal digit, or -1 if the digit is not hexadecimal. */
static inline int en_hex(char digit)
{
	static const char digits[] = "0123456789abcdef";
	char lower = digit >= 'A' && digit <= 'F' ? (char)(digit - 'A' + 'a') : digit;
	const char *place = lower ? strchr(digits, lower) : NULL;

	return place ? (int)(place - digits) : -1;
}

/*
 * Reads the decimal digits up to `end` as a number. Returns 1, or 0 if the digits are not a number
 * up to `most`.
 */
static inline int en_number(const char *text, const char *end, unsigned long long most,
			    unsigned long long *number)
{
	*number = 0;
	if (text == end)
		return 0;
	for (; text < end; text++) {
		if (*text < '0' || *text > '9')
			return 0;
		*number = *number * 10 + (unsigned long long)(*text - '0');
		if (*number > most)
			return 0;
	}
	return 1;
}

/* Reads six hexadecimal pairs. Returns the text after them, or NULL if there are not six. */
static inline const char *en_pairs(const char *text, uint8_t octets[6])
{
	for (int i = 0; i < 6; i++) {
		int high = en_hex(text[0]);
		int low = high < 0 ? -1 : en_hex(text[1]);

		if (low < 0 || (i < 5 && text[2] != ':'))
			return NULL;
		octets[i] = (uint8_t)(high << 4 | low);
		text += i < 5 ? 3 : 2;
	}
	return text;
}

/* ALTIFNAMSIZ of linux/netdevice.h: bytes of the longest alternative name, including its NUL. */
#define EN_ALTIFNAMSIZ 128

/*
 * Returns the number of the interface with the alternative name `name`, which is too long for
 * if_nametoindex(3); or 0 with errno set, which is ENODEV if no interface has the name.
 */
static inline uint32_t en_alternative(const char *name)
{
	/* The headers of older kernels lack IFLA_ALT_IFNAME. */
	static const unsigned short alternative = 53;
	struct {
		struct nlmsghdr header;
		struct ifinfomsg body;
		struct rtattr attribute;
		char name[EN_ALTIFNAMSIZ];
	} ask;
	/* The element type aligns the buffer for the netlink message in it. */
	struct nlmsghdr answer[64];
	struct timeval patience = { 5, 0 };
	size_t length = strlen(name) + 1;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	uint32_t index = 0;
	ssize_t got;
	int error;

	if (fd < 0)
		return 0;
	memset(&ask, 0, sizeof(ask));
	ask.header.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof(ask.body)) + RTA_SPACE(length));
	ask.header.nlmsg_type = RTM_GETLINK;
	ask.header.nlmsg_flags = NLM_F_REQUEST;
	ask.attribute.rta_len = (unsigned short)RTA_LENGTH(length);
	ask.attribute.rta_type = alternative;
	memcpy(ask.name, name, length);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	/* Only the start of the answer is needed; the kernel cuts off what does not fit. */
	got = send(fd, &ask, ask.header.nlmsg_len, 0) < 0 ? -1 : recv(fd, answer, sizeof(answer), 0);
	if (got >= (ssize_t)NLMSG_LENGTH(sizeof(struct nlmsgerr)) && answer->nlmsg_type == NLMSG_ERROR)
		errno = -((const struct nlmsgerr *)NLMSG_DATA(answer))->error;
	else if (got >= (ssize_t)NLMSG_LENGTH(sizeof(ask.body)) && answer->nlmsg_type == RTM_NEWLINK)
		index = (uint32_t)((const struct ifinfomsg *)NLMSG_DATA(answer))->ifi_index;
	error = errno;
	close(fd);
	errno = error;
	return index;
}

/*
 * Reads the interface from `text` to `end`. Returns 1; 0 if the text is no valid interface name; or
 * -1 with errno set if no interface has the name.
 */
static inline int en_interface(const char *text, const char *end, uint32_t *index)
{
	char name[EN_ALTIFNAMSIZ];
	unsigned long long number;
	size_t length = (size_t)(end - text);

	if (length == 0 || length >= sizeof(name))
		return 0;
	for (size_t i = 0; i < length; i++)
		if (strchr("/: \t\n\r\f", text[i]))
			return 0;
	if (strspn(text, "0123456789") >= length) {
		if (!en_number(text, end, UINT32_MAX, &number))
			return 0;
		*index = (uint32_t)number;
		return 1;
	}
	memcpy(name, text, length);
	name[length] = '\0';
	*index = length < IF_NAMESIZE ? if_nametoindex(name) : en_alternative(name);
	return *index ? 1 : -1;
}

/*
 * Reads an address from text. Returns 1; 0 if the text is no address; or -1 with errno ENODEV if
 * this network namespace has no interface of that name.
 */
static inline int en_pton(const char *text, struct sockaddr_en *address)
{
	struct sockaddr_en read;
	const char *colon = strrchr(text, ':');
	unsigned long long port;
	uint32_t index = ENET_INTERFACE_ANY;
	int found = 1;

	memset(&read, 0, sizeof(read));
	if (!colon || !en_number(colon + 1, colon + 1 + strlen(colon + 1), 65535, &port))
		return 0;
	if (*text == '*')
		text++;
	else if (!(text = en_pairs(text, read.sen_addr)) || *text != '%')
		return 0;
	if (*text == '%')
		found = en_interface(text + 1, colon, &index);
	else if (text != colon)
		return 0;
	if (found != 1)
		return found;
	read.sen_family = AF_ENET;
	read.sen_port = htons((uint16_t)port);
	read.sen_ifindex = index;
	read.sen_addrlen = sizeof(read.sen_addr);
	*address = read;
	return 1;
}

/*
 * Writes an address as text into the `size` bytes at `text`. EN_ADDRSTRLEN bytes are always enough.
 * An interface that no longer exists is printed as its number. Returns `text`, or NULL with errno
 * ENOSPC if `size` is too small.
 */
static inline const char *en_ntop(const struct sockaddr_en *address, char *text, socklen_t size)
{
	static const uint8_t unspecified[6] = { 0 };
	const uint8_t *mac = address->sen_addr;
	int wildcard = memcmp(mac, unspecified, sizeof(unspecified)) == 0;
	char host[sizeof("00:00:00:00:00:00")] = "*";
	char interface[IF_NAMESIZE] = "";
	const char *percent = "%";
	int length;

	if (!wildcard)
		snprintf(host, sizeof(host), "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2],
			 mac[3], mac[4], mac[5]);
	if (wildcard && address->sen_ifindex == ENET_INTERFACE_ANY)
		percent = "";
	else if (!if_indextoname(address->sen_ifindex, interface))
		snprintf(interface, sizeof(interface), "%u", (unsigned int)address->sen_ifindex);
	length = snprintf(text, size, "%s%s%s:%u", host, percent, interface,
			  (unsigned int)ntohs(address->sen_port));
	if (length < 0 || (socklen_t)length >= size) {
		errno = ENOSPC;
		return NULL;
	}
	return text;
}

/*
 * en_lookup() uses struct ifreq and getaddrinfo(3), which are not in ISO C. With -std=c99 or
 * -std=c11, define _DEFAULT_SOURCE before the first #include; the gnu dialects and C++ do so
 * themselves.
 */
#ifdef ifr_hwaddr

/* Returns the bytes of an IP address, and sets `*length` to their number. */
static inline const void *en_ip(const struct sockaddr *address, size_t *length)
{
	if (address->sa_family == AF_INET6) {
		*length = sizeof(struct in6_addr);
		return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
	}
	*length = sizeof(struct in_addr);
	return &((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

/* Returns an IPv4 address in host byte order; 0 for one of IPv6. */
static inline uint32_t en_ipv4(const struct sockaddr *address)
{
	if (address->sa_family != AF_INET)
		return 0;
	return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr);
}

/* Returns whether `ip` is the broadcast address of the network of `own`. */
static inline int en_is_broadcast(const struct sockaddr *ip, const struct ifaddrs *own)
{
	uint32_t hosts;

	if (ip->sa_family != AF_INET || !own->ifa_netmask)
		return 0;
	hosts = ~ntohl(((const struct sockaddr_in *)(const void *)own->ifa_netmask)->sin_addr.s_addr);
	/* Networks of one or two addresses have no broadcast address (RFC 3021). */
	return hosts > 1 && en_ipv4(ip) == (en_ipv4(own->ifa_addr) | hosts);
}

/*
 * Returns whether `ip` can be the address of one host: not a multicast, unspecified or broadcast
 * address.
 */
static inline int en_is_one_host(const struct sockaddr *ip)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)ip)->sin6_addr;
	uint32_t v4 = en_ipv4(ip);

	if (ip->sa_family == AF_INET6)
		return !IN6_IS_ADDR_MULTICAST(v6) && !IN6_IS_ADDR_UNSPECIFIED(v6);
	return v4 != INADDR_ANY && v4 != INADDR_BROADCAST && !IN_MULTICAST(v4);
}

/* Replaces an IPv4-mapped IPv6 address by the IPv4 address in it. */
static inline void en_unmap(struct sockaddr *ip, socklen_t *length)
{
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)ip)->sin6_addr;
	struct sockaddr_in v4;

	if (ip->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(v6))
		return;
	memset(&v4, 0, sizeof(v4));
	v4.sin_family = AF_INET;
	v4.sin_port = ((const struct sockaddr_in6 *)(const void *)ip)->sin6_port;
	memcpy(&v4.sin_addr, (const char *)v6 + 12, sizeof(v4.sin_addr));
	memcpy(ip, &v4, sizeof(v4));
	*length = sizeof(v4);
}

/*
 * If `ip` is an address of this host, reads the Ethernet address of the device that has it. Returns
 * 1; 0 if `ip` is not an address of this host; or -1 with errno, which is ENODEV if the device is
 * not Ethernet, and EINVAL if `ip` is the broadcast address of a network.
 */
static inline int en_own(const struct sockaddr *ip, struct sockaddr_en *address)
{
	struct ifaddrs *all, *each;
	int broadcast = 0;
	struct ifreq request;
	size_t length, other;
	const void *bytes = en_ip(ip, &length);
	int socket_fd, found = 0;

	if (getifaddrs(&all) < 0)
		return -1;
	memset(&request, 0, sizeof(request));
	for (each = all; each && !found; each = each->ifa_next) {
		if (!each->ifa_addr || each->ifa_addr->sa_family != ip->sa_family)
			continue;
		broadcast |= en_is_broadcast(ip, each);
		if (memcmp(en_ip(each->ifa_addr, &other), bytes, length) != 0)
			continue;
		found = 1;
		snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", each->ifa_name);
	}
	freeifaddrs(all);
	if (!found && (broadcast || en_ipv4(ip) >> 24 == IN_LOOPBACKNET)) {
		errno = broadcast ? EINVAL : ENODEV;
		return -1;
	}
	if (!found)
		return 0;
	socket_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (socket_fd < 0)
		return -1;
	address->sen_ifindex = if_nametoindex(request.ifr_name);
	if (ioctl(socket_fd, SIOCGIFHWADDR, &request) < 0 ||
	    request.ifr_hwaddr.sa_family != ARPHRD_ETHER) {
		errno = ENODEV;
		found = -1;
	} else {
		memcpy(address->sen_addr, request.ifr_hwaddr.sa_data, sizeof(address->sen_addr));
	}
	close(socket_fd);
	return found;
}

/*
 * Reads the kernel's neighbour entry of `ip`, on interface `address->sen_ifindex` if that is not 0.
 * Returns 1 with the Ethernet address and the interface; 0 if there is no entry, or address
 * resolution has not ended; or -1 with errno, EHOSTUNREACH if address resolution failed.
 */
static inline int en_neighbour(const struct sockaddr *ip, struct sockaddr_en *address, int *entry)
{
	static const int usable = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT;
	struct {
		struct nlmsghdr header;
		struct ndmsg body;
	} ask;
	/* the element type aligns the buffer for the netlink messages in it */
	struct nlmsghdr answer[2048];
	size_t length;
	const void *bytes = en_ip(ip, &length);
	struct timeval patience = { 5, 0 };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	int found = 0, done = 0, error;

	*entry = 0;
	if (fd < 0)
		return -1;
	memset(&ask, 0, sizeof(ask));
	ask.header.nlmsg_len = sizeof(ask);
	ask.header.nlmsg_type = RTM_GETNEIGH;
	ask.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	ask.body.ndm_family = (unsigned char)ip->sa_family;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (send(fd, &ask, sizeof(ask), 0) < 0)
		done = 1, found = -1;
	while (!done) {
		ssize_t got = recv(fd, answer, sizeof(answer), 0);
		struct nlmsghdr *each = answer;
		unsigned int left = got < 0 ? 0 : (unsigned int)got;

		if (got <= 0)
			done = 1, found = found ? found : -1;
		for (; NLMSG_OK(each, left); each = NLMSG_NEXT(each, left)) {
			struct ndmsg *body = (struct ndmsg *)NLMSG_DATA(each);
			struct rtattr *attribute = (struct rtattr *)(void *)((char *)body +
									    NLMSG_ALIGN(sizeof(*body)));
			unsigned int rest;
			const void *mac = NULL;
			int same = 0;

			if (each->nlmsg_type == NLMSG_DONE)
				done = 1;
			if (each->nlmsg_type == NLMSG_ERROR) {
				const struct nlmsgerr *refusal = (const struct nlmsgerr *)NLMSG_DATA(each);

				done = 1;
				if (each->nlmsg_len >= NLMSG_LENGTH(sizeof(*refusal)) && refusal->error)
					errno = -refusal->error, found = -1;
			}
			if (each->nlmsg_type != RTM_NEWNEIGH || each->nlmsg_len < NLMSG_LENGTH(sizeof(*body)))
				continue;
			rest = each->nlmsg_len - (unsigned int)NLMSG_LENGTH(sizeof(*body));
			for (; RTA_OK(attribute, rest); attribute = RTA_NEXT(attribute, rest)) {
				if (attribute->rta_type == NDA_DST && RTA_PAYLOAD(attribute) == length)
					same = memcmp(RTA_DATA(attribute), bytes, length) == 0;
				if (attribute->rta_type == NDA_LLADDR &&
				    RTA_PAYLOAD(attribute) == sizeof(address->sen_addr))
					mac = RTA_DATA(attribute);
			}
			if (!same || found == 1 ||
			    (address->sen_ifindex && (int)address->sen_ifindex != body->ndm_ifindex))
				continue;
			*entry = 1;
			if (mac && body->ndm_state & usable) {
				memcpy(address->sen_addr, mac, sizeof(address->sen_addr));
				address->sen_ifindex = (uint32_t)body->ndm_ifindex;
				found = 1;
			} else if (body->ndm_state & NUD_FAILED) {
				errno = EHOSTUNREACH;
				found = -1;
			}
		}
	}
	error = errno;
	close(fd);
	errno = error;
	return found;
}

/*
 * Sends a packet to `ip`, so that the kernel resolves its Ethernet address. Returns 1, or -1 with
 * errno.
 */
static inline int en_resolve(const struct sockaddr *ip, socklen_t length, struct sockaddr_en *address)
{
	static const struct timespec pause = { 0, 20 * 1000 * 1000 };
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)ip)->sin6_addr;
	char name[IF_NAMESIZE];
	int entry, fd, tries, found;

	errno = EINVAL;
	if (!en_is_one_host(ip))
		return -1;
	found = en_own(ip, address);
	/* A link-local address is ambiguous without an interface. */
	if (!found && ip->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(v6) && !address->sen_ifindex) {
		errno = EINVAL;
		return -1;
	}
	if (!found)
		found = en_neighbour(ip, address, &entry);
	if (found == 1 || (found < 0 && errno != EHOSTUNREACH))
		return found;
	if (address->sen_ifindex && !if_indextoname(address->sen_ifindex, name)) {
		errno = ENODEV;
		return -1;
	}
	fd = socket(ip->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (address->sen_ifindex)
		setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, (socklen_t)strlen(name));
	found = connect(fd, ip, length) < 0 || send(fd, "", 0, 0) < 0 ? -1 : 0;
	/*
	 * The kernel sends three requests, one per second; 175 pauses take 3.5 seconds. If the
	 * kernel has no entry after a third of a second, it has sent the packet to a router.
	 */
	for (tries = 0; !found && tries < 175; tries++) {
		nanosleep(&pause, NULL);
		found = en_neighbour(ip, address, &entry);
		if (!entry && tries > 15)
			break;
	}
	close(fd);
	if (!found)
		errno = entry ? EHOSTUNREACH : ENETUNREACH;
	return found == 1 ? 1 : -1;
}

/* Returns whether a text is an Ethernet address written with dashes, or as in 0200.0000.0001. */
static inline int en_is_other_notation(const char *text)
{
	static const char *const forms[] = { "xx-xx-xx-xx-xx-xx", "xxxx.xxxx.xxxx" };
	int is = 0;

	for (int form = 0; form < 2; form++) {
		const char *wanted = forms[form], *given = text;

		while (*wanted && (*wanted == 'x' ? en_hex(*given) >= 0 : *given == *wanted))
			wanted++, given++;
		is |= !*wanted && !*given;
	}
	return is;
}

/*
 * Finds port `port` of the host that `host` names: a name, an IP address, or an Ethernet address
 * with its interface, as in 02:00:00:00:00:02%eth0. The interface may follow a name or an IP
 * address, too. Returns 1; 0 if the text is no valid host, or no IP address is known for it; or -1
 * with errno: ENODEV if the interface does not exist or is not Ethernet, EHOSTUNREACH if no host
 * answers, ENETUNREACH if the host is behind a router, EINVAL if the IP address is a multicast,
 * broadcast or unspecified address, or link-local without an interface. The call blocks for up to
 * three seconds if no host answers.
 */
static inline int en_find(const char *host, uint16_t port, struct sockaddr_en *address)
{
	struct sockaddr_en read;
	const char *percent = strrchr(host, '%');
	size_t length = percent ? (size_t)(percent - host) : strlen(host);
	char name[256];
	char service[sizeof("65535")];
	struct addrinfo hints, *all, *each;
	const char *behind;
	int found = 1;

	memset(&read, 0, sizeof(read));
	memset(&hints, 0, sizeof(hints));
	if (length == 0 || length >= sizeof(name))
		return 0;
	if (percent)
		found = en_interface(percent + 1, percent + 1 + strlen(percent + 1), &read.sen_ifindex);
	if (found != 1)
		return found;
	read.sen_family = AF_ENET;
	read.sen_port = htons(port);
	read.sen_addrlen = sizeof(read.sen_addr);
	behind = en_pairs(host, read.sen_addr);
	if (behind && behind == percent) {
		*address = read;
		return 1;
	}
	memcpy(name, host, length);
	name[length] = '\0';
	if (en_is_other_notation(name))
		return 0;
	snprintf(service, sizeof(service), "%u", (unsigned int)(port ? port : 9));
	hints.ai_socktype = SOCK_DGRAM;
	/* No host name contains a colon, so the resolver need not be asked. */
	hints.ai_flags = strchr(name, ':') ? AI_NUMERICHOST : 0;
	if (getaddrinfo(name, service, &hints, &all) != 0)
		return 0;
	found = 0;
	for (each = all; each && found != 1; each = each->ai_next) {
		*address = read;
		en_unmap(each->ai_addr, &each->ai_addrlen);
		if (each->ai_family == AF_INET6 && read.sen_ifindex)
			((struct sockaddr_in6 *)(void *)each->ai_addr)->sin6_scope_id = read.sen_ifindex;
		else if (each->ai_family == AF_INET6)
			address->sen_ifindex = ((struct sockaddr_in6 *)(void *)each->ai_addr)->sin6_scope_id;
		if (each->ai_family == AF_INET || each->ai_family == AF_INET6)
			found = en_resolve(each->ai_addr, each->ai_addrlen, address);
	}
	freeaddrinfo(all);
	return found;
}

/* Like en_find(), but changes `*address` only if it returns 1. */
static inline int en_lookup(const char *host, uint16_t port, struct sockaddr_en *address)
{
	struct sockaddr_en read;
	int found = en_find(host, port, &read);

	if (found == 1)
		*address = read;
	return found;
}

#else

/* This variable does not exist: its name in the compiler's error says what is missing. */
#define en_lookup(host, port, address) (en_lookup_needs_DEFAULT_SOURCE)

#endif /* ifr_hwaddr */

#ifdef __cplusplus
}
#endif

#endif /* EN_ADDRESS_H */
