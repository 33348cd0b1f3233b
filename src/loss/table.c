/* loss/table.c - the facts about each loss. The command, the bindings, the tests, the benchmarks
 * and the manual all read this. */
#include "loss.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define LITERAL(type, ...) ((const type[]){__VA_ARGS__})
#define INPUTS_OF(...) INPUTS(LITERAL(smx_port, __VA_ARGS__))
#define OUTPUTS_OF(...) OUTPUTS(LITERAL(smx_port, __VA_ARGS__))
#define PARAMS_OF(...) PARAMS(LITERAL(smx_param, __VA_ARGS__))

enum {
  GRAD = SMX_PORT_GRAD,
  SAVED = SMX_PORT_SAVED,
  OPT = SMX_PORT_OPTIONAL,
  INT = SMX_PORT_INT,
  NOT_NEGATIVE = SMX_PORT_NOT_NEGATIVE,
  LENGTH = SMX_PORT_LENGTH,
  TARGET = SMX_PORT_TARGET | SMX_PORT_INT | SMX_PORT_SAVED,
  EITHER = SMX_PORT_EITHER | SMX_PORT_OPTIONAL,
  DX = SMX_PORT_DX | SMX_PORT_OPTIONAL
};

#define INF ((double)__builtin_inf())

/* ---- what losses share ---- */

#define LOGITS {"x", SMX_SHAPE_FULL, GRAD | SAVED, "logits"}
#define CLASS_WEIGHT \
  {"class_weight", SMX_SHAPE_COLUMN, OPT | SAVED | NOT_NEGATIVE | SMX_PORT_WEIGHT, \
   "a weight for each class; at least 0"}

#define LOSS_VALUE {"loss", SMX_SHAPE_ROW, 0, "the loss of each row"}
#define DX_OF_X {"dx", SMX_SHAPE_FULL, DX, "gradient of the reduced loss"}
#define REDUCED {"reduced", SMX_SHAPE_SCALAR, OPT, "the losses of all rows as one value"}

#define IGNORE \
  {"ignore_index", "a row with this target is left out: loss 0, gradient 0", \
   -100, -1e15, 1e15, SMX_PARAM_INT, NULL}
static const char *const reductions[] = {"none", "sum", "mean", "mean_safe", NULL};
#define REDUCTION \
  {"reduction", \
   "what `reduced` is and dx is the gradient of (none: as sum); mean_safe: 0 when nothing counts", \
   0, 0, 3, SMX_PARAM_INT, reductions}

/* ---- cross_entropy ---- */

static const smx_port ce_in[] = {
    LOGITS,
    {"target", SMX_SHAPE_ROW, EITHER | TARGET, "the class of each row, or ignore_index"},
    {"soft_target", SMX_SHAPE_FULL, EITHER | GRAD | SAVED, "a mass for each class, in place of target"},
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
    {"label_smoothing", "mass e that is spread over the classes; with target_mass: the target's own mass",
     0, 0, 1, 0, NULL},
    {"smoothing", "e / n to every class; e / (n - 1) to the others; or the mass that the target keeps",
     0, 0, 2, SMX_PARAM_INT, conventions},
    {"uniform_over", "what spread mass goes to: all classes, or those whose logit is not -inf",
     0, 0, 1, SMX_PARAM_INT, everybody},
    {"z_weight", "adds z_weight lse^2, which keeps logits small; 1e-4 is usual", 0, 0, 1e30, 0, NULL},
    {"softcap", "scores are c tanh(x / c); inf = none", INF, 1e-30, INF, 0, NULL},
    {"temperature", "divides the scores", 1, 1e-30, 1e30, 0, NULL},
    REDUCTION,
};

/* ---- one class a row ---- */

static const char *const beyond_pi[] = {"fold", "linear", "clamp", "none", NULL},
                  *const yes_no[] = {"no", "yes", NULL};

#define HARD_TARGET {"target", SMX_SHAPE_ROW, TARGET, "the class of each row, or ignore_index"}
static const smx_port plain_out[] = {LOSS_VALUE, DX_OF_X, REDUCED};
static const smx_port hard_in[] = {LOGITS, HARD_TARGET};
static const smx_port either_in[] = {
    LOGITS,
    {"target", SMX_SHAPE_ROW, EITHER | TARGET, "the class of each row, or ignore_index"},
    {"soft_target", SMX_SHAPE_FULL, EITHER | GRAD | SAVED, "a distribution over the classes, in place of "
                                                           "target"},
};
static const smx_port nll_in[] = {{"x", SMX_SHAPE_FULL, GRAD | SAVED, "logarithms of probabilities"},
                                  HARD_TARGET, CLASS_WEIGHT};
