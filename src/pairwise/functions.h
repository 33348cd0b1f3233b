/* pairwise/functions.h - the functions of the operators of src/pairwise, and the engine that they
 * share: logits l_ij = u_i v_j / temperature of some rows at a time, of which an operator makes a
 * loss of each row and the gradient of its logits, and what that gives for u, v and temperature.
 * Logits are never all in memory; the gradient forms them again. */
#ifndef SMX_PAIRWISE_FUNCTIONS_H
#define SMX_PAIRWISE_FUNCTIONS_H
#include <stdatomic.h>

#include "driver/tensor_reals.h"
#include "head/driver_linear.h"
#include "pairwise.h"
#include "score/score.h"

/* Inputs of every operator, OWN being the first of its own; one that has no b has one less. Where
 * the columns are classes, those of its own come before TEMPERATURE. */
enum { IN_A, IN_B, IN_TEMPERATURE, IN_MASK, IN_OWN };
enum { OUT_LOSS, OUT_STATE };

enum { PAIR_COLUMNS = 1024 }; /* of a task that adds up rows */

/* What a pair is to its row, and sets of them. */
enum { PAIR_OUT, PAIR_NEGATIVE, PAIR_POSITIVE };
enum { NEGATIVES = 1 << PAIR_NEGATIVE, POSITIVES = 1 << PAIR_POSITIVE };

/* A row while it is computed. l, g, x, y: m reals. */
typedef struct pair_row {
  int64_t i;
  char *l;             /* logits; the operator may change them */
  char *g;             /* takes their gradient; NULL: not wanted */
  double up;           /* the upstream gradient of the loss */
  unsigned char *role; /* of every pair */
  char *x, *y;         /* room */
  double *v;           /* room for m numbers */
  char *guide;         /* logits of the guide; NULL: there is none */
} pair_row;

typedef struct pair_call pair_call;
/* An operator. */
typedef struct pair_rule {
  smx_status (*check)(const pair_call *p);                           /* of inputs; NULL: none */
  void (*roles)(const pair_call *p, int64_t i, unsigned char *role); /* of a row */
  double (*row)(pair_call *p, pair_row *r);                          /* its loss, and its gradient */
  bool columns;         /* what the columns of the logits add up to counts too */
  bool alone;           /* b may be absent: then it is a, and no row is paired with itself */
  bool no_b;            /* there is no such input */
  bool guide;           /* the first own input is other features of the rows, compared among themselves */
  bool row_temperature; /* every row has its own, which the rule takes; logits are similarities */
  /* Columns are classes. In place of a temperature there may be a number of the rule's own, of
   * which the slopes of the rows are the gradient; logits are similarities. */
  bool classes, number;
  /* The second own input is a number of each column, whose gradient is the sum over the rows of
   * what the rule leaves in place of the logits. */
  bool column_number;
  bool shifted;                /* begin makes p->shifted of the rows u, which is multiplied in their place */
  void (*begin)(pair_call *p); /* when there are unit rows; NULL: nothing */
  bool square;                 /* similarities have as many columns as rows */
} pair_rule;

/* Inputs or their gradients; NULL: not there, or not wanted. a: features, s: similarities, number:
 * of each column. */
typedef struct pair_inputs {
  const smx_view *a, *b, *s, *temperature, *mask, *number;
} pair_inputs;

struct pair_call {
  const tensor_call *c;
  const pair_rule *rule;
  const smx_op *logsumexp;
  const score_kernels *math;
  pair_inputs in, din;
  bool backward, self, normalise, spread, decoupled, log_count;
  int64_t n, m, d, bytes;
  double temperature, number, margin;
  linear_run run, guide;
  linear_ports ports, guide_ports;
  char *memory;
  char *u, *v;             /* rows that are multiplied; NULL: logits come from s */
  char *shifted;           /* NULL: u is */
  double *norm_u, *norm_v; /* what they were divided by */
  char *w;                 /* rows of the guide */
  double *norm_w;
  double *loss, *slope;       /* of each row; slope: what it gives for the temperature */
  char *reference;            /* columns: a real near the largest logit of each, */
  double *sum, *column, *own; /* sums of e^(l - reference), lse without the own pair, own logits */
  double *share;              /* and what a column gives for its negatives */
  bool asks;                  /* the rule finds pair_call.gathered of each row in place of its loss */
  double *gathered;
  size_t row_room;
  _Atomic int status;
};

/* ---- functions_rows.c: rows of logits ---- */

double pair_lse(pair_call *p, const char *x, int64_t n);
/* g = factor softmax(x), lse being that of x; or factor e^(x - offset). */
void pair_softmax(pair_call *p, const char *x, int64_t n, double lse, double factor, char *g);
void pair_exp(pair_call *p, const char *x, int64_t n, double offset, double factor, char *g);
/* x = l where the role is in the set, else -inf */
void pair_keep(const pair_call *p, const char *l, const unsigned char *role, unsigned set, char *x);
double pair_contrast(pair_call *p, pair_row *r);
/* Pairs with a role of the set. */
int64_t pair_count(const pair_call *p, const unsigned char *role, unsigned set);
double pair_sigmoid(const pair_call *p, double x);
void pair_set(const pair_call *p, char *x, int64_t j, double value);
double pair_at(const pair_call *p, const char *x, int64_t j);

