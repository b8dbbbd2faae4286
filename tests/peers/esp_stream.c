/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Moves a stream over ESP as any C program can: with only af_enet.h and libc.
 *
 *   esp_stream recv INTERFACE PORT        accepts one connection, copies it to standard output
 *   esp_stream send INTERFACE MAC PORT    connects, copies standard input to it
 *
 * Prints "listening" on standard error when a sender may connect. On failure, prints a message and
 * exits with status 1.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "af_enet.h"

static void die(const char *what)
{
	fprintf(stderr, "esp_stream: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void usage(void)
{
	fprintf(stderr, "usage: esp_stream recv INTERFACE PORT\n"
			"       esp_stream send INTERFACE MAC PORT\n");
	exit(2);
}

static in_port_t parse_port(const char *text)
{
	char *end;
	unsigned long port = strtoul(text, &end, 10);

	if (*text == '\0' || *end != '\0' || port == 0 || port > 65535) {
		fprintf(stderr, "esp_stream: a port is a number from 1 to 65535, not \"%s\"\n", text);
		exit(2);
	}
	return htons((uint16_t)port);
}

static void parse_mac(const char *text, uint8_t mac[6])
{
	int used = 0;

	if (sscanf(text, "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx%n", &mac[0], &mac[1], &mac[2],
		   &mac[3], &mac[4], &mac[5], &used) != 6 || text[used] != '\0') {
		fprintf(stderr, "esp_stream: \"%s\" is no Ethernet address\n", text);
		exit(2);
	}
}

static struct sockaddr_en on_interface(const char *name, in_port_t port)
{
	struct sockaddr_en address = { 0 };

	address.sen_family = AF_ENET;
	address.sen_port = port;
	address.sen_ifindex = if_nametoindex(name);
	if (address.sen_ifindex == 0)
		die(name);
	return address;
}

/* Copies `from` to `to` until `from` ends; continues after short writes. */
static void copy(int from, int to)
{
	static char buffer[64 * 1024];
	ssize_t got, put;

	while ((got = read(from, buffer, sizeof(buffer))) != 0) {
		if (got < 0)
			die("read");
		for (ssize_t done = 0; done < got; done += put) {
			put = write(to, buffer + done, (size_t)(got - done));
			if (put < 0)
				die("write");
		}
	}
}

static void receive(const char *interface, const char *port)
{
	struct sockaddr_en here = on_interface(interface, parse_port(port));
	int listener = socket(AF_ENET, SOCK_STREAM, EPPROTO_ESP);
	int stream;

	if (listener < 0)
		die("socket");
	if (bind(listener, (struct sockaddr *)&here, sizeof(here)) < 0)
		die("bind");
	if (listen(listener, 1) < 0)
		die("listen");
	fprintf(stderr, "listening\n");
	stream = accept(listener, NULL, NULL);
	if (stream < 0)
		die("accept");
	copy(stream, STDOUT_FILENO);
	if (close(stream) < 0 || close(listener) < 0)
		die("close");
}

static void send_to(const char *interface, const char *mac, const char *port)
{
	struct sockaddr_en there = on_interface(interface, parse_port(port));
	int stream = socket(AF_ENET, SOCK_STREAM, EPPROTO_ESP);
	char end;

	if (stream < 0)
		die("socket");
	there.sen_addrlen = sizeof(there.sen_addr);
	parse_mac(mac, there.sen_addr);
	if (connect(stream, (struct sockaddr *)&there, sizeof(there)) < 0)
		die("connect");
	copy(STDIN_FILENO, stream);
	if (shutdown(stream, SHUT_WR) < 0)
		die("shutdown");
	/* The receiver closes its half when it has received everything. */
	if (read(stream, &end, 1) != 0)
		die("waiting for the receiver to finish");
	if (close(stream) < 0)
		die("close");
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "recv") == 0)
		receive(argv[2], argv[3]);
	else if (argc == 5 && strcmp(argv[1], "send") == 0)
		send_to(argv[2], argv[3], argv[4]);
	else
		usage();
	return 0;
}