static const smx_port focal_in[] = {
    LOGITS, HARD_TARGET,
    {"class_weight", SMX_SHAPE_COLUMN, OPT | SAVED | NOT_NEGATIVE, "multiplies alpha, by class; at least 0"}};
static const smx_port sel_in[] = {LOGITS, HARD_TARGET,
                                  {"probability", SMX_SHAPE_ROW, SAVED, "what the teacher gives the class"}};
static const smx_port prior_in[] = {LOGITS, HARD_TARGET,
                                    {"prior", SMX_SHAPE_COLUMN, SAVED, "frequency or count of each class; 0 "
                                                                       "= it does not exist"}};
static const smx_port tau_in[] = {
    LOGITS, HARD_TARGET,
    {"tau", SMX_SHAPE_ROW, OPT | GRAD | SAVED, "a temperature for each row, in place of the parameter; the "
                                               "row is NaN below 1e-30"}};
static const smx_port logits_in[] = {LOGITS};
static const smx_port outlier_in[] = {LOGITS,
                                      {"outlier", SMX_SHAPE_ROW, OPT | INT | SAVED, "nonzero = this row is "
                                                                                    "an outlier"}};

static const smx_param sparsemax_params[] = {IGNORE, REDUCTION};
static const smx_param entmax_params[] = {
    IGNORE,
    {"alpha", "1.5: between cross-entropy (near 1) and the sparsemax loss (2)",
     1.5, 1, 10, SMX_PARAM_OPEN_MIN, NULL},
    REDUCTION,
};
static const smx_param focal_params[] = {
    IGNORE,
    {"gamma", "how much sure classes are played down; 0 = cross-entropy", 2, 0, 1e3, 0, NULL},
    {"alpha", "multiplies the loss", 1, 0, 1e30, 0, NULL},
    REDUCTION,
};
static const smx_param poly_params[] = {
    IGNORE,
    {"epsilon1", "of 1 - p", 1, -1e30, 1e30, 0, NULL},
    {"epsilon2", "of (1 - p)^2", 0, -1e30, 1e30, 0, NULL},
    REDUCTION,
    {"epsilon3", "of (1 - p)^3", 0, -1e30, 1e30, 0, NULL},
    {"epsilon4", "of (1 - p)^4", 0, -1e30, 1e30, 0, NULL},
    {"epsilon5", "of (1 - p)^5", 0, -1e30, 1e30, 0, NULL},
    {"epsilon6", "of (1 - p)^6", 0, -1e30, 1e30, 0, NULL},
};
static const char *const sel_modes[] = {"logprob", "raw", "naive", NULL};
static const smx_param sel_params[] = {
    IGNORE,
    {"mode", "what is compared with log q: log p, the logit itself, or neither: -q log p",
     0, 0, 2, SMX_PARAM_INT, sel_modes},
    {"floor", "smaller probabilities count as this", 0, 0, 1, 0, NULL},
    REDUCTION,
};
static const smx_param adjusted_params[] = {
    IGNORE,
    {"tau", "multiplies the logarithm of the prior; 1 = balanced softmax", 1, 0, 1e30, 0, NULL},
    REDUCTION,
};
#define OVER \
  {"uniform_over", "what the mean is over: all classes, or those whose logit is not -inf", \
   0, 0, 1, SMX_PARAM_INT, everybody}
static const smx_param ms_params[] = {
    IGNORE,
    {"alpha", "weight of the largest logit less their mean", 0.1, 0, 1e30, 0, NULL},
    {"logit_penalty", "b: adds b / 2 sum x^2", 0, 0, 1e30, 0, NULL},
    OVER,
    REDUCTION,
};
static const smx_param oe_params[] = {OVER, REDUCTION};
static const char *const set_means[] = {"together", "apart", NULL};
static const smx_param em_params[] = {
    {"temperature", "of the energy -T lse(x / T)", 1, 1e-30, 1e30, 0, NULL},
    {"m_in", "energy that rows should stay below", -25, -1e30, 1e30, 0, NULL},
    {"m_out", "energy that outliers should stay above", -7, -1e30, 1e30, 0, NULL},
    REDUCTION,
    {"sets", "a mean is over all rows together, or that over outliers is added to that over the others", 0, 0,
     1, SMX_PARAM_INT, set_means},
};
static const smx_param rt_params[] = {
    IGNORE,
    {"temperature", "T, where tau is not given", 1, 1e-30, 1e30, 0, NULL},
    {"rho", "the divergence from uniform that the best T gives", 0.5, -1e30, 1e30, 0, NULL},
    REDUCTION,
};

