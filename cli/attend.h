/* attend.h - the verb `attention`: its options and inputs (attend.c), what it gives
 * (attend_results.c), and the map of a head (map.c). */
#ifndef CLI_ATTEND_H
#define CLI_ATTEND_H

#include "blocks.h"
#include "help.h"
#include "labels.h"
#include "rope.h"
#include "write.h"

/* Arrays: the files, then those that options name, in the order of attend_settings. */
enum {
  Q,
  K,
  V,
  MASK,
  BIAS,
  SLOPES,
  SINKS,
  LENGTHS,
  QUERY_OFFSETS,
  KEY_OFFSETS,
  BLOCK_TABLE,
  STREAMS,
  ROW_WEIGHTS,
  BUDGETS,
  SECOND,
  ADDITIVE,
  ROW,
  TENSORS
};

/* How scores become o: by the weights of the library or an operator on rows, or by an entry point
 * of its own. */
typedef enum attend_way { BY_KIND, BY_OPERATOR, BY_TROPICAL, BY_PARALLAX, BY_LOCAL, BY_ADDITIVE } attend_way;

/* An array that the library fills. */
typedef struct attend_result {
  const char *name;
  const dtype *type;
  smx_shape whole; /* as it is written */
  view view;       /* as the library has it */
  unsigned char *data;
  bool hidden; /* only for what comes after */
} attend_result;

typedef struct attention attention;

/* Something that the verb can give. */
typedef struct attend_act {
  const char *name;
  int files;                       /* how many it reads; 0: any number, of states */
  bool any_way;                    /* not by the weights of the library alone */
  bool weighed;                    /* its first file is a matrix of weights */
  int (*plan)(attention *a);       /* adds its results */
  smx_status (*run)(attention *a); /* fills them */
} attend_act;

struct attention {
  const options *o;
  const attend_act *act;
  input in[TENSORS], dout[2], *states;
  view view[TENSORS], dout_view[2], *state_views;
  smx_attention_options how;
  smx_attention_select_options select;
  attend_way way;
  const smx_op *op; /* on rows, that makes the weights */
  smx_params params;
  const char *weights; /* as the option has it */
  bool symmetric;
  double ridge;
  int64_t kernels[64];
  bool heads_last; /* layout blhd */
  int64_t keep, size, head, batch;
  int shades;  /* of the map; -1: by what it shows */
  bool shared; /* one list of keys for all heads */
  smx_context *context;
  labels names;
  rope rope;
  attend_result out[SMX_MAX_PORTS];
  int count;
  result_file file;
};

extern const setting attend_settings[];

int work_attention(const options *o);

/* The facts about the kind of weights i; false past the last. */
bool attend_entry(size_t i, entry *e);

/* After the output's temporary file exists, as in a run. */
int attend_context(attention *a);

/* A fault of the option or file that the library's message is about. */
int attend_fault(const attention *a, smx_status status);

/* What the options ask for; NULL after a fault. And the words there are. */
const attend_act *attend_find(const options *o);
void attend_acts(char *text, size_t size);

/* Computes, and writes or shows the results; must be freed, after a fault too. */
int attend_give(attention *a);
void attend_free(attention *a);

/* o, and lse or the winners unless NULL, by the way that the options name. */
smx_status attend_forward(const attention *a, const smx_tensor *q, const smx_tensor *k, const smx_tensor *v,
                          const smx_tensor *o, const smx_tensor *second);

/* The weights of one head as a heat map, its queries downwards and its keys to the right. It comes
 * last: it narrows the views to this head. */
int attend_map(attention *a, const char *path);

/* The words of --shades, and which of them it is: -1 for none. */
void map_shades(char *text, size_t size);
int map_read_shades(const char *text, int *choice);

#endif
