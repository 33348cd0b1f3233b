/* sweep.h - the fixed sweep behind tests/golden: one hash for every operator and direction, and one
 * more where an operator got parameters later (problem.h). Values are made of integers, so every
 * machine must come to the same hashes. */
#ifndef TESTS_SWEEP_H
#define TESTS_SWEEP_H
#include "problem.h"

/* Compares operators part, part + parts, ... with a golden file, printing differences; returns
 * their number, or -1 when the file cannot be read. An operator without a line counts as a
 * difference. */
int sweep_compare(const char *path, size_t part, size_t parts);
int sweep_write(const char *path); /* 0 on success */

#endif