/* ---- a student and a teacher ---- */

#define TEACHER_ROW {"teacher", SMX_SHAPE_FULL, SAVED, "logits of the teacher"}
static const smx_port pair_in[] = {LOGITS,
                                   {"teacher", SMX_SHAPE_FULL, GRAD | SAVED, "logits of the teacher"}};
static const smx_port taught_in[] = {LOGITS, TEACHER_ROW};
static const smx_port taught_target_in[] = {LOGITS, TEACHER_ROW, HARD_TARGET};

static const char *const divergences[] = {"forward", "reverse", "cross_entropy", NULL};
static const char *const kd_scales[] = {"square", "one", NULL};
static const smx_param kd_params[] = {
    {"divergence", "D(q || p), D(p || q), or -sum q log p", 0, 0, 2, SMX_PARAM_INT, divergences},
    {"temperature", "divides the student's logits, and the teacher's", 1, 1e-30, 1e30, 0, NULL},
    {"teacher_temperature", "divides the teacher's logits instead, at least by 1e-30; 0 = temperature",
     0, 0, 1e30, 0, NULL},
    {"scale", "square: times T^2 where both temperatures are equal", 0, 0, 1, SMX_PARAM_INT, kd_scales},
    REDUCTION,
};
static const smx_param js_params[] = {
    {"beta", "weight of the student; m = beta p + (1 - beta) q", 0.5, 0, 1, 0, NULL},
    REDUCTION,
    {"temperature", "divides the logits of both", 1, 1e-30, 1e30, 0, NULL},
};
static const smx_param dkd_params[] = {
    IGNORE,
    {"temperature", "divides both rows of logits", 4, 1e-30, 1e30, 0, NULL},
    {"alpha", "weight of the target against the rest", 1, 0, 1e30, 0, NULL},
    {"beta", "weight of the rest among themselves", 8, 0, 1e30, 0, NULL},
    REDUCTION,
};
static const smx_param nkd_params[] = {
    IGNORE,
    {"gamma", "weight of the other classes", 1.5, 0, 1e30, 0, NULL},
    REDUCTION,
    {"temperature", "T, divides both rows where the other classes are compared", 1, 1e-30, 1e30, 0, NULL},
};
static const char *const no_yes[] = {"no", "yes", NULL};
static const smx_param bld_params[] = {
    {"beta", "power of the distance that weighs each class", 1, 0, 1e3, 0, NULL},
    {"detach", "no gradient through that weight", 0, 0, 1, SMX_PARAM_INT, no_yes},
    REDUCTION,
};

#define TOP_K \
  {"k", "how many of the teacher's classes are the head; n or more: all", \
   1000, 1, 9007199254740992.0, SMX_PARAM_INT, NULL}
static const char *const one_way[] = {"forward", "reverse", NULL},
    *const head_or_others[] = {"head", "others", NULL};
static const smx_param head_tail_params[] = {
    TOP_K,
    {"tail_weight", "l, what the divergence over the other classes is multiplied by", 1, 0, 1e30, 0, NULL},
    {"head", "which divergence over the head: of q from p, or of p from q", 0, 0, 1, SMX_PARAM_INT, one_way},
    {"tail", "which over the others", 0, 0, 1, SMX_PARAM_INT, one_way},
    REDUCTION,
};
static const smx_param adaptive_params[] = {
    {"mu", "the most that the weights of the head sum to", 0.5, 0, 1, 0, NULL},
    REDUCTION,
};
static const smx_param standardised_params[] = {
    {"temperature", "divides both rows, once they are standardised", 2, 1e-30, 1e30, 0, NULL},
    {"epsilon", "e, added to the deviation", 1e-7, 1e-12, 1e30, 0, NULL},
    REDUCTION,
};
static const smx_port self_in[] = {
    LOGITS,
    {"soft_target", SMX_SHAPE_FULL, GRAD | SAVED, "a mass for each class; the target's does not count"},
    HARD_TARGET,
    {"weight", SMX_SHAPE_ROW, OPT | SAVED, "w, the weight of the target's part; 1 where it is not given"},
};
static const smx_param self_params[] = {
    IGNORE,
    {"alpha", "a, weight of the target", 1, 0, 1e30, 0, NULL},
    {"beta", "b, weight of the other classes", 0.1, 0, 1e30, 0, NULL},
    REDUCTION,
};
static const smx_port gap_in[] = {{"x", SMX_SHAPE_FULL, 0, "the student's cross-entropy less the teacher's"}};
static const smx_port temperature_out[] = {{"temperature", SMX_SHAPE_FULL, 0, "T'"}};
static const char *const dynamic_variants[] = {"a", "b", NULL};
static const smx_param dynamic_params[] = {
    {"variant", "a or b, as described", 1, 0, 1, SMX_PARAM_INT, dynamic_variants},
    {"start", "T0, the temperature to start from", 8, 1e-30, 1e30, 0, NULL},
    {"low", "the lowest temperature", 4, 1, 1e30, 0, NULL},
    {"high", "the highest", 8, 1e-30, 1e30, 0, NULL},
    {"momentum", "m, how much of the previous temperature stays (variant b)", 0.9, 0, 1, 0, NULL},
    {"previous", "T, the previous temperature (variant b); 0 = start", 0, 0, 1e30, 0, NULL},
    {"epoch", "e, from 0 on", 0, 0, 1e15, 0, NULL},
    {"epochs", "E, how many there will be", 1, 0, 1e15, SMX_PARAM_OPEN_MIN, NULL},
};

