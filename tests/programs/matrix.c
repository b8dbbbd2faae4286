// SPDX-License-Identifier: GPL-2.0-only
/*
 * matrix give PORT WORKERS SIZE TIMES: waits for WORKERS on other hosts. With them it multiplies
 * two matrices of SIZE by SIZE, TIMES times. Each worker gets a band of the first matrix's rows and
 * the whole second matrix, and returns the same band of the product. select() tells which workers
 * have sent bytes. Prints the mean time of a multiplication in ns, without the first one.
 *
 * matrix take ADDRESS PORT: a worker.
 */
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_WORKERS 16
#define MOST_SIZE 512

/* A band's number of rows, and the number of rows and columns of both matrices. */
struct band {
	int rows, size;
};

struct worker {
	int fd;
	struct band band;
	double *product;
	size_t got;
};

static void *room(size_t count)
{
	void *memory = calloc(count, sizeof(double));

	if (!memory)
		err(1, "calloc");
	return memory;
}

static void put(int fd, const void *from, size_t length)
{
	while (length) {
		ssize_t n = write(fd, from, length);

		if (n <= 0)
			err(1, "write");
		from = (const char *)from + n;
		length -= n;
	}
}

/* Returns 0 if the connection ends before the first byte, 1 if all bytes came; otherwise exits. */
static int get(int fd, void *to, size_t length)
{
	size_t got = 0;

	while (got < length) {
		ssize_t n = read(fd, (char *)to + got, length - got);

		if (n == 0 && got == 0)
			return 0;
		if (n <= 0)
			err(1, "read");
		got += n;
	}
	return 1;
}

static void undelayed(int fd)
{
	int on = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		err(1, "TCP_NODELAY");
}

static void multiply(const double *a, const double *b, double *c, struct band band)
{
	for (int i = 0; i < band.rows; i++)
		for (int k = 0; k < band.size; k++)
			for (int j = 0; j < band.size; j++)
				c[i * band.size + j] += a[i * band.size + k] * b[k * band.size + j];
}

static int take(struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct band band;

	if (fd < 0 || connect(fd, (struct sockaddr *)to, sizeof(*to)))
		err(1, "connect");
	undelayed(fd);
	while (get(fd, &band, sizeof(band))) {
		size_t part = (size_t)band.rows * band.size, all = (size_t)band.size * band.size;
		double *a = room(part), *b = room(all), *c = room(part);

		if (!get(fd, a, part * sizeof(double)) || !get(fd, b, all * sizeof(double)))
			errx(1, "no matrices");
		multiply(a, b, c, band);
		put(fd, c, part * sizeof(double));
		free(a);
		free(b);
		free(c);
	}
	return 0;
}

/* Reads the bytes that have arrived of a worker's band. Returns whether the band is complete. */
static int more(struct worker *one)
{
	size_t whole = (size_t)one->band.rows * one->band.size * sizeof(double);
	ssize_t n = read(one->fd, (char *)one->product + one->got, whole - one->got);

	if (n <= 0)
		err(1, "a worker's band");
	one->got += n;
	return one->got == whole;
}

static void once(struct worker *workers, int count, const double *a, const double *b)
{
	int left = count;

	for (int i = 0; i < count; i++) {
		struct band band = workers[i].band;

		put(workers[i].fd, &band, sizeof(band));
		put(workers[i].fd, a, (size_t)band.rows * band.size * sizeof(double));
		put(workers[i].fd, b, (size_t)band.size * band.size * sizeof(double));
		a += (size_t)band.rows * band.size;
		workers[i].got = 0;
	}
	while (left) {
		fd_set set;
		int most = 0;

		FD_ZERO(&set);
		for (int i = 0; i < count; i++) {
			size_t whole = (size_t)workers[i].band.rows * workers[i].band.size * sizeof(double);

			if (workers[i].got < whole)
				FD_SET(workers[i].fd, &set);
			most = workers[i].fd > most ? workers[i].fd : most;
		}
		if (select(most + 1, &set, NULL, NULL, NULL) < 0)
			err(1, "select");
		for (int i = 0; i < count; i++)
			if (FD_ISSET(workers[i].fd, &set))
				left -= more(&workers[i]);
	}
}

/* Accepts each worker when select() reports its connection, and assigns a band of rows to it. */
static void gather(int listener, struct worker *workers, int count, int size, double *product)
{
	for (int i = 0, row = 0; i < count; i++) {
		int end = size * (i + 1) / count;
		fd_set set;

		FD_ZERO(&set);
		FD_SET(listener, &set);
		if (select(listener + 1, &set, NULL, NULL, NULL) < 0)
			err(1, "select");
		workers[i].fd = accept(listener, NULL, NULL);
		if (workers[i].fd < 0)
			err(1, "accept");
		undelayed(workers[i].fd);
		workers[i].band = (struct band){ .rows = end - row, .size = size };
		workers[i].product = product + (size_t)row * size;
		row = end;
	}
}

static int give(struct sockaddr_in *here, int count, int size, int times)
{
	struct worker workers[MOST_WORKERS];
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	size_t all = (size_t)size * size;
	double *a = room(all), *b = room(all), *c = room(all), *expected = room(all);
	struct timespec from, until;

	for (size_t i = 0; i < all; i++) {
		a[i] = i % 7;
		b[i] = i % 11;
	}
	multiply(a, b, expected, (struct band){ .rows = size, .size = size });
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    bind(listener, (struct sockaddr *)here, sizeof(*here)) || listen(listener, count))
		err(1, "listen");
	gather(listener, workers, count, size, c);
	for (int i = 0; i <= times; i++) {
		if (i == 1) {
			/* Clear the first product, so that a later one is compared. */
			memset(c, 0, all * sizeof(double));
			clock_gettime(CLOCK_MONOTONIC, &from);
		}
		once(workers, count, a, b);
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	/* All elements are small integers, so the sums are exact. */
	if (memcmp(c, expected, all * sizeof(double)))
		errx(1, "the product is wrong");
	printf("%.0f\n", ((until.tv_sec - from.tv_sec) * 1e9 + (until.tv_nsec - from.tv_nsec)) / times);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET };

	if (argc == 4 && !strcmp(argv[1], "take") && inet_aton(argv[2], &address.sin_addr)) {
		address.sin_port = htons(atoi(argv[3]));
		return take(&address);
	}
	if (argc == 6 && !strcmp(argv[1], "give")) {
		int count = atoi(argv[3]), size = atoi(argv[4]), times = atoi(argv[5]);

		address.sin_port = htons(atoi(argv[2]));
		if (count >= 1 && count <= MOST_WORKERS && size >= count && size <= MOST_SIZE && times >= 1)
			return give(&address, count, size, times);
	}
	errx(2, "usage: matrix give PORT WORKERS SIZE TIMES, or matrix take ADDRESS PORT");
}
