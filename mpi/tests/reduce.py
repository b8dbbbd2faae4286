# SPDX-License-Identifier: GPL-2.0-only
"""Prints the mean time of MPI's reduce, by size.

Rank 0 gets sums of doubles. All ranks start at the same time.
"""

from mpi4py import MPI


def latency(comm, size, skip, loop):
    """Returns the mean of all ranks' times of a call, in microseconds."""
    count = size // MPI.DOUBLE.Get_size()
    mine = [MPI.Alloc_mem(size), count, MPI.DOUBLE]
    sums = [MPI.Alloc_mem(size), count, MPI.DOUBLE]
    memoryview(mine[0]).cast("d")[:] = memoryview(b"\0" * size).cast("d")
    memoryview(mine[0]).cast("d")[count - 1] = comm.rank + 1
    spent = 0.0
    for turn in range(skip + loop):
        comm.Barrier()
        begun = MPI.Wtime()
        comm.Reduce(mine, sums, MPI.SUM, 0)
        if turn >= skip:
            spent += MPI.Wtime() - begun
    if comm.rank == 0:
        got = memoryview(sums[0]).cast("d")[count - 1]
        expected = comm.size * (comm.size + 1) / 2
        assert got == expected, f"{got} in place of {expected}"
    MPI.Free_mem(mine[0])
    MPI.Free_mem(sums[0])
    return comm.allreduce(spent) / comm.size / loop * 1e6


def main():
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        print("# MPI Reduce Latency Test\n# Size [B]      Latency [us]")
    for power in range(3, 21):
        size = 1 << power
        skip, loop = (20, 100) if size <= 8192 else (2, 10)
        mean = latency(comm, size, skip, loop)
        if comm.rank == 0:
            print(f"{size:<10d}{mean:20.2f}", flush=True)


main()
