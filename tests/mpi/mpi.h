/* mpi.h - what the files of test_mpi share. */
#ifndef TEST_MPI_H
#define TEST_MPI_H
#include <softmax/mpi.h>
#include <stdbool.h>
#include <stdio.h>

extern int me, count;     /* this rank, and how many there are */
extern int every;         /* of so many cases one is run */
extern int64_t scattered; /* messages of rounds by rows, up to now */

#define CHECK(good, ...) \
  do { \
    if (good) break; \
    fprintf(stderr, "%s:%d, rank %d of %d: ", __FILE__, __LINE__, me, count); \
    fprintf(stderr, __VA_ARGS__); \
    fprintf(stderr, "\n"); \
    MPI_Abort(MPI_COMM_WORLD, 1); \
  } while (0)

void linear_layers(void);
void draws(void);
void keys(void);
void long_rows(void);
void bytes(void);
void allocations(void);

#endif
