/* attention/attention.h - the contract between the driver (src/driver) and the kernels of one
 * instruction set and real type.
 *
 * The unit of the contract is a split: 1024 keys that start at a multiple of 1024 of the logical
 * key index. A row of output is a left fold, in index order, of what its splits contribute
 * (docs/numerics.md, "Attention"). So the result does not depend on who computes a split, nor
 * beside which rows. */
#ifndef SMX_ATTENTION_H
#define SMX_ATTENTION_H
#include <softmax.h>
#include <stdbool.h>

enum {
  ATTN_SPLIT = 1024,
  ATTN_PANEL = 64, /* keys that are scored together; a panel is as wide as the lanes of the normaliser */
  ATTN_PANELS = ATTN_SPLIT / ATTN_PANEL,
  ATTN_BLOCK = 6,      /* rows that the inner loops hold in registers */
  ATTN_TILE = 48,      /* rows whose scores of one split lie in scratch memory */
  ATTN_CHUNK = 1024,   /* rows of a task, at most: they share the packed keys of a split */
  ATTN_KEYS = 192,     /* keys that meet all rows together for their gradients */
  ATTN_MAX_HEAD = 512, /* widths of q, k and of v */
  /* numbers of a stored state before o: whether any key was visible, scale_exp, shift, gain,
   * scalars */
  ATTN_STATE_HEAD = 16,
  ATTN_SCALARS = 3,
  ATTN_MEASURES = 6,
  ATTN_STATS = 7
};

/* Rows of one head in memory. Row (i, g) of a tensor that has query heads is at data + i step + g
 * head. */
typedef struct attn_rows {
  char *data; /* NULL: absent */
  int64_t step, head;
  ptrdiff_t stride; /* elements from column to column */
  int store;        /* row_store */
} attn_rows;

/* One sequence and one key/value head, with the G query heads that share it. Key j is at data + j
 * step of k and v; in a paged cache it is in page table[j / page_size], at page k_page (v_page)
 * bytes each. */
typedef struct attn_head {
  int64_t lq, lk, groups;
  int64_t key_start; /* logical index of the first key of k and v, a multiple of ATTN_SPLIT */
  int64_t offset;    /* row i stands at logical position i + offset */
  uint64_t stream;   /* of random numbers, of the first query head; the others follow */
  attn_rows q, k, v, o, lse;
  attn_rows mask, bias;    /* columns are keys */
  attn_rows slopes, sinks; /* one value a query head */
  attn_rows d_o, d_lse, dq, dk, dv;
  attn_rows stats; /* of the backward engine: ATTN_STATS reals a row, contiguous */
  attn_rows given; /* weights that the caller has, instead of q and k; columns are keys */
  /* out, of the kernel of that name; of the backward engine: gradients of the scores, instead of
   * dq */
  attn_rows scores;
  attn_rows winners; /* out, of the tropical engine: the key of each column, i32 */
  attn_rows d_sink;  /* out, of the backward engine: what a row gives to the gradient of its sink, a double */
  const char *table;
  int64_t table_step, page_size, k_page, v_page;
} attn_head;

typedef struct attn_call {
  int64_t d, e; /* widths of q and k, of v */
  double scale, softcap;
  bool causal;
  int64_t left, right; /* window; -1: no end */
  int weights;         /* smx_attention_weights */
  double param[SMX_ATTENTION_PARAMS];
  double dropout;
  uint64_t seed;
  bool symmetric; /* of tropical attention */
  smx_on_empty on_empty;
  smx_on_inf on_inf;
} attn_call;

/* Rows first .. first + rows - 1 of a head, in the order i * groups + g, over splits split
 * .. split + splits - 1. If states is set, the contribution of each split is stored there, in at
 * most ATTN_STATE_HEAD + 2 (e filled up to 64) reals. Otherwise contributions are folded and the
 * rows are written. */
typedef struct attn_task {
  const attn_call *call;
  attn_head head;
  int64_t first, rows;
  int64_t split, splits;
  void *states;
  /* reals of states from i to i, from g to g, from split to split */
  int64_t state_rows, state_heads, state_step;
  int64_t first_empty; /* out: first row with no visible key when that is an error, or -1 */
  bool weights;        /* the kernel scores writes weights */
  int64_t columns;     /* of head.scores: keys beyond the last are hidden */
} attn_task;