/* ---- sums over the classes ---- */

static const char *const one_n[] = {"one", "n", NULL};

static const smx_param nll_params[] = {IGNORE, REDUCTION};
static const smx_param svm_params[] = {
    IGNORE,
    {"power", "2 = squared hinge, 1 = hinge", 2, 1, 2, SMX_PARAM_INT, NULL},
    {"c", "multiplies the loss", 1, 0, 1e30, 0, NULL},
    REDUCTION,
    {"over", "what the sum is divided by: one, or the number of classes", 1, 0, 1, SMX_PARAM_INT, one_n},
};
static const smx_param gumbel_params[] = {
    IGNORE,
    {"low", "logits below count as this", -4, -4, 10, 0, NULL},
    {"high", "logits above count as this", 10, -4, 80, 0, NULL},
    REDUCTION,
};
static const smx_param zl_params[] = {
    IGNORE,
    {"a", "steepness", 1, 0, 1e6, SMX_PARAM_OPEN_MIN, NULL},
    {"b", "how many deviations above the mean the target should be", 0, -1e6, 1e6, 0, NULL},
    {"epsilon", "added to the deviation", 1e-12, 0, 1e30, 0, NULL},
    REDUCTION,
};
static const char *const spheres[] = {"mse", "log_spherical", "log_taylor", NULL};
static const smx_param sphere_params[] = {
    IGNORE,
    {"form", "squared error against one-hot; or the log of x^2 + e, or of 1 + x + x^2 / 2, over its sum",
     0, 0, 2, SMX_PARAM_INT, spheres},
    {"epsilon", "e", 1e-2, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL},
    REDUCTION,
};
static const smx_port dice_in[] = {
    {"x", SMX_SHAPE_FULL, GRAD | SAVED, "probability of a class at each pixel"},
    {"soft_target", SMX_SHAPE_FULL, GRAD | SAVED, "what it should be, 0 to 1"},
};
static const char *const overlaps[] = {"least", "product", "square", NULL};
#define OVERLAP \
  {"overlap", "tp: the sum of min(x, t), or of x t; square: of x t beside sums of x^2 and t^2", \
   0, 0, 2, SMX_PARAM_INT, overlaps}
static const smx_param dice_params[] = {
    {"alpha", "weight of false positives; alpha = beta = 1: Jaccard, 0.5: Dice", 1, 0, 1e30, 0, NULL},
    {"beta", "weight of false negatives", 1, 0, 1e30, 0, NULL},
    {"smooth", "added to both sides of the fraction", 1e-3, 0, 1e30, 0, NULL},
    REDUCTION,
    OVERLAP,
};

static const char *const relu_forms[] = {"log", "normalised", NULL};
static const char *const quality_forms[] = {"focal", "squared", "plain", NULL};
static const char *const densities[] = {"density", "distribution", NULL};
static const char *const tversky_forms[] = {"power", "log", NULL};
static const char *const hinges[] = {"all", "largest", NULL};
static const char *const rests[] = {"even", "nothing", NULL};


#include "table_answers.h"

enum { BACKWARD = SMX_OP_BACKWARD, DETACHED = SMX_OP_DETACHED };

