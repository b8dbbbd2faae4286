/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The test program for one-sided calls, which mk/mpi and mpi/tests/hosts run over the component.
 *
 *   onesided                  puts, gets, accumulates, locks and fences on windows of all kinds;
 *                             rank 0 prints a line for each part
 *   onesided compute SECONDS  rank 0 puts into rank 1, which computes for SECONDS seconds without
 *                             a call of MPI
 *   onesided last SECONDS     puts to the next rank for SECONDS seconds; every byte is checked
 */
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;

static void check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "rank %d: %s: wrong\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *memory(size_t size)
{
    void *found = calloc(1, size);
    if (!found)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return found;
}

static void say(const char *what)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s: right on %d ranks\n", what, ranks);
        fflush(stdout);
    }
}

/* Returns the byte at `place` of the data that rank `from` puts in round `round`. */
static unsigned char byte_of(int from, int round, size_t place)
{
    return (unsigned char)(1 + from * 31 + round * 7 + place * 3 + (place >> 8));
}

/* Each rank has a part of `part` bytes in the windows of all ranks, the own one included. */
static void put_and_get(MPI_Win window, unsigned char *own, MPI_Aint base[], size_t part, int fenced)
{
    static const size_t sizes[] = { 1, 8, 1000, 65536, 300001, 1 << 20 };
    unsigned char *out = memory(part), *in = memory(part);

    for (int round = 0; round < 6; round++) {
        size_t size = sizes[round] < part ? sizes[round] : part;
        for (size_t i = 0; i < size; i++)
            out[i] = byte_of(rank, round, i);
        if (fenced)
            MPI_Win_fence(0, window);
        else
            MPI_Win_lock_all(0, window);
        for (int to = 0; to < ranks; to++)
            MPI_Put(out, size, MPI_BYTE, to, base[to] + rank * part, size, MPI_BYTE, window);
        if (fenced) {
            MPI_Win_fence(0, window);
        } else {
            MPI_Win_flush_all(window);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_sync(window);
        }
        for (int from = 0; from < ranks; from++)
            for (size_t i = 0; i < size; i++)
                check(own[from * part + i] == byte_of(from, round, i), "put");
        for (int from = 0; from < ranks; from++) {
            memset(in, 0, size);
            MPI_Get(in, size, MPI_BYTE, from, base[from] + rank * part, size, MPI_BYTE, window);
            if (fenced)
                MPI_Win_fence(0, window);
            else
                MPI_Win_flush(from, window);
            check(!memcmp(in, out, size), "get");
        }
        if (fenced) {
            MPI_Win_fence(0, window);
        } else {
            MPI_Win_unlock_all(window);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    free(out);
    free(in);
}

static void wide(MPI_Win window, unsigned char *own, size_t part, const char *what)
{
    MPI_Aint *base = memory(ranks * sizeof(*base));

    put_and_get(window, own, base, part, 1);
    put_and_get(window, own, base, part, 0);
    free(base);
    MPI_Win_free(&window);
    say(what);
}

static void created(size_t part)
{
    unsigned char *own = memory(part * ranks);
    MPI_Win window;

    MPI_Win_create(own, part * ranks, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    wide(window, own, part, "created window");
    free(own);
}

static void allocated(size_t part)
{
    unsigned char *own;
    MPI_Win window;

    MPI_Win_allocate(part * ranks, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    wide(window, own, part, "allocated window");
}

static void dynamic(size_t part)
{
    unsigned char *own = memory(part * ranks);
    MPI_Aint *base = memory(ranks * sizeof(*base)), mine;
    MPI_Win window;

    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_attach(window, own, part * ranks);
    MPI_Get_address(own, &mine);
    MPI_Allgather(&mine, 1, MPI_AINT, base, 1, MPI_AINT, MPI_COMM_WORLD);
    put_and_get(window, own, base, part, 0);
    MPI_Win_detach(window, own);
    MPI_Win_free(&window);
    free(base);
    free(own);
    say("dynamic window");
}

/* Every rank counts in the windows of all ranks, by operations that must not disturb each other. */
static void atomics(int single)
{
    enum { ROUNDS = 20, LONGS = 6, MANY = 1000 };
    struct numbers {
        int64_t longs[LONGS];
        int32_t ints[4];
        double sum;
        int64_t many[MANY];
    } *own = memory(sizeof(*own));
    MPI_Info info;
    MPI_Win window;
    int64_t ones[MANY];

    for (int i = 0; i < MANY; i++)
        ones[i] = i;
    own->longs[2] = -1;
    own->longs[3] = 1000;
    own->ints[3] = 77;
    MPI_Info_create(&info);
    if (single)
        MPI_Info_set(info, "acc_single_intrinsic", "true");
    MPI_Win_create(own, sizeof(*own), 1, info, MPI_COMM_WORLD, &window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int round = 0; round < ROUNDS; round++) {
        for (int to = 0; to < ranks; to++) {
            int64_t one = 1, old, bit = (int64_t)1 << rank, expected = 0, mine = rank + 1, least = -rank;
            int32_t small = 1, small_old;
            double real = 0.5;
#define AT(field) offsetof(struct numbers, field)
            MPI_Fetch_and_op(&one, &old, MPI_INT64_T, to, AT(longs[0]), MPI_SUM, window);
            MPI_Win_flush(to, window);
            check(old >= round && old < (int64_t)ROUNDS * ranks, "fetch and add");
            MPI_Fetch_and_op(&small, &small_old, MPI_INT32_T, to, AT(ints[0]), MPI_SUM, window);
            MPI_Accumulate(&bit, 1, MPI_INT64_T, to, AT(longs[1]), 1, MPI_INT64_T, MPI_BOR, window);
            MPI_Accumulate(&bit, 1, MPI_INT64_T, to, AT(longs[2]), 1, MPI_INT64_T, MPI_BAND, window);
            MPI_Accumulate(&least, 1, MPI_INT64_T, to, AT(longs[3]), 1, MPI_INT64_T, MPI_MIN, window);
            MPI_Accumulate(&real, 1, MPI_DOUBLE, to, AT(sum), 1, MPI_DOUBLE, MPI_SUM, window);
            MPI_Win_flush(to, window);
            check(small_old >= round && small_old < ROUNDS * ranks, "fetch and add of 32 bits");
            if (!single) {
                MPI_Accumulate(ones, MANY, MPI_INT64_T, to, AT(many), MANY, MPI_INT64_T, MPI_SUM, window);
                MPI_Get_accumulate(&one, 1, MPI_INT64_T, &old, 1, MPI_INT64_T, to, AT(longs[5]), 1, MPI_INT64_T, MPI_SUM, window);
                MPI_Win_flush(to, window);
                check(old >= round && old < (int64_t)ROUNDS * ranks, "get and accumulate");
            }
            /* A lock by compare and swap protects a number that is read and put. */
            do {
                MPI_Compare_and_swap(&mine, &expected, &old, MPI_INT64_T, to, AT(longs[4]), window);
                MPI_Win_flush(to, window);
            } while (old != 0);
            MPI_Get(&small, 1, MPI_INT32_T, to, AT(ints[1]), 1, MPI_INT32_T, window);
            MPI_Win_flush(to, window);
            small++;
            MPI_Put(&small, 1, MPI_INT32_T, to, AT(ints[1]), 1, MPI_INT32_T, window);
            MPI_Win_flush(to, window);
            MPI_Compare_and_swap(&expected, &mine, &old, MPI_INT64_T, to, AT(longs[4]), window);
            MPI_Win_flush(to, window);
            check(old == mine, "compare and swap");
        }
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    check(own->longs[0] == (int64_t)ROUNDS * ranks, "sum of 64 bits");
    check(own->ints[0] == ROUNDS * ranks, "sum of 32 bits");
    check(own->ints[1] == ROUNDS * ranks, "numbers under a lock");
    check(own->ints[2] == 0 && own->ints[3] == 77, "numbers beside those that changed");
    check(own->longs[1] == ((int64_t)1 << ranks) - 1, "bits set");
    check(own->longs[2] == (ranks > 1 ? 0 : 1), "bits kept");
    check(own->longs[3] == -(ranks - 1), "minimum");
    check(own->sum == ROUNDS * ranks * 0.5, "sum of doubles");
    for (int i = 0; !single && i < MANY; i++)
        check(own->many[i] == (int64_t)i * ROUNDS * ranks, "sums of many");
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    /* Exclusive locks. */
    for (int round = 0; round < 20; round++) {
        int64_t value;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, round % ranks, 0, window);
        MPI_Get(&value, 1, MPI_INT64_T, round % ranks, AT(longs[0]), 1, MPI_INT64_T, window);
        MPI_Win_flush(round % ranks, window);
        value++;
        MPI_Put(&value, 1, MPI_INT64_T, round % ranks, AT(longs[0]), 1, MPI_INT64_T, window);
        MPI_Win_unlock(round % ranks, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    int turns = (20 - rank + ranks - 1) / ranks;
    check(own->longs[0] == (int64_t)ROUNDS * ranks + (int64_t)turns * ranks, "exclusive locks");
    MPI_Win_unlock(rank, window);
    MPI_Info_free(&info);
    MPI_Win_free(&window);
    free(own);
    say(single ? "atomic operations on single numbers" : "atomic operations");
}

/* Post, start, complete and wait between neighbours in a ring. */
static void neighbours(void)
{
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, own = -1;
    MPI_Group all, to, from;
    MPI_Win window;

    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &next, &to);
    MPI_Group_incl(all, 1, &previous, &from);
    MPI_Win_create(&own, sizeof(own), sizeof(own), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int round = 0; round < 20; round++) {
        int value = rank * 100 + round;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(&value, 1, MPI_INT, next, 0, 1, MPI_INT, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        check(own == previous * 100 + round, "post and wait");
    }
    MPI_Win_free(&window);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&all);
    say("neighbours");
}

enum { LARGE = 1 << 20 };

/* Computes until `end`. Returns the time at which the last byte of `own` was `last`, or 0. */
static double compute(volatile unsigned char *own, unsigned char last, double end)
{
    double seen = 0;
    volatile double result = 1;

    while (MPI_Wtime() < end) {
        for (int i = 0; i < 1000; i++)
            result = result * 1.0000001 + 0.1;
        if (!seen && own[LARGE - 1] == last)
            seen = MPI_Wtime();
    }
    return seen;
}

/* Rank 0 puts, while rank 1 computes for `seconds` seconds without a call of MPI. */
static void computing(double seconds)
{
    unsigned char *own = memory(LARGE), *out = memory(LARGE);
    MPI_Win window;

    MPI_Win_create(own, LARGE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    /* The first access to a window of another process needs that process. */
    MPI_Win_fence(0, window);
    if (rank == 0)
        MPI_Put(out, 1, MPI_BYTE, 1, 0, 1, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    for (int fenced = 0; fenced < 2; fenced++) {
        for (size_t i = 0; i < LARGE; i++)
            out[i] = byte_of(0, fenced, i);
        unsigned char last = out[LARGE - 1];
        if (fenced)
            MPI_Win_fence(0, window);
        else
            MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime(), took = 0;
        if (rank == 0) {
            for (size_t at = 0; at < LARGE; at += LARGE / 4)
                MPI_Put(out + at, LARGE / 4, MPI_BYTE, 1, at, LARGE / 4, MPI_BYTE, window);
            if (!fenced) {
                MPI_Win_flush(1, window);
                took = MPI_Wtime() - start;
                printf("flush: the puts were complete after %.3f s\n", took);
                check(took < seconds / 2, "the flush waited for the target");
            }
        } else if (rank == 1) {
            double seen = compute(own, last, start + seconds);
            printf("%s: the target computed for %.3f s, and saw the data after %.3f s\n",
                   fenced ? "fence" : "flush", MPI_Wtime() - start, seen ? seen - start : -1);
            check(seen && seen - start < seconds / 2, "the data came too late");
            check(!memcmp(own, out, LARGE), "put");
        }
        if (fenced)
            MPI_Win_fence(0, window);
        else
            MPI_Win_unlock_all(window);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Win_free(&window);
    free(own);
    free(out);
    say("puts to a process that computes");
}

/* Each rank puts to the next one, flushes, and checks what the previous one has put. */
static void last(double seconds)
{
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, rounds, go = 1;
    unsigned char *own = memory(LARGE), *out = memory(LARGE);
    double end = MPI_Wtime() + seconds;
    MPI_Win window;

    MPI_Win_create(own, LARGE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_lock_all(0, window);
    for (rounds = 0; go; rounds++) {
        for (size_t i = 0; i < LARGE; i++)
            out[i] = byte_of(rank, rounds, i);
        for (size_t at = 0; at < LARGE; at += LARGE / 16)
            MPI_Put(out + at, LARGE / 16, MPI_BYTE, next, at, LARGE / 16, MPI_BYTE, window);
        MPI_Win_flush(next, window);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_sync(window);
        for (size_t i = 0; i < LARGE; i++)
            check(own[i] == byte_of(previous, rounds, i), "put");
        MPI_Barrier(MPI_COMM_WORLD);
        go = MPI_Wtime() < end;
        MPI_Bcast(&go, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    free(own);
    free(out);
    if (rank == 0)
        printf("lasting puts: right on %d ranks, %d rounds\n", ranks, rounds);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc == 3 && !strcmp(argv[1], "compute")) {
        computing(atof(argv[2]));
    } else if (argc == 3 && !strcmp(argv[1], "last")) {
        last(atof(argv[2]));
    } else {
        created(1 << 20);
        allocated(1 << 20);
        dynamic(1 << 18);
        atomics(0);
        atomics(1);
        neighbours();
    }
    MPI_Finalize();
    return 0;
}
