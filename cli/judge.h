/* judge.h - logits and the true classes of their rows, from files: what the metrics of a set are
 * made of, a number of each row, by blocks. */
#ifndef CLI_JUDGE_H
#define CLI_JUDGE_H

#include "bind.h"
#include "classwise.h"

/* Operators of the family score, all from one read. What has targets has the last too. */
typedef enum judge_score {
  JUDGE_MSP = 0,
  JUDGE_ENERGY = 1,
  JUDGE_MAX_LOGIT = 2,
  JUDGE_ENTROPY = 3,
  JUDGE_BRIER = 4
} judge_score;
enum { JUDGE_SCORES = 5, JUDGE_SURE = 3 /* large is sure, of the first three */ };

extern const char *const judge_scores[JUDGE_SCORES];

/* Rows of a block, in C order. Without targets these are NULL. */
typedef struct judge_block {
  smx_tensor logits;
  int64_t first, rows;
  const int64_t *target, *rank; /* target: -1 of a row that is left out; rank: 0 where it is right */
  const double *given;          /* largest probabilities as the file has them, at temperature 1; or NULL */
  const double *p;              /* all of them then */
} judge_block;

typedef struct judged {
  const char *path;
  const char *type;
  int64_t classes, all, rows; /* all: of the file; rows: those that count, whose numbers follow */
  int64_t *number;            /* in the file */
  int64_t *target, *predicted,
      *rank; /* predicted: the first largest logit; rank: classes before the target */
  double *score[JUDGE_SCORES], *loss;
  double *weight;     /* of each row, or NULL */
  classwise of_class; /* with targets */
  double *room;
  int64_t *whole;
} judged;

typedef struct judge_request {
  const options *o;
  smx_context *context;
  const char *path;
  const char *targets; /* a file, or NULL: what needs them is left out, and every row counts */
  const char *weights; /* a file, or NULL; with targets. Rows of weight 0 do not count */
  double temperature;  /* logits are divided by it */
  int64_t ignore;      /* the class of rows that do not count */
  bool probabilities;  /* the file has those, not logits */
  int64_t bins;        /* of the calibration error of every class */
  int64_t bytes;       /* of a block, at most */
  int (*see)(void *user, const judge_block *b); /* of every block; or NULL */
  void *user;
} judge_request;

/* Must be freed, after a fault too. A row that has no scores is a fault, and so are no rows, and
 * one class. */
int judge(judged *j, const judge_request *r);
void judge_free(judged *j);

#endif
