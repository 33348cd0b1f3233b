/* loss/table.c - the facts about each loss. The command, the bindings, the tests, the benchmarks and the manual all read this. */
#include "loss.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)

enum {
  GRAD = SMX_PORT_GRAD,
  SAVED = SMX_PORT_SAVED,
  OPT = SMX_PORT_OPTIONAL,
  INT = SMX_PORT_INT,
  TARGET = SMX_PORT_TARGET | SMX_PORT_INT | SMX_PORT_SAVED,
  EITHER = SMX_PORT_EITHER | SMX_PORT_OPTIONAL,
  DX = SMX_PORT_DX | SMX_PORT_OPTIONAL
};

#define INF ((double)__builtin_inf())

/* ---- what losses share ---- */

#define LOGITS {"x", SMX_SHAPE_FULL, GRAD | SAVED, "logits"}
#define CLASS_WEIGHT {"class_weight", SMX_SHAPE_COLUMN, OPT | SAVED | SMX_PORT_WEIGHT, "a weight for each class; at least 0"}

#define LOSS_VALUE {"loss", SMX_SHAPE_ROW, 0, "the loss of each row"}
#define DX_OF_X {"dx", SMX_SHAPE_FULL, DX, "gradient of the reduced loss"}
#define REDUCED {"reduced", SMX_SHAPE_SCALAR, OPT, "the losses of all rows as one value"}

#define IGNORE {"ignore_index", "a row with this target is left out: loss 0, gradient 0", -100, -1e15, 1e15, SMX_PARAM_INT, NULL}
static const char *const reductions[] = {"none", "sum", "mean", "mean_safe", NULL};
#define REDUCTION \
  {"reduction", "what `reduced` is and dx is the gradient of (none: as sum); mean_safe: 0 when nothing counts", 0, 0, 3, SMX_PARAM_INT, reductions}

/* ---- cross_entropy ---- */

static const smx_port ce_in[] = {
    LOGITS,
    {"target", SMX_SHAPE_ROW, EITHER | TARGET, "the class of each row, or ignore_index"},
    {"soft_target", SMX_SHAPE_FULL, EITHER | SAVED, "a mass for each class, in place of target"},
    CLASS_WEIGHT,
};
static const smx_port ce_out[] = {
    LOSS_VALUE,
    DX_OF_X,
    {"lse", SMX_SHAPE_ROW, OPT, "logsumexp of the scores"},
    {"entropy", SMX_SHAPE_ROW, OPT, "of the weights, in nats"},
    {"class", SMX_SHAPE_ROW, OPT | INT, "the first largest score"},
    {"rank", SMX_SHAPE_ROW, OPT | INT, "how many classes come before the target; -1 without one"},
    REDUCED,
};
static const char *const conventions[] = {"uniform_all", "uniform_others", "target_mass", NULL};
static const char *const everybody[] = {"all", "finite", NULL};
static const smx_param ce_params[] = {
    IGNORE,
    {"label_smoothing", "mass e that is spread over the classes; with target_mass: the target's own mass", 0, 0, 1, 0, NULL},
    {"smoothing", "e / n to every class; e / (n - 1) to the others; or the mass that the target keeps", 0, 0, 2, SMX_PARAM_INT, conventions},
    {"uniform_over", "what spread mass goes to: all classes, or those whose logit is not -inf", 0, 0, 1, SMX_PARAM_INT, everybody},
    {"z_weight", "adds z_weight lse^2, which keeps logits small; 1e-4 is usual", 0, 0, 1e30, 0, NULL},
    {"softcap", "scores are c tanh(x / c); inf = none", INF, 0, INF, SMX_PARAM_OPEN_MIN, NULL},
    {"temperature", "divides the scores", 1, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL},
    REDUCTION,
};

enum { BACKWARD = SMX_OP_BACKWARD };

const smx_op loss_table[LOSS_COUNT] = {
    [LOSS_cross_entropy] = {
        .id = 200, .name = "cross_entropy", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "negative log-likelihood of a target under softmax",
        .formula = "loss = sum_j w_j t_j (lse(z) - z_j) + Z lse(z)^2,  z = c tanh(x / c) / T",
        .about = "Loss and gradient from one read of the logits. A hard target has t_y = 1 - e + e / n and t_j = e / n with label smoothing e; the "
                 "other conventions are e / (n - 1) for the others, and a mass that the target keeps. Soft targets need not sum to 1. Class "
                 "weights multiply each class's part; a mean then divides by the weights of the targets, or by the number of rows where targets "
                 "are soft. A loss below one float epsilon keeps its digits, and the target's gradient is minus the sum of the others. A class of "
                 "mass 0 takes no part, even at -inf. Gradient: dx_j = (A + 2 Z lse) p_j - a_j with a_j = w_j t_j, A = sum_j a_j, times dz / dx.",
        .source = "standard; label smoothing: When Does Label Smoothing Help? (Mueller, Kornblith, Hinton 2019); z_weight: PaLM: Scaling Language "
                  "Modeling with Pathways (Chowdhery et al. 2022)",
        .example = "softmax run cross_entropy logits.npy labels.npy --label_smoothing 0.1",
        INPUTS(ce_in), OUTPUTS(ce_out), PARAMS(ce_params)},
};
