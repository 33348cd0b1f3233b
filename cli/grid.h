/* grid.h - calibration of the same rows at many temperatures, block by block: what the slider of
 * a report shows. */
#ifndef CLI_GRID_H
#define CLI_GRID_H

#include "judge.h"

#include <jansson.h>

/* From 1/4 to 4, even in the logarithm; 1 is in the middle. */
enum { GRID_TEMPERATURES = 41 };

typedef struct grid {
  smx_context *context;
  double temperature[GRID_TEMPERATURES], loss[GRID_TEMPERATURES]; /* loss: a sum over the rows */
  int64_t bins, rows, classes;
  double *count, *confidence, *right; /* of each temperature and bin: sums */
} grid;

/* `base`: what the logits are divided by at the temperature 1. Must be freed, after a fault too. */
int grid_begin(grid *g, smx_context *context, double base, int64_t bins);
void grid_free(grid *g);

/* The `see` of judge; user is the grid. */
int grid_see(void *user, const judge_block *b);

json_t *grid_json(const grid *g);

#endif
