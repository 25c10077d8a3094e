/* A parallel program for `cargo rig c-abi`: each part checks its results and says that it is done; the last part measures.
 *
 *     mpi LARGEST_BYTES
 *
 * LARGEST_BYTES is the size of the largest messages and reductions. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static void fail(const char *what, size_t at)
{
    fprintf(stderr, "rank %d: wrong data: %s, element %zu\n", rank, what, at);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void done(const char *what)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%s done\n", what);
        fflush(stdout);
    }
}

/* Element `at` of what rank `from` sends to rank `to`. */
static int element(int from, int to, size_t at)
{
    return (int)(at * 2654435761u) ^ from << 8 ^ to;
}

static int *numbers(size_t count)
{
    int *made = calloc(count ? count : 1, sizeof(int));
    if (!made)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return made;
}

/* Each rank sends to the next one, and has what the one before it sent. */
static void ring(size_t bytes)
{
    size_t count = bytes / sizeof(int);
    int *out = numbers(count), *in = numbers(count);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (size_t at = 0; at < count; at++)
        out[at] = element(rank, next, at);
    MPI_Sendrecv(out, (int)count, MPI_INT, next, 1, in, (int)count, MPI_INT, before, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (size_t at = 0; at < count; at++)
        if (in[at] != element(before, rank, at))
            fail("ring", at);
    free(out);
    free(in);
}

/* Sums of small whole numbers, which are exact whatever the order is. */
static void allreduce(size_t bytes)
{
    size_t count = bytes / sizeof(double);
    double *own = malloc(bytes), *sum = calloc(count, sizeof(double));
    if (!own || !sum)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (size_t at = 0; at < count; at++)
        own[at] = (double)(at % 1000 + (size_t)rank);
    MPI_Allreduce(own, sum, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (size_t at = 0; at < count; at++)
        if (sum[at] != (double)(at % 1000 * (size_t)ranks + (size_t)(ranks * (ranks - 1) / 2)))
            fail("allreduce", at);
    free(own);
    free(sum);
}

/* Each rank has something for each other one. */
static void alltoall(size_t bytes)
{
    size_t count = bytes / sizeof(int);
    int *out = numbers(count * (size_t)ranks), *in = numbers(count * (size_t)ranks);
    for (int to = 0; to < ranks; to++)
        for (size_t at = 0; at < count; at++)
            out[(size_t)to * count + at] = element(rank, to, at);
    MPI_Alltoall(out, (int)count, MPI_INT, in, (int)count, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        for (size_t at = 0; at < count; at++)
            if (in[(size_t)from * count + at] != element(from, rank, at))
                fail("alltoall", at);
    free(out);
    free(in);
}

/* Puts into the next rank's window, and gets from the window of the one before. */
static void one_sided(size_t bytes)
{
    size_t count = bytes / sizeof(int);
    int *window, *out = numbers(count), *in = numbers(count);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Win win;
    MPI_Win_allocate((MPI_Aint)(2 * count * sizeof(int)), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window, &win);
    MPI_Win_fence(0, win);
    for (size_t at = 0; at < count; at++) {
        out[at] = element(rank, next, at);
        window[count + at] = element(rank, rank, at);
    }
    MPI_Win_fence(0, win);
    MPI_Put(out, (int)count, MPI_INT, next, 0, (int)count, MPI_INT, win);
    MPI_Get(in, (int)count, MPI_INT, before, (MPI_Aint)count, (int)count, MPI_INT, win);
    MPI_Win_fence(0, win);
    for (size_t at = 0; at < count; at++) {
        if (window[at] != element(before, rank, at))
            fail("put", at);
        if (in[at] != element(before, before, at))
            fail("get", at);
    }
    MPI_Win_free(&win);
    free(out);
    free(in);
}

/* Half the time of a round trip between ranks 0 and 1, in microseconds. */
static double half_trip(int *buffer, size_t bytes, int times)
{
    double begun = MPI_Wtime();
    for (int round = 0; round < times; round++) {
        if (rank == 0) {
            MPI_Send(buffer, (int)bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
            MPI_Recv(buffer, (int)bytes, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else if (rank == 1) {
            MPI_Recv(buffer, (int)bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(buffer, (int)bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
        }
    }
    return (MPI_Wtime() - begun) / (2 * times) * 1e6;
}

int main(int argc, char **argv)
{
    size_t largest = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 16;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0)
        printf("%d ranks\n", ranks);
    for (size_t bytes = 8; bytes <= largest; bytes *= 8)
        ring(bytes);
    ring(largest);
    done("ring");
    for (size_t bytes = 8; bytes <= largest; bytes *= 8)
        allreduce(bytes);
    allreduce(largest);
    done("allreduce");
    for (size_t bytes = 8; bytes <= largest / 8; bytes *= 8)
        alltoall(bytes);
    done("alltoall");
    for (size_t bytes = 8; bytes <= largest / 8; bytes *= 8)
        one_sided(bytes);
    done("one-sided");
    int *buffer = numbers(largest / sizeof(int) + 1);
    half_trip(buffer, 8, 10);
    double small = half_trip(buffer, 8, 200);
    double large = half_trip(buffer, largest, 10);
    if (rank == 0)
        printf("latency %.1f us, bandwidth %.1f MB/s\n", small, (double)largest / large);
    free(buffer);
    MPI_Finalize();
    return 0;
}
