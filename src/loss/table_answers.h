/* loss/table_answers.h - ports and parameters of the losses of answers: preferences
 * (table_preference.inc) and policy gradients (table_policy.inc). Part of table.c. */
#ifndef SMX_LOSS_TABLE_ANSWERS_H
#define SMX_LOSS_TABLE_ANSWERS_H

static const char *const dpo_forms[] = {"sigmoid", "hinge", "ipo",      "robust",   "exo",      "nca",
                                        "bco",     "sppo",  "apo_zero", "apo_down", "discopop", NULL};
static const char *const cpo_forms[] = {"sigmoid", "hinge", "ipo", "odds", NULL}, *const kto_forms[] = {
                                                                                      "kto", "bco", NULL};
static const char *const pair_divergences[] = {"reverse_kl", "forward_kl", "js", "alpha", NULL};
#define BETA \
  { "beta", "how strongly log-ratios count: large = close to the reference", 0.1, 1e-6, 1e6, 0, NULL }
#define SMOOTHING \
  { "label_smoothing", "e, how often a preference is taken to be wrong", 0, 0, 0.49, 0, NULL }
#define MARGIN \
  { "margin", "m, by how much the chosen answer should lead", 0, -1e30, 1e30, 0, NULL }
#define NLL \
  { "nll_weight", "adds that much of -x", 0, 0, 1e30, 0, NULL }
#define OVER_PAIRS \
  { "over", "what the sum is divided by: one, or how many there are", 1, 0, 1, SMX_PARAM_INT, one_n }
static const smx_port pairs_out[] = {
    LOSS_VALUE,
    DX_OF_X,
    REDUCED,
    {"right", SMX_SHAPE_ROW, OPT | INT, "how many chosen answers have the larger score"},
    {"reward_margin", SMX_SHAPE_ROW, OPT,
     "mean of beta (a - b), a metric without gradient; what is infinite "
     "counts as 0"},
};

static const char *const policy_forms[] = {"token", "sequence", NULL}, *const estimators[] = {"k1", "k2",
                                                                                              "k3", NULL};
static const char *const token_means[] = {"tokens", "one", "all", "length", NULL};
static const smx_port policy_in[] = {
    {"x", SMX_SHAPE_FULL, GRAD | SAVED, "log-probabilities of the tokens of an answer"},
    {"old", SMX_SHAPE_FULL, SAVED, "log-probabilities when the answer was drawn, near x"},
    {"advantage", SMX_SHAPE_ROW, EITHER | SAVED, "A, the advantage of each answer"},
    {"token_advantage", SMX_SHAPE_FULL, EITHER | SAVED, "A, the advantage of each token"},
    {"reference", SMX_SHAPE_FULL, OPT | SAVED,
     "log-probabilities by the model that the policy is held to, near x"},
    {"mask", SMX_SHAPE_FULL, OPT | SAVED | SMX_PORT_MASK, "nonzero = a token, 0 = padding"},
    {"length", SMX_SHAPE_ROW, OPT | INT | SAVED | LENGTH,
     "how many tokens of each answer, from the first on, there are: 0 to n"},
    {"weight", SMX_SHAPE_FULL, OPT | SAVED, "w of each token; 1 where it is not given"},
};
static const smx_port policy_out[] = {
    LOSS_VALUE,
    DX_OF_X,
    REDUCED,
    {"tokens", SMX_SHAPE_ROW, OPT | INT, "how many tokens there are"},
    {"kl", SMX_SHAPE_ROW, OPT, "mean of k over them, a metric without gradient"},
    {"clipped", SMX_SHAPE_ROW, OPT, "share of them whose ratio is limited, a metric too"},
};
#define POLICY_PARAMS \
  {"kl_weight", "b, of the divergence from the reference", 0, 0, 1e30, 0, NULL}, \
      {"kl_estimator", "k", 2, 0, 2, SMX_PARAM_INT, estimators}, \
      {"over", "what the sum over the tokens is divided by", 0, 0, 3, SMX_PARAM_INT, token_means}, { \
    "max_length", "what over = length divides by; 0 = n", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL \
  }
static const char *const pair_means[] = {"gap_mean", "sum", NULL};
static const char *const baselines[] = {"mean", "others", NULL}, *const advantage_scales[] = {"deviation",
                                                                                              "none", NULL};
static const char *const quantile_kinds[] = {"reward", "linear", NULL};

#endif
