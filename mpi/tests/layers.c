// SPDX-License-Identifier: GPL-2.0-only
/*
 * layers TURNS: two ranks exchange a double TURNS times. Rank 0 first prints its process ID. Then
 * it prints three points in time for each exchange: when it called MPI_Send, when MPI_Send
 * returned, and when MPI_Recv returned. The times are in ns of CLOCK_MONOTONIC, which is also the
 * clock of the kernel's trace.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST 10000

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv)
{
	static long long times[MOST][3];
	int rank, turns = argc == 2 ? atoi(argv[1]) : 0;
	double value = 1;

	if (turns < 1 || turns > MOST)
		return 2;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < turns; i++) {
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 0) {
			times[i][0] = now();
			MPI_Send(&value, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD);
			times[i][1] = now();
			MPI_Recv(&value, 1, MPI_DOUBLE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			times[i][2] = now();
		} else if (rank == 1) {
			MPI_Recv(&value, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			value += 1;
			MPI_Send(&value, 1, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
		}
	}
	if (rank == 0) {
		printf("pid %d\n", getpid());
		for (int i = 0; i < turns; i++)
			printf("times %lld %lld %lld\n", times[i][0], times[i][1], times[i][2]);
		/* The peer adds one in each exchange. */
		if (value != turns + 1)
			MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Finalize();
	return 0;
}
