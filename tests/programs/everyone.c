// SPDX-License-Identifier: GPL-2.0-only
/*
 * everyone: a program of MPI. Each rank exchanges a message with each other rank, in both sizes:
 * one that MPI sends at once, and one that it announces. Then all ranks add up numbers.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Every rank calls this with the ranks in the same order, so that no two wait for each other. */
static void exchange(int rank, int other, int size)
{
	char *out = malloc(size), *in = malloc(size), *right = malloc(size);

	if (!out || !in || !right)
		fail("no memory");
	memset(out, rank + 1, size);
	memset(right, other + 1, size);
	MPI_Sendrecv(out, size, MPI_BYTE, other, 0, in, size, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (memcmp(in, right, size))
		fail("wrong bytes");
	free(out);
	free(in);
	free(right);
}

int main(int argc, char **argv)
{
	int rank, ranks, low, high, sum;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (low = 0; low < ranks; low++) {
		for (high = low + 1; high < ranks; high++) {
			if (rank != low && rank != high)
				continue;
			exchange(rank, rank == low ? high : low, 16);
			exchange(rank, rank == low ? high : low, 1 << 18);
		}
	}
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != ranks * (ranks - 1) / 2)
		fail("a wrong sum");
	if (!rank)
		printf("%d ranks have exchanged messages\n", ranks);
	MPI_Finalize();
	return 0;
}