const smx_op loss_table[LOSS_COUNT] = {
    [LOSS_cross_entropy] = {
        .id = 200, .name = "cross_entropy", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "negative log-likelihood of a target under softmax",
        .formula = "loss = sum_j w_j t_j (lse(z) - z_j) + Z lse(z)^2,  z = c tanh(x / c) / T",
        .about = "Loss and gradient from one read of the logits. A hard target has t_y = 1 - e + e / n and "
                 "t_j = e / n with label smoothing e; the other conventions are e / (n - 1) for the others, "
                 "and a mass that the target keeps. Soft targets need not sum to 1. Class weights multiply "
                 "each class's part; a mean then divides by the weights of the targets, or by the number of "
                 "rows where targets are soft. A loss below one float epsilon keeps its digits, and the "
                 "target's gradient is minus the sum of the others. A class of mass 0 takes no part, even "
                 "at -inf. Gradient: dx_j = (A + 2 Z lse) p_j - a_j with a_j = w_j t_j, A = sum_j a_j, "
                 "times dz / dx; that of a soft target is w_j (1 - e) (lse - z_j), 0 where it is infinite.",
        .source = "standard; label smoothing: When Does Label Smoothing Help? (Mueller, Kornblith, Hinton "
                  "2019); z_weight: PaLM: Scaling Language Modeling with Pathways (Chowdhery et al. 2022)",
        .example = "softmax run cross_entropy logits.npy labels.npy --label_smoothing 0.1",
        INPUTS(ce_in), OUTPUTS(ce_out), PARAMS(ce_params)},
    [LOSS_focal_loss] = {
        .id = 201, .name = "focal_loss", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "cross-entropy that plays down what is already sure",
        .formula = "loss = -a (1 - p_y)^g log p_y,  p = softmax(x)",
        .about = "For classes of very different frequency. g = 0 is cross-entropy. Gradient: -a (1 - p_y)^g "
                 "(1 + g p_y u / (e^u - 1)) ([j = y] - p_j) with u = log p_y, which neither divides 0 by 0 "
                 "nor blows up for g below 1.",
        .source = "Focal Loss for Dense Object Detection (Lin et al. 2017); softmax form as in Dice "
                  "Semimetric Losses (Wang et al. 2023)",
        .example = "softmax run focal_loss logits.npy labels.npy --gamma 2",
        INPUTS(focal_in), OUTPUTS(plain_out), PARAMS(focal_params)},
    [LOSS_poly_loss] = {
        .id = 202, .name = "poly_loss", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "cross-entropy with its first polynomial coefficients changed",
        .formula = "loss = -log p_y + sum_k e_k (1 - p_y)^k,  k = 1 .. 6",
        .about = "e1 = 1 alone is Poly-1, the first N together Poly-N. -log p is itself the sum of (1 - p)^k "
                 "/ k, so that e_k = -1 / k takes a term out. Soft targets: soft_poly_loss; of the focal "
                 "loss: poly_focal_loss. Gradient: (p_j - [j = y]) (1 + p_y sum_k k e_k (1 - p_y)^(k - 1)); "
                 "e1 of at least -1, alone, keeps its sign.",
        .source = "PolyLoss: A Polynomial Expansion Perspective of Classification Loss Functions (Leng et "
                  "al. 2022)",
        .example = "softmax run poly_loss logits.npy labels.npy --epsilon1 2",
        INPUTS(hard_in), OUTPUTS(plain_out), PARAMS(poly_params)},
    [LOSS_squared_error_logit] = {
        .id = 203, .name = "squared_error_logit", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "learning from a teacher that gives one class and its probability",
        .formula = "loss = (log p_a - log q_a)^2 / 2, (x_a - log q_a)^2 / 2, or -q_a log p_a",
        .about = "The third, naive form is biased: its best p is proportional to q^2. The raw form wants "
                 "normalising after training. Counting each pair of context and class once is left to the "
                 "caller.",
        .source = "Towards the Fundamental Limits of Knowledge Transfer over Finite Domains (Zhao, Zhu 2023)",
        .example = "softmax run squared_error_logit logits.npy labels.npy probabilities.npy",
        INPUTS(sel_in), OUTPUTS(plain_out), PARAMS(sel_params)},
    [LOSS_logit_adjustment] = {
        .id = 204, .name = "logit_adjustment", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "cross-entropy of logits shifted by the log of class frequencies",
        .formula = "loss = lse(z) - z_y,  z_j = x_j + tau log prior_j",
        .about = "For long-tailed classes. With tau = 1 and counts it is balanced softmax; counts and "
                 "frequencies give the same loss. A class of prior 0 does not exist. z_j is rounded to the "
                 "arithmetic type once. Gradient: softmax(z)_j - [j = y].",
        .source = "Long-tail learning via logit adjustment (Menon et al. 2021); Balanced Meta-Softmax (Ren "
                  "et al. 2020); CircuitGCL (2025)",
        .example = "softmax run logit_adjustment logits.npy labels.npy counts.npy",
        INPUTS(prior_in), OUTPUTS(plain_out), PARAMS(adjusted_params)},
    [LOSS_max_suppression] = {
        .id = 205, .name = "max_suppression", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "cross-entropy that holds down the largest logit",
        .formula = "loss = -log p_y + a (max x - mean x) + b / 2 sum_j x_j^2",
        .about = "Label smoothing, but for the predicted class instead of the target: equal to it where the "
                 "prediction is right. Ties: the first largest takes the subgradient. Gradient: p_j - [j = "
                 "y] + a ([j = argmax] - 1 / n) + b x_j.",
        .source = "MaxSup: Overcoming Representation Collapse in Label Smoothing (Zhou et al. 2025)",
        .example = "softmax run max_suppression logits.npy labels.npy --alpha 0.2",
        INPUTS(hard_in), OUTPUTS(plain_out), PARAMS(ms_params)},
    [LOSS_outlier_exposure] = {
        .id = 206, .name = "outlier_exposure", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "cross-entropy against the uniform distribution",
        .formula = "loss = lse(x) - mean x",
        .about = "For rows that belong to no class: the weights should be even. Gradient: p_j - 1 / n.",
        .source = "Deep Anomaly Detection with Outlier Exposure (Hendrycks, Mazeika, Dietterich 2019); "
                  "Energy-based Out-of-distribution Detection (Liu et al. 2020)",
        .example = "softmax run outlier_exposure outlier_logits.npy",
        INPUTS(logits_in), OUTPUTS(plain_out), PARAMS(oe_params)},
    [LOSS_energy_margin] = {
        .id = 207, .name = "energy_margin", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "squared hinge on the energy of a row",
        .formula = "loss = max(0, E - m_in)^2, or max(0, m_out - E)^2 for an outlier;  E = -T lse(x / T)",
        .about = "Pushes the energy of known rows down and that of outliers up; added to cross-entropy with "
                 "a weight of 0.1. The paper adds the mean over outliers to that over the others: sets = "
                 "apart with reduction = mean; where there are none, that part is 0. Gradient: -2 max(0, E - "
                 "m_in) p_j, or 2 max(0, m_out - E) p_j, with p = softmax(x / T).",
        .source = "Energy-based Out-of-distribution Detection (Liu et al. 2020)",
        .example = "softmax run energy_margin logits.npy --m_in -23 --m_out -5",
        INPUTS(outlier_in), OUTPUTS(plain_out), PARAMS(em_params)},
    [LOSS_robust_temperature] = {
        .id = 208, .name = "robust_temperature", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "cross-entropy with a temperature of each row's own, learned",
        .formula = "loss = T (lse(x / T) - log n + rho) - x_y",
        .about = "A temperature for each row, which a small network learns: at the best T the divergence of "
                 "softmax(x / T) from uniform is rho. Gradient: softmax(x / T)_j - [j = y], and dT = rho - "
                 "log n + entropy.",
        .source = "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via DRO (Qiu et "
                  "al. 2024)",
        .example = "softmax run robust_temperature logits.npy labels.npy tau.npy --rho 2",
        INPUTS(tau_in), OUTPUTS(plain_out), PARAMS(rt_params)},
    [LOSS_knowledge_distillation] = {
        .id = 220, .name = "knowledge_distillation", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "divergence between a student and a teacher",
        .formula = "loss = k sum_j q_j (log q_j - log p_j),  p = softmax(x / T), q = softmax(teacher / T_t); "
                   "or reverse, or -k sum_j q_j log p_j",
        .about = "k is T^2 where both temperatures are equal, else 1. A class without weight takes no part; "
                 "the divergence is +inf where the other row has none there, and a gradient that would not "
                 "be finite is 0 then. Gradient: (k / T) (p_j - q_j) forward, (k / T) p_j (log p_j / q_j - "
                 "D) reverse; the teacher's likewise.",
        .source = "Distilling the Knowledge in a Neural Network (Hinton, Vinyals, Dean 2015); Rethinking "
                  "Kullback-Leibler Divergence in Knowledge Distillation for Large Language Models (Wu et "
                  "al. 2024)",
        .example = "softmax run knowledge_distillation student.npy teacher.npy --temperature 4",
        INPUTS(pair_in), OUTPUTS(plain_out), PARAMS(kd_params)},
    [LOSS_jensen_shannon] = {
        .id = 221, .name = "jensen_shannon", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "distance of two distributions from their mixture",
        .formula = "loss = b D(p || m) + (1 - b) D(q || m),  m = b p + (1 - b) q,  p = softmax(x / T), q = "
                   "softmax(teacher / T)",
        .about = "Symmetric for b = 1/2, and finite whatever the rows hold: at most log 2 then. More rows "
                 "than two: smx_jensen_shannon. In the paper, and in programs for distillation, the number "
                 "called beta is the teacher's weight, 1 - b; at the ends, where this is 0, they turn to "
                 "knowledge_distillation. Gradient: (b / T) p_j (log p_j / m_j - D(p || m)), and the "
                 "teacher's likewise.",
        .source = "standard; the weighted form as in On-Policy Distillation of Language Models (Agarwal et "
                  "al. 2024), its sides exchanged",
        .example = "softmax run jensen_shannon a.npy b.npy",
        INPUTS(pair_in), OUTPUTS(plain_out), PARAMS(js_params)},
    [LOSS_decoupled_kd] = {
        .id = 222, .name = "decoupled_kd", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "distillation of the target and of the other classes, weighed apart",
        .formula = "loss = T^2 (a D([q_y, 1 - q_y] || [p_y, 1 - p_y]) + b D(q^ || p^)),  q^, p^: the other "
                   "classes among themselves",
        .about = "a = 1 and b = 1 - q_y is the plain divergence. The other classes are normalised over "
                 "themselves, so that nothing is a difference of numbers close to 1. A row without another "
                 "class counts as empty. standardised_dkd is the same of standardised logits.",
        .source = "Decoupled Knowledge Distillation (Zhao et al. 2022); Logit Standardization in Knowledge "
                  "Distillation (Sun et al. 2024)",
        .example = "softmax run decoupled_kd student.npy teacher.npy labels.npy",
        INPUTS(taught_target_in), OUTPUTS(plain_out), PARAMS(dkd_params)},
    [LOSS_normalised_kd] = {
        .id = 223, .name = "normalised_kd", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "distillation with the other classes normalised",
        .formula = "loss = -q_y log p_y - g T^2 sum_(j != y) q^_j log p^_j,  q^, p^: the other classes among "
                   "themselves, of logits divided by T",
        .about = "Added to cross-entropy. p_y and q_y are those at temperature 1, as in the authors' "
                 "program. A row without another class counts as empty. Gradient: q_y (p_j - [j = y]) + g T "
                 "(p^_j - q^_j) of the others.",
        .source = "From Knowledge Distillation to Self-Knowledge Distillation: A Unified Approach (Yang et "
                  "al. 2023)",
        .example = "softmax run normalised_kd student.npy teacher.npy labels.npy",
        INPUTS(taught_target_in), OUTPUTS(plain_out), PARAMS(nkd_params)},
    [LOSS_nll_loss] = {
        .id = 236, .name = "nll_loss", .family = "loss", .flags = BACKWARD, .tolerance = 4,
        .title = "negative log-likelihood of a target",
        .formula = "loss = -w_y x_y",
        .about = "What cross_entropy becomes where the logarithms of the weights are there already. A class "
                 "of weight 0 counts nothing, whatever its x. The gradient is -w_y at the target and 0 "
                 "elsewhere.",
        .source = "NegativeLogLikelihoodLoss of ONNX (version 22)",
        .example = "softmax run nll_loss log_probabilities.npy labels.npy",
        INPUTS(nll_in), OUTPUTS(plain_out), PARAMS(nll_params)},
    [LOSS_l2_svm_loss] = {
        .id = 230, .name = "l2_svm_loss", .family = "loss", .flags = BACKWARD, .tolerance = 32,
        .title = "one-against-rest hinge",
        .formula = "loss = (c / n) sum_j max(0, 1 - t_j x_j)^power, or that times n,  t_y = 1, the others -1",
        .about = "The last layer of a support vector machine. The papers write a sum over the classes "
                 "(over = one), the published program of the first takes their mean. The regulariser of "
                 "the weights is the caller's. A row with an infinite logit is NaN.",
        .source = "An Architecture Combining CNN and SVM for Image Classification (Agarap 2017); Deep "
                  "Learning using Linear Support Vector Machines (Tang 2013)",
        .example = "softmax run l2_svm_loss scores.npy labels.npy",
        INPUTS(hard_in), OUTPUTS(plain_out), PARAMS(svm_params)},
    [LOSS_gumbel_optimized_loss] = {
        .id = 231, .name = "gumbel_optimized_loss", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "independent classes with the Gumbel distribution as activation",
        .formula = "loss = u_y - sum_(j != y) log(1 - e^-u_j),  u = e^-x, x kept within low..high",
        .about = "For rare classes: the activation e^(-e^-x) is skewed, unlike the sigmoid. Gradient: -u_y, "
                 "and u_j / (e^u_j - 1) of the others; 0 where x is kept.",
        .source = "Long-tailed Instance Segmentation using Gumbel Optimized Loss (Alexandridis et al. 2022)",
        .example = "softmax run gumbel_optimized_loss logits.npy labels.npy",
        INPUTS(hard_in), OUTPUTS(plain_out), PARAMS(gumbel_params)},
    [LOSS_binary_logit_distillation] = {
        .id = 232, .name = "binary_logit_distillation", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "distillation of independent classes, weighed by how far they are off",
        .formula = "loss = sum_j |b_j - a_j|^beta (-b_j log a_j - (1 - b_j) log(1 - a_j)),  a = sigmoid(x), "
                   "b = sigmoid(teacher)",
        .about = "For detectors, whose classes do not compete. The weight is differentiated unless detach = "
                 "yes; where a = b its slope is 0.",
        .source = "Bridging Cross-task Protocol Inconsistency for Distillation in Dense Object Detection "
                  "(Yang et al. 2023)",
        .example = "softmax run binary_logit_distillation student.npy teacher.npy",
        INPUTS(taught_in), OUTPUTS(plain_out), PARAMS(bld_params)},
    [LOSS_z_loss] = {
        .id = 233, .name = "z_loss", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "how many deviations the target is above the mean",
        .formula = "loss = softplus(a (b - z)) / a,  z = (x_y - mean x) / (deviation of x + e)",
        .about = "Does not change when logits are shifted or scaled. Where all are equal z is 0, and the "
                 "gradient 0. (Not the z-regularisation of cross_entropy, which adds lse^2.) A row with an "
                 "infinite logit is NaN.",
        .source = "The Z-loss: a shift and scale invariant classification loss belonging to the Spherical "
                  "Family (de Brebisson, Vincent 2016)",
        .example = "softmax run z_loss logits.npy labels.npy",
        INPUTS(hard_in), OUTPUTS(plain_out), PARAMS(zl_params)},
    [LOSS_spherical_loss] = {
        .id = 234, .name = "spherical_loss", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "losses of the target, the sum and the sum of squares alone",
        .formula = "loss = sum_j (x_j - [j = y])^2, -log((x_y^2 + e) / sum_j (x_j^2 + e)), or -log(t(x_y) / "
                   "sum_j t(x_j)), t(x) = 1 + x + x^2 / 2",
        .about = "The family for which a very large output layer can be trained without computing all of it. "
                 "A row with an infinite logit is NaN.",
        .source = "An Exploration of Softmax Alternatives Belonging to the Spherical Loss Family (de "
                  "Brebisson, Vincent 2016)",
        .example = "softmax run spherical_loss logits.npy labels.npy --form log_taylor",
        INPUTS(hard_in), OUTPUTS(plain_out), PARAMS(sphere_params)},
    [LOSS_dice_semimetric_loss] = {
        .id = 235, .name = "dice_semimetric_loss", .family = "loss", .flags = BACKWARD, .tolerance = 64,
        .title = "overlap of a soft mask with a soft target",
        .formula = "loss = 1 - (tp + s) / (tp + a fp + b fn + s),  tp = (P + T - D) / 2, fp = P - tp, fn = T "
                   "- tp, D = sum |x - t|^k, P = sum x^k, ...",
        .about = "For segmentation: a row is the pixels of one image and class, x what softmax over the "
                 "classes gave. With k = 1, overlap = least, it is smallest at x = t even where targets are "
                 "soft. overlap = product is the usual soft Dice, tp = sum x t with k = 1: the same for "
                 "targets of 0 and 1, but not smallest at x = t for others. overlap = square is k = 2, where "
                 "tp = sum x t too; with alpha = beta it is smallest at x = t, with others it may leave "
                 "0..1. 0 for an empty fraction; a pixel where x and t are 0 adds nothing. "
                 "focal_tversky_loss adds weights of rows, a power and the logarithm.",
        .source = "Dice Semimetric Losses: Optimizing the Dice Score with Soft Labels (Wang et al. 2023); "
                  "squares: V-Net (Milletari, Navab, Ahmadi 2016)",
        .example = "softmax run dice_semimetric_loss probabilities.npy masks.npy --alpha 0.5 --beta 0.5",
        INPUTS(dice_in), OUTPUTS(plain_out), PARAMS(dice_params)},
#include "table_distill.inc"
#include "table_scores.inc"
#include "table_binary.inc"
#include "table_labels.inc"
#include "table_target.inc"
#include "table_normalised.inc"
#include "table_preference.inc"
#include "table_policy.inc"
};