/* Rotary position embedding: in rows of some heads, pairs of columns a, b are rotated by an angle
 * each; columns beyond the pairs stay. */
typedef struct attn_rotate {
  attn_rows x, y; /* y may lie where x does */
  int64_t rows, heads, columns;
  int64_t pairs, near, far; /* columns from pair to pair, and from a to b */
  bool back;                /* by the negated angles */
  const double *angles;     /* [rows][pairs], shared by the heads */
  const double *cosines; /* the same in place of sines and cosines of angles, which are sines then; or NULL */
  attn_rows other;       /* with back: the input of the forward rotation, or data NULL */
  /* with other: other_a y_b - other_b y_a, the gradients of the angles of one head,
   * [rows][pairs] */
  double *cross;
  void *room; /* ATTN_ROTATE_ROOM reals, aligned to 64 bytes */
} attn_rotate;
enum { ATTN_ROTATE_PARTS = 7, ATTN_ROTATE_ROOM = ATTN_ROTATE_PARTS * (ATTN_MAX_HEAD + 16) };

/* Additive scores of some rows, z_ij = sum_c u_c tanh(q_ic + k_jc), and their gradients, all in the
 * real type. Keys are transposed, so that keys lie side by side, and filled up to `pitch`, a
 * multiple of ATTN_PANEL. */
typedef struct attn_additive {
  int64_t rows, keys, pitch, d;
  const void *u, *q, *k; /* [d], [rows][d], [d][pitch] */
  void *z;               /* [rows][keys]: scores, or their gradient */
  void *du, *dq, *dk;    /* like u, q and k; du and dk are added to */
} attn_additive;

/* The facts about each kind of weights, by its number. */
extern const smx_attention_kind attention_table[SMX_ATTENTION_KINDS];

/* The gradients. First `prepare` for every row of a head. Then either `measure`, for kinds that
 * want more of a row (weights.h), and `queries` and `keys` in any order, or `all`, which computes
 * less. `keys` takes keys in place of rows, at most ATTN_KEYS of them; `all` takes all keys of a
 * head and ignores the rows that the task names. */
typedef struct attention_grads {
  size_t (*scratch)(const attn_call *call, int64_t rows);              /* scratch bytes of each of these, */
  size_t (*all_scratch)(const attn_call *call, const attn_head *head); /* and of `all` */
  void (*prepare)(attn_task *t, void *scratch);
  bool (*measures)(const attn_call *call);
  void (*measure)(attn_task *t, void *scratch);
  void (*queries)(attn_task *t, void *scratch);
  void (*keys)(attn_task *t, void *scratch);
  void (*all)(attn_task *t, void *scratch);
} attention_grads;

typedef struct attention_tropical {
  size_t (*scratch)(const attn_call *call, int64_t rows);
  void (*forward)(attn_task *t, void *scratch);
} attention_tropical;

typedef struct attention_additive {
  void (*forward)(const attn_additive *t);
  void (*backward)(const attn_additive *t, int64_t column); /* of one column of u, q and k */
} attention_additive;

typedef struct attention_kernels {
  size_t (*scratch)(const attn_call *call, int64_t rows); /* bytes that forward and merge need */
  void (*forward)(attn_task *t, void *scratch);
  void (*merge)(attn_task *t, void *scratch); /* folds states of splits 0 .. splits - 1 and writes the rows */
  /* writes scores or weights of every pair of a row and a key instead of o */
  void (*scores)(attn_task *t, void *scratch);
  void (*store)(const attn_rows *to, const double *sums, int64_t n,
                void *scratch); /* rounds a row of sums; room for whole vectors in both */
  /* n weights of a row, key: of 64 */
  void (*drop)(const attn_call *call, uint64_t stream, int64_t at, int64_t key, int64_t n, void *row);
  void (*rotate)(const attn_rotate *t);
  void (*frequencies)(double base, int64_t pairs, double *out); /* base^(-t / pairs) */
  const attention_grads *grads;
  const attention_tropical *tropical;
  const attention_additive *additive;
} attention_kernels;

#endif
