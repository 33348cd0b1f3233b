/* family.c - the verbs `head`, `pairs` and `pool`: an operator of that family, by its name or a
 * short one; and `nms`, which is one operator or, with a method, another. Of a loss the mean is
 * told, of others the results as `run` shows them. */
#include "family.h"

#include "bind.h"
#include "dtype.h"
#include "fault.h"
#include "help.h"
#include "preview.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const setting family_settings[] = {
    {"targets", 0, "FILE", "the class of each row: the input target or label", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

const setting pool_settings[] = {
    {"preview", 0, "FILE.png",
     "a picture of the first result too: its first plane, or the first of three as red, green and blue, "
     "black the smallest number and white the largest",
     FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

const setting nms_settings[] = {
    {"scores", 0, "FILE", "the score of each box: the input score", FOR_OPERATOR, NULL, NULL},
    {NULL, 0, NULL, NULL, 0, NULL, NULL},
};

/* What people say. */
static const struct {
  const char *family, *said, *name;
} short_names[] = {
    {"head", "cross_entropy", "linear_cross_entropy"},
    {"head", "crf", "linear_chain_crf"},
    {"head", "viterbi", "crf_viterbi"},
    {"head", "k_best", "crf_k_best"},
    {"head", "marginals", "crf_marginals"},
    {"head", "margin", "cosine_margin"},
    {"head", "adaptive", "adaptive_softmax"},
    {"head", "ebv", "equiangular_basis"},
    {"head", "mixture", "mixture_of_softmaxes"},
    {"pairwise", "clip", "clip_loss"},
    {"pairwise", "supcon", "supervised_contrastive"},
    {"pairwise", "simclr", "nt_xent"},
    {"pairwise", "clipood", "margin_metric_softmax"},
    {"pairwise", "madacos", "adaptive_scale_margin_softmax"},
    {"pool", "max", "max_pool"},
    {"pool", "avg", "avg_pool"},
    {"pool", "soft", "soft_pool"},
    {"pool", "lse", "lse_pool"},
    {"pool", "gem", "gem_pool"},
    {"pool", "lp", "lp_pool"},
    {"pool", "mixed", "mixed_pool"},
    {"pool", "gated", "gated_pool"},
    {"pool", "tree", "tree_pool"},
    {"pool", "ada", "ada_pool"},
    {"pool", "idw", "idw_pool"},
    {"pool", "stochastic", "stochastic_pool"},
    {"pool", "unpool", "max_unpool"},
    {"pool", "gnp", "gnp_pool"},
    {"pool", "gsp", "gsp_pool"},
    {"pool", "splade", "splade_pool"},
    {"pool", "mil", "attention_pool_mil"},
    {"pool", "segment", "segment_pool"},
    {"pool", "kmeans", "token_pool_kmeans"},
    {"pool", "kmedoids", "token_pool_kmedoids"},
    {"pool", "ward", "token_pool_ward"},
    {"pool", "topk", "graph_topk_pool"},
    {"pool", "parse", "graph_parse"},
    {"pool", "bilinear", "compact_bilinear_pool"},
};

typedef struct told {
  double sum, least, most;
  int64_t values, others; /* numbers, and NaN */
} told;

static const smx_op *find(const char *word, const char *family, const options *o) {
  if (!o->file_count) {
    fault(EXIT_USAGE, "%s: no operator; softmax list shows those of the family %s", word, family);
    return NULL;
  }
  const char *name = o->files[0];
  for (size_t i = 0; i < sizeof short_names / sizeof *short_names; i++)
    if (!strcmp(short_names[i].family, family) && !strcmp(short_names[i].said, name))
      name = short_names[i].name;
  const smx_op *op = help_find(name);
  if (!op || !strcmp(op->family, family)) return op;
  fault(EXIT_USAGE, "%s %s: it is of the family %s, not %s", word, name, op->family, family);
  return NULL;
}

/* The input that a setting means, or NULL. */
static const char *input_of(const smx_op *op, const char *said) {
  static const char *const meant[][2] = {{"targets", "target"}, {"targets", "label"}, {"scores", "score"}};
  for (size_t k = 0; k < sizeof meant / sizeof *meant; k++)
    for (int32_t i = 0; !strcmp(said, meant[k][0]) && i < op->input_count; i++)
      if (!strcmp(op->inputs[i].name, meant[k][1])) return meant[k][1];
  return NULL;
}

static int translate(const smx_op *op, const options *from, options *to, named_value *named) {
  *to = *from;
  to->named = named, to->named_count = 0;
  for (int i = 0; i < from->named_count; i++) {
    if (!strcmp(from->named[i].name, "preview")) continue;
    named_value *const made = named + to->named_count++;
    *made = from->named[i];
    const bool targets = !strcmp(made->name, "targets");
    if (!targets && strcmp(made->name, "scores") != 0) continue;
    made->name = input_of(op, made->name);
    if (!made->name)
      return fault(EXIT_USAGE, "--%s: %s has no %s", from->named[i].name, op->name,
                   targets ? "classes" : "scores");
  }
  return EXIT_OK;
}

static int see_block(void *user, const run_block *b) {
  told *t = user;
  const smx_tensor *const loss = b->out[find_output(b->op, "loss")];
  const dtype *const type = dtype_of(loss->dtype);
  int64_t count = 1;
  for (int32_t i = 0; i < loss->ndim; i++) count *= loss->shape[i];
  for (int64_t i = 0; i < count; i++) {
    const double value = type->get((const unsigned char *)loss->data + i * (int64_t)type->bytes);
    if (isnan(value)) {
      t->others++;
      continue;
    }
    t->sum += value;
    t->least = t->values && t->least < value ? t->least : value;
    t->most = t->values && t->most > value ? t->most : value;
    t->values++;
  }
  return EXIT_OK;
}

static void print_loss(const told *t, const smx_op *op) {
  printf("%-24s %13s %13s %13s\n", "loss", "mean", "least", "most");
  printf("%-24s %13.9g %13.6g %13.6g\n", op->name, t->sum / (double)t->values, t->values ? t->least : NAN,
         t->values ? t->most : NAN);
  printf("%" PRId64 " value%s", t->values, t->values == 1 ? "" : "s");
  if (t->others) printf("; %" PRId64 " not a number", t->others);
  putchar('\n');
}

/* The loss, and what there has to be room for. */
static uint32_t needed_outputs(const smx_op *op) {
  uint32_t wanted = 1U << find_output(op, "loss");
  for (int32_t i = 0; i < op->output_count; i++)
    if (!(op->outputs[i].flags & SMX_PORT_OPTIONAL)) wanted |= 1U << i;
  return wanted;
}

static int check_preview(const options *o) {
  if (o->backward) return fault(EXIT_USAGE, "--preview: draws results, and --backward gives gradients");
  if (o->out && !strcmp(o->out, options_own(o, "preview")))
    return fault(EXIT_USAGE, "--preview %s: that is the file of the result", o->out);
  return preview_check();
}

/* first: the file that is the first input. */
static int work_on(const smx_op *op, int first, const options *o) {
  if (!op) return EXIT_USAGE;
  const char *const picture = options_own(o, "preview");
  int code = picture ? check_preview(o) : EXIT_OK;
  if (code) return code;
  options own;
  told t = {0};
  preview drawn = {0};
  named_value *const named = calloc((size_t)o->named_count + 1, sizeof *named);
  if (!named) return fault_memory(((size_t)o->named_count + 1) * sizeof *named);
  const bool tells = !picture && !o->out && !o->backward && find_output(op, "loss") >= 0;
  run_request request = {.op = op, .o = &own, .first = first, .kind = TABLE_VALUES, .user = &t};
  if (tells) request.see = see_block, request.wanted = needed_outputs(op);
  if (picture) request.see = preview_see, request.user = &drawn;
  code = translate(op, o, &own, named);
  if (!code) code = run_operator(&request);
  if (!code && tells) print_loss(&t, op);
  if (picture) code = preview_write(&drawn, picture, code);
  free(named);
  return code;
}

int work_head(const options *o) { return work_on(find("head", "head", o), 1, o); }
int work_pairs(const options *o) { return work_on(find("pairs", "pairwise", o), 1, o); }
int work_pool(const options *o) { return work_on(find("pool", "pool", o), 1, o); }

/* Scores fall where a method says how; else boxes go. */
int work_nms(const options *o) {
  const char *name = NMS_OPERATOR;
  for (int i = 0; i < o->named_count; i++)
    if (!strcmp(o->named[i].name, "method")) name = "soft_nms";
  return work_on(help_find(name), 0, o);
}
