/* head/functions_chain_steps.h - what the two ways along a chain share (functions_chain.h). */
#ifndef SMX_HEAD_FUNCTIONS_CHAIN_STEPS_H
#define SMX_HEAD_FUNCTIONS_CHAIN_STEPS_H
#include "functions_chain.h"

enum { CHAIN_TRANSITIONS = 1 /* the port */, CHAIN_ROWS = 6 /* of chain_walk: x, p, e, logs, w, g */ };
#define CHAIN_SUM 0x1p-400 /* sums that are used */
#define CHAIN_LOW 0x1p-500 /* numbers that are */
#define CHAIN_LOW_LOG (-346.5735902799726547)
#define CHAIN_LN2 0x1.62e42fefa39efp-1
#define CHAIN_LN2_HIGH 0x1.62e42fefap-1 /* 37 bits, so that products with 16 are exact */
#define CHAIN_LN2_LOW 0x1.cf79abc9e3b3ap-40

static inline int64_t chain_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Rows of a->a, whose columns come in panels panel_step apart, times a matrix in tiles. */
void chain_times(const chain *m, const double *tiles, const head_product *a, int64_t panel_step, double *to);

/* v as numbers, 0 of those that are logarithms; as logarithms. */
void chain_plain(const chain *m, const double *v, double *x);
void chain_logs(const chain *m, const double *v, double *logs);

/* log sum_i e^(logs_i + A_ij) */
double chain_column(const chain *m, const double *logs, int64_t j);

#endif