/* Loops over reals, in float or double (functions_loops.tmpl.h). */
void pair_scale(bool f64, const char *x, double factor, int64_t n, char *to);     /* to = factor x */
void pair_add(bool f64, const char *x, const double *factor, int64_t n, char *g); /* g += factor x */
void pair_join(bool f64, const char *x, int64_t n, char *g);                      /* g += x */
double pair_dot(bool f64, const char *l, const char *g, int64_t n);               /* over g that is not 0 */
void pair_raise(bool f64, const char *l, int64_t n, char *most);                  /* most = max(most, l) */
void pair_minus(bool f64, const char *l, const char *r, int64_t n, char *x);      /* x = l - r; r -inf: l */
void pair_sum(bool f64, const char *x, int64_t n, double *sum);
/* to = x / |x|, of which it returns |x|; g: the gradient of to becomes that of x. A norm below
 * `least` counts as that. */
double pair_unit(bool f64, const char *x, double least, int64_t n, char *to);
void pair_unit_slope(bool f64, const char *u, double norm, double least, int64_t n, char *g);

/* ---- functions_columns.c: both directions ---- */

double pair_both(pair_call *p, pair_row *r);
void pair_columns_begin(pair_call *p);
void pair_columns_block(pair_call *p); /* adds the rows of the block */
void pair_columns_end(pair_call *p);

/* ---- functions_blocks.c: the engine ---- */

smx_status pair_open(pair_call *p, const tensor_call *c, const pair_rule *rule, bool backward);
void pair_go(pair_call *p);
/* The rows from..to-1 of a rule that is asked: p->gathered. */
void pair_ask(pair_call *p, int64_t from, int64_t to);
smx_status pair_close(pair_call *p);
smx_status pair_run(const tensor_call *c, const pair_rule *rule, bool backward);

/* ---- functions_roles.c ---- */

/* Every pair is a negative but those that the mask hides, and a row with itself. */
void pair_negatives(const pair_call *p, int64_t i, unsigned char *role);
smx_status pair_check_labels(const pair_call *p);
void pair_label_roles(const pair_call *p, int64_t i, unsigned char *role);
smx_status pair_check_keys(const pair_call *p);
void pair_key_roles(const pair_call *p, int64_t i, unsigned char *role);
int64_t pair_key(const pair_call *p, int64_t i); /* the positive of a row; -1: it is ignored */

extern const pair_rule pair_info_nce, pair_clip, pair_nt_xent, pair_supervised;
extern const pair_rule pair_decoupled_softmax, pair_ranking, pair_soft_topk; /* functions_sets.c */
extern const pair_rule pair_soft_targets, pair_graded, pair_global;          /* functions_targets.c */
extern const pair_rule pair_sphereface2, pair_wcdas;                         /* functions_cosines.c */
extern const pair_rule pair_metric_margin, pair_adaptive_margin;             /* functions_margins.c */

smx_status pair_no_memory(const tensor_call *c);
smx_status soft_clip_forward(const tensor_call *c);
smx_status soft_clip_backward(const tensor_call *c);
smx_status nbc_forward(const tensor_call *c);
smx_status nbc_backward(const tensor_call *c);
smx_status flowcon_score_forward(const tensor_call *c);
smx_status flowcon_score_backward(const tensor_call *c);
smx_status flowcon_loss_forward(const tensor_call *c);
smx_status flowcon_loss_backward(const tensor_call *c);
smx_status separation_forward(const tensor_call *c);

/* -1: there is none. */
static inline int pair_port(const pair_rule *rule, int input) {
  const int own = 1 + rule->column_number; /* of classes */
  if (rule->classes && input >= IN_TEMPERATURE) return input < IN_OWN ? input + own : input - 2;
  return rule->no_b && input == IN_B ? -1 : input - (rule->no_b && input > IN_B);
}
static inline const smx_view *pair_input(const pair_call *p, const tensor_ports *of, int input) {
  const int port = pair_port(p->rule, input);
  return port < 0 || !of->given[port] ? NULL : of->view + port;
}
static inline int64_t pair_column_tasks(const pair_call *p) {
  return (p->m + PAIR_COLUMNS - 1) / PAIR_COLUMNS;
}
static inline const int64_t *pair_whole(const pair_call *p, int input) {
  const smx_view *v = pair_input(p, &p->c->in, input);
  return v ? (const int64_t *)(const void *)v->data : NULL;
}
static inline bool pair_choice(const tensor_call *c, const char *name) {
  return dims_param(&c->dims, name, 0) != 0;
}

#endif
