/* split_linear.h - tests of linear layers over ranks, which run with those of split.c. */
#ifndef TESTS_SPLIT_LINEAR_H
#define TESTS_SPLIT_LINEAR_H

void layers_over_ranks(void **state);
void every_layer(void **state);
void wrong_layers(void **state);
void layers_without_memory(void **state);

#endif
