/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * PF_ENET addresses as text, as inet_pton(3) and inet_ntop(3) do for IP:
 *
 *   02:00:00:00:00:01%eth0:2805   a host's Ethernet address, the interface to send through, a port
 *   *%eth0:2805                   for bind: the port on one interface
 *   *:2805                        for bind: the port on all interfaces
 *
 * An interface that has digits only is an interface number.
 */
#ifndef EN_ADDRESS_H
#define EN_ADDRESS_H

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "af_enet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of the longest text that en_ntop() writes, its NUL included. */
#define EN_ADDRSTRLEN (sizeof("00:00:00:00:00:00%:65535") + IF_NAMESIZE - 1)

/* The value of a hexadecimal digit, or -1. */
static inline int en_hex(char digit)
{
	static const char digits[] = "0123456789abcdef";
	char lower = digit >= 'A' && digit <= 'F' ? (char)(digit - 'A' + 'a') : digit;
	const char *place = lower ? strchr(digits, lower) : NULL;

	return place ? (int)(place - digits) : -1;
}

/* Reads decimal digits up to `end`, a number of at most `most`; returns 1, or 0 if it is none. */
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

/* Reads six hexadecimal pairs; returns what follows them, or NULL if there are none. */
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

/*
 * Reads the interface from `text` to `end`. Returns 1, 0 if no interface can be called so, or -1 with
 * errno if there is none of that name.
 */
static inline int en_interface(const char *text, const char *end, uint32_t *index)
{
	char name[IF_NAMESIZE];
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
	*index = if_nametoindex(name);
	return *index ? 1 : -1;
}

/*
 * Reads an address from text. Returns 1; 0 if the text is no address; or -1 with errno ENODEV if this
 * network namespace has no interface of that name.
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
 * Writes an address as text into `size` bytes at `text`, EN_ADDRSTRLEN at most; an interface that is
 * gone by its number. Returns `text`, or NULL with errno ENOSPC if there is too little room.
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

#ifdef __cplusplus
}
#endif

#endif /* EN_ADDRESS_H */
