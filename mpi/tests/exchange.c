/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The test program that mk/mpi runs over the component: each rank prints hello, pairs of ranks
 * exchange messages of all sizes, and all ranks call allreduce and alltoall. Every byte is checked.
 *
 *   exchange              does all of that once; rank 0 prints a line for each part
 *   exchange die SECONDS  exchanges messages until rank 1 kills itself after SECONDS seconds
 *   exchange time SIZE ROUNDS  prints half a round trip between ranks 0 and 1 in microseconds
 *   exchange last SECONDS  exchanges large messages for SECONDS seconds; every byte is checked
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, ranks;

static void fail(const char *what, size_t size)
{
    fprintf(stderr, "rank %d: %s of %zu bytes: wrong bytes\n", rank, what, size);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(seed + i * 7 + (i >> 8));
}

static int differs(const unsigned char *bytes, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != (unsigned char)(seed + i * 7 + (i >> 8)))
            return 1;
    return 0;
}

static void *memory(size_t size)
{
    void *found = malloc(size ? size : 1);
    if (!found)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return found;
}

static void ping_pong(void)
{
    static const size_t sizes[] = { 0, 1, 13, 64, 1000, 4096, 65000, 65536, 70000, 131072, 1000003, 4194304 };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t size = sizes[i];
        unsigned char *bytes = memory(size);
        for (int distance = 1; distance < ranks; distance++) {
            int peer = rank ^ distance;
            if (peer >= ranks)
                continue;
            for (int round = 0; round < 3; round++) {
                if (rank < peer) {
                    fill(bytes, size, rank + round);
                    MPI_Send(bytes, size, MPI_BYTE, peer, round, MPI_COMM_WORLD);
                    MPI_Recv(bytes, size, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    if (differs(bytes, size, peer + 2 * round))
                        fail("ping-pong", size);
                } else {
                    MPI_Recv(bytes, size, MPI_BYTE, peer, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                    if (differs(bytes, size, peer + round))
                        fail("ping-pong", size);
                    fill(bytes, size, rank + 2 * round);
                    MPI_Send(bytes, size, MPI_BYTE, peer, round, MPI_COMM_WORLD);
                }
            }
        }
        free(bytes);
    }
    /* The type selects every other double, so the data has to be packed. */
    MPI_Datatype strided;
    double numbers[2000], got[2000];
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    MPI_Type_vector(1000, 1, 2, MPI_DOUBLE, &strided);
    MPI_Type_commit(&strided);
    for (int i = 0; i < 2000; i++)
        numbers[i] = rank * 10000 + i, got[i] = -1;
    MPI_Sendrecv(numbers, 1, strided, next, 9, got, 1, strided, previous, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2000; i += 2)
        if (got[i] != previous * 10000 + i)
            fail("strided message", sizeof(got));
    MPI_Type_free(&strided);
}

static void allreduce(void)
{
    for (int count = 1; count <= 100000; count *= 10) {
        long *mine = memory(count * sizeof(long)), *sum = memory(count * sizeof(long));
        for (int i = 0; i < count; i++)
            mine[i] = (long)i * (rank + 1);
        MPI_Allreduce(mine, sum, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++)
            if (sum[i] != (long)i * ranks * (ranks + 1) / 2)
                fail("allreduce", count * sizeof(long));
        free(mine);
        free(sum);
    }
}

static void alltoall(void)
{
    for (size_t size = 1; size <= 200000; size = size * 7 + 1) {
        unsigned char *out = memory(size * ranks), *in = memory(size * ranks);
        for (int peer = 0; peer < ranks; peer++)
            fill(out + peer * size, size, rank * 16 + peer);
        MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
        for (int peer = 0; peer < ranks; peer++)
            if (differs(in + peer * size, size, peer * 16 + rank))
                fail("alltoall", size);
        free(out);
        free(in);
    }
}

static void die(unsigned seconds)
{
    double end = MPI_Wtime() + seconds;
    for (;;) {
        int stop = 0;
        MPI_Allreduce(MPI_IN_PLACE, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (rank == 1 && MPI_Wtime() > end) {
            fprintf(stderr, "rank 1 kills itself\n");
            raise(SIGKILL);
        }
    }
}

static void last(unsigned seconds)
{
    double end = MPI_Wtime() + seconds;
    size_t size = 1 << 20;
    unsigned char *out = memory(size), *in = memory(size);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, rounds, go = 1;
    for (rounds = 0; go; rounds++) {
        fill(out, size, rank + rounds);
        MPI_Sendrecv(out, size, MPI_BYTE, next, 0, in, size, MPI_BYTE, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (differs(in, size, previous + rounds))
            fail("large message", size);
        go = MPI_Wtime() < end;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("large messages: right on %d ranks, %d rounds\n", ranks, rounds);
    free(out);
    free(in);
}

static void measure(size_t size, int rounds)
{
    unsigned char *bytes = memory(size);
    double start = 0;
    memset(bytes, 1, size);
    for (int round = -rounds / 10 - 1; round < rounds; round++) {
        if (round == 0)
            start = MPI_Wtime();
        if (rank == 0) {
            MPI_Send(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Recv(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
        }
    }
    if (rank == 0)
        printf("%zu bytes: %.2f us\n", size, (MPI_Wtime() - start) / rounds / 2 * 1e6);
    free(bytes);
}

static void say(const char *what)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s: right on %d ranks\n", what, ranks);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    char host[MPI_MAX_PROCESSOR_NAME];
    int length;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(host, &length);
    if (argc == 3 && !strcmp(argv[1], "die")) {
        die(atoi(argv[2]));
    } else if (argc == 3 && !strcmp(argv[1], "last")) {
        last(atoi(argv[2]));
    } else if (argc == 4 && !strcmp(argv[1], "time")) {
        measure(atol(argv[2]), atoi(argv[3]));
    } else {
        printf("hello from rank %d of %d on %s\n", rank, ranks, host);
        fflush(stdout);
        ping_pong();
        say("ping-pong");
        allreduce();
        say("allreduce");
        alltoall();
        say("alltoall");
    }
    MPI_Finalize();
    return 0;
}
