/* pairwise/table.c - the facts about each operator on pairs of rows. The command, the bindings, the
 * tests and the manual all read this. */
#include "pairwise.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS

enum {
  GRAD = SMX_PORT_GRAD | SMX_PORT_SAVED,
  OPT = SMX_PORT_OPTIONAL,
  MASK = SMX_PORT_MASK | SMX_PORT_OPTIONAL | SMX_PORT_SAVED,
  WHOLE = SMX_PORT_INT | SMX_PORT_SAVED
};

#define A(help) {"a", DIMS, GRAD, help ", or similarities", "n d"}
#define B(help, rows) {"b", DIMS, GRAD | OPT, help, rows " d"}
#define REST(pairs) \
  {"temperature", DIMS, GRAD | OPT, "one positive number that is learned, for the parameter", ""}, \
      {"mask", DIMS, MASK, "nonzero keeps a pair; the positive of a row is kept", pairs}
#define TEMPERATURE(t) {"temperature", "divides the similarities", t, 1e-30, 1e30, 0, NULL}
#define FEATURES \
  {"normalise", "divides features by their length", 1, 0, 1, SMX_PARAM_INT, no_yes}, \
      {"similarities", "a holds those of its rows with the columns, and b is not given", \
       0, 0, 1, SMX_PARAM_INT, no_yes}
#define DECOUPLED \
  {"decoupled", "leaves positives out of the sum over all pairs", 0, 0, 1, SMX_PARAM_INT, no_yes}

/* Rows with sets of positives, b or a itself. */
#define LABELS \
  A("features"), B("features of the others; a without, and no row with itself", "m"), REST("n m"), \
      {"label", DIMS, WHOLE | OPT, "to be given, or positive: equal ones are positives, but below 0", "n"}, \
      {"label_b", DIMS, WHOLE | OPT, "labels of b, or of the columns", "m"}, \
      {"positive", DIMS, MASK, "which pairs are positives, in place of labels", "n m"}
#define SELF \
  {"self", "similarities: leaves out those on the diagonal of a square", 1, 0, 1, SMX_PARAM_INT, no_yes}
#define KEYS \
  {"target", DIMS, WHOLE | OPT | SMX_PORT_TARGET, "the key of each row; that of its number without", \
   "n | < m"}
#define IGNORE \
  {"ignore_index", "a row with this target is left out: loss 0, gradient 0", \
   -100, -1e15, 1e15, SMX_PARAM_INT, NULL}

static const char *const no_yes[] = {"no", "yes", NULL};
static const smx_port loss_out[] = {{"loss", DIMS, 0, "of each row", "n"}};

static const smx_port keys_in[] = {
    A("features of what asks"), B("to be given: features of keys", "m"), REST("n m"), KEYS};
static const smx_param keys_params[] = {
    TEMPERATURE(0.07), FEATURES, DECOUPLED, IGNORE};

static const smx_port twins_in[] = {
    A("features, of images say"), B("to be given: features of their texts", "n"), REST("n n")};
static const smx_param twins_params[] = {TEMPERATURE(0.07), FEATURES};

static const smx_port views_in[] = {A("features, two views of everything"), REST("n n")};
static const char *const views[] = {"concatenated", "interleaved", NULL};
static const smx_param views_params[] = {
    TEMPERATURE(0.5), FEATURES, DECOUPLED,
    {"views", "how both views lie: i beside i + n / 2, or beside i ^ 1", 0, 0, 1, SMX_PARAM_INT, views}};

static const smx_port labels_in[] = {LABELS};
static const char *const forms[] = {"out", "in", "nce", NULL};
static const smx_param labels_params[] = {
    TEMPERATURE(0.07), FEATURES, DECOUPLED,
    {"form", "out: mean_P of log p; in: log mean_P p; nce: log sum_P p", 0, 0, 2, SMX_PARAM_INT, forms},
    SELF};

static const smx_port weighted_labels_in[] = {
    LABELS, {"weight", DIMS, SMX_PORT_SAVED | OPT, "of each positive, its relevance; 1 without", "n m"}};
static const smx_param decoupled_params[] = {TEMPERATURE(0.05), FEATURES, SELF};
static const smx_param topk_params[] = {
    TEMPERATURE(0.05), FEATURES, SELF,
    {"k", "how many pairs are to be on top; 0: as many as positives", 5, 0, 1e9, SMX_PARAM_INT, NULL},
    {"alpha", "how hard the bar is", 2, 1e-6, 1e6, 0, NULL}};

static const smx_port ranking_in[] = {
    A("features of users"), B("to be given: features of items", "m"), REST("n m"), KEYS};
static const char *const activations[] = {"tanh", "relu", "atan", "exp", "bpr", NULL};
static const smx_param ranking_params[] = {
    TEMPERATURE(1), FEATURES, IGNORE,
    {"activation", "A: log(1 + tanh), log(1 + x), log(1 + atan), x; bpr: log(1 + e^x)",
     0, 0, 4, SMX_PARAM_INT, activations},
    {"outer", "divides A", 1, 1e-6, 1e6, 0, NULL}};

static const smx_port soft_in[] = {
    A("features"), B("features of the others; a without, and no row with itself", "m"), REST("n m"),
    {"weight", DIMS, SMX_PORT_SAVED | OPT, "to be given: how alike each pair is, a probability say", "n m"}};
static const smx_param soft_params[] = {
    TEMPERATURE(1),
    {"normalise", "divides features by their length", 0, 0, 1, SMX_PARAM_INT, no_yes},
    {"similarities", "a holds those of its rows with the columns, and b is not given",
     0, 0, 1, SMX_PARAM_INT, no_yes},
    SELF};

static const smx_port graded_in[] = {
    A("features of queries"), B("to be given: features of the candidates", "m"), REST("n m"), KEYS,
    {"teacher", DIMS, SMX_PORT_SAVED | OPT, "to be given: the score that a teacher gives each pair", "n m"}};
static const char *const filters[] = {"none", "absolute", "relative", NULL};
static const smx_param graded_params[] = {
    TEMPERATURE(0.05), FEATURES, IGNORE,
    {"teacher_temperature", "divides the scores of the teacher", 0.05, 1e-30, 1e30, 0, NULL},
    {"filter", "drops negatives not below s_p - margin (absolute) or margin s_p",
     0, 0, 2, SMX_PARAM_INT, filters},
    {"margin", "of the filter", 0, -1e30, 1e30, 0, NULL}};

static const smx_port global_in[] = {
    A("features of anchors"), B("to be given: features of the others", "m"),
    {"temperature", DIMS, GRAD | OPT, "of each row, positive, for the parameter", "n"},
    {"mask", DIMS, MASK, "nonzero keeps a pair; the positive of a row is kept", "n m"}, KEYS,
    {"state", DIMS, SMX_PORT_SAVED | OPT, "of each row, as its last call left it; -inf: it is new", "n"}};
static const smx_port global_out[] = {
    {"loss", DIMS, 0, "of each row", "n"},
    {"new_state", DIMS, SMX_PORT_STATE, "for the next time that the row comes", "n"}};
static const smx_param global_params[] = {
    TEMPERATURE(0.07), FEATURES, IGNORE,
    {"gamma", "the part of the new sum in the running one", 0.8, 0, 1, SMX_PARAM_OPEN_MIN, NULL},
    {"rho", "is added to the logarithm, times T", 0, 0, 1e6, 0, NULL}};

static const smx_port soft_clip_in[] = {
    A("features, of images say"), B("to be given: features of their texts", "n"), REST("n n"),
    {"guide_a", DIMS, SMX_PORT_SAVED | OPT, "to be given: what tells how alike the rows of a are", "n k"},
    {"guide_b", DIMS, SMX_PORT_SAVED | OPT, "to be given: the same of b", "n l"}};
static const smx_param soft_clip_params[] = {
    TEMPERATURE(0.07), FEATURES,
    {"guide_temperature", "divides the similarities of the guides", 0.07, 1e-30, 1e30, 0, NULL},
    {"beta", "the part of the guide in the target", 0.3, 0, 1, 0, NULL},
    {"negatives", "lambda, the weight of the term of the negatives", 1, 0, 1e6, 0, NULL}};

static const smx_port nbc_in[] = {
    {"z", DIMS, GRAD, "features", "n d"},
    {"target", DIMS, WHOLE | SMX_PORT_TARGET, "the class of each row; -1: it has none", "n | < classes"}};
static const smx_port nbc_out[] = {{"loss", DIMS, 0, "of the batch", ""}};
static const smx_param nbc_params[] = {
    {"classes", "how many there are, in this batch or not", 10, 1, 1e5, SMX_PARAM_INT, NULL},
    {"scale", "multiplies the cosines; the authors call it temperature", 0.2, -1e6, 1e6, 0, NULL},
    {"self", "adds 1 to every sum, as the authors' code does", 1, 0, 1, SMX_PARAM_INT, no_yes}};

static const smx_port flow_in[] = {
    {"z", DIMS, GRAD, "latent features", "n d"},
    {"mean", DIMS, GRAD, "of each class", "k d"},
    {"log_sd", DIMS, GRAD, "logarithms of its standard deviations, positive or not", "k d"},
    {"log_det", DIMS, GRAD | OPT, "of the flow that made z, is added", "n"}};
static const smx_port flow_out[] = {
    {"score", DIMS, 0, "of each row", "n"},
    {"density", DIMS, OPT, "the logarithms of the densities of all classes", "n k"}};
static const smx_param flow_params[] = {
    {"bits", "the score in bits a dimension", 0, 0, 1, SMX_PARAM_INT, no_yes}};

static const smx_port flow_loss_in[] = {
    {"density", DIMS, GRAD, "log N(z_i; mean_j, sd_j) of the rows of a batch, from flowcon_score", "n n"},
    {"label", DIMS, WHOLE, "the class of each row; below 0: it has none", "n"}};
static const smx_param flow_loss_params[] = {
    {"tau", "multiplies the densities", 0.1, 1e-6, 1e6, 0, NULL},
    {"tau2", "divides what their exponentials are", 1, 1e-6, 1e6, 0, NULL}};

static const smx_port separation_in[] = {{"weight", DIMS, 0, "of each key", "... l"},
                                         {"x", DIMS, 0, "the keys", "... l d"}};
static const smx_port separation_out[] = {
    {"distance", DIMS, 0, "of the keys that were not chosen, added up", "..."},
    {"fraction", DIMS, 0, "of those that were chosen, how many are near", "..."}};
static const smx_param separation_params[] = {
    {"top", "N, how many weights are chosen, the largest", 4, 1, 1e9, SMX_PARAM_INT, NULL},
    {"radius", "within which a key is near", 1, 0, 1e30, 0, NULL}};

/* Features and classes. */
#define CLASSES(w) \
  {"h", DIMS, GRAD, "features", "n d"}, {"w", DIMS, w, "the direction of each class", "c d"}, \
      {"target", DIMS, WHOLE | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < c"}
#define CLASS_MASK {"mask", DIMS, MASK, "nonzero keeps a class for a row; its own is kept", "n c"}
#define UNIT {"normalise", "divides features and classes by their length", 1, 0, 1, SMX_PARAM_INT, no_yes}

static const smx_port sphere_in[] = {
    CLASSES(GRAD), {"bias", DIMS, GRAD | OPT, "b, a number that is learned; 0 without", ""}, CLASS_MASK};
static const smx_param sphere_params[] = {
    UNIT, IGNORE, {"balance", "l, what the class of a row weighs", 0.7, 0, 1, 0, NULL},
    {"scale", "r", 40, 1e-6, 1e6, 0, NULL}, {"margin", "m", 0.4, 0, 1e6, 0, NULL},
    {"power", "t", 3, 0, 64, SMX_PARAM_OPEN_MIN, NULL},
    {"factor", "w, multiplies the loss", 50, -1e30, 1e30, 0, NULL},
    {"detach", "takes 1 for the derivative of g, as the authors' code does",
     0, 0, 1, SMX_PARAM_INT, no_yes}};

static const smx_port wcdas_in[] = {
    CLASSES(GRAD), {"concentration", DIMS, GRAD, "of each class", "c"},
    {"strength", DIMS, GRAD | OPT, "a number that is learned, for scale", ""}, CLASS_MASK};
static const smx_param wcdas_params[] = {
    UNIT, IGNORE, {"scale", "S without strength; this is that of strength 0",
                   1.6931471805599453, 1e-30, 1e30, 0, NULL}};

static const smx_port metric_in[] = {
    CLASSES(SMX_PORT_SAVED),
    {"temperature", DIMS, GRAD | OPT, "one positive number that is learned, for the parameter", ""},
    CLASS_MASK};
static const smx_param metric_params[] = {
    {"temperature", "divides the cosines", 0.01, 1e-30, 1e30, 0, NULL}, UNIT, IGNORE,
    {"margin", "of a class at right angles", 0.3, -1e6, 1e6, 0, NULL}};

static const smx_port adaptive_in[] = {
    CLASSES(GRAD),
    {"scale", DIMS, SMX_PORT_SAVED | OPT, "s, a positive number, for that of the batch; m is 0", ""},
    CLASS_MASK};
static const smx_port adaptive_out[] = {
    {"loss", DIMS, 0, "of each row", "n"},
    {"scale", DIMS, OPT, "s of the batch; no gradient", ""},
    {"margin", DIMS, OPT, "m of the batch; no gradient", ""}};
static const char *const medians[] = {"median_row", "median", "mean", NULL};
static const smx_param adaptive_params[] = {
    UNIT, IGNORE, {"alpha", "a, the probability of the median row's class", 0.1, 1e-6, 0.999999, 0, NULL},
    {"of", "B: of the row that has the median, or the median or mean of all",
     0, 0, 2, SMX_PARAM_INT, medians}};

#define COSINES \
  "c = h w^T, of rows of length 1 with normalise (a row shorter than 1e-12 is divided by that). " \
  "Memory grows with n + c and d: cosines of some rows are formed, used, and formed again for the " \
  "gradient, in sums as smx_linear_logits has them. "
#define ABOUT \
  "s = a b^T, of unit rows with normalise (a row shorter than 1e-12 is divided by that). Memory " \
  "grows with n + m and d: logits of some rows are formed, used, and formed again for the gradient, " \
  "in sums as smx_linear_logits has them. Gradients of a, b and temperature. "

const smx_op pairwise_table[PAIRWISE_COUNT] = {
    [PAIRWISE_info_nce] = {
        .id = 535, .name = "info_nce", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "cross-entropy of a row's own key among all keys",
        .formula = "loss_i = log sum_j e^(s_ij / T) - s_it / T,  t = target_i or i",
        .about = ABOUT
                 "One direction: rows ask, columns answer; clip_loss has both. A mask leaves out false "
                 "negatives. decoupled leaves the positive out of the sum (DCL).",
        .source = "Representation Learning with Contrastive Predictive Coding (van den Oord et al. 2018); "
                  "Momentum Contrast (He et al. 2019); Decoupled Contrastive Learning (Yeh et al. 2021)",
        .example = "softmax run info_nce queries.npy keys.npy",
        INPUTS(keys_in), OUTPUTS(loss_out), PARAMS(keys_params)},
    [PAIRWISE_clip_loss] = {
        .id = 536, .name = "clip_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "info_nce from a to b and from b to a, halved",
        .formula = "loss_i = (log sum_j e^(s_ij / T) + log sum_j e^(s_ji / T)) / 2 - s_ii / T",
        .about = ABOUT
                 "The mean of the loss over the rows is that of CLIP. Rows and columns of the logits come "
                 "from one walk; the gradient takes another one for the columns. CLIP learns log(1 / T), "
                 "at most log 100: dlog(1 / T) = -T dT.",
        .source = "Learning Transferable Visual Models From Natural Language Supervision (Radford et al. "
                  "2021)",
        .example = "softmax run clip_loss images.npy texts.npy",
        INPUTS(twins_in), OUTPUTS(loss_out), PARAMS(twins_params)},
    [PAIRWISE_nt_xent] = {
        .id = 537, .name = "nt_xent", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "cross-entropy of a row's other view among all other rows (SimCLR)",
        .formula = "loss_i = log sum_(j != i) e^(s_ij / T) - s_it / T,  t the other view of row i",
        .about = ABOUT
                 "The mean over the n rows, which are two views of n / 2 things, is the loss of SimCLR. "
                 "decoupled leaves the positive out of the sum (DCL).",
        .source = "A Simple Framework for Contrastive Learning of Visual Representations (Chen et al. "
                  "2020); Decoupled Contrastive Learning (Yeh et al. 2021)",
        .example = "softmax run nt_xent views.npy",
        INPUTS(views_in), OUTPUTS(loss_out), PARAMS(views_params)},
    [PAIRWISE_supervised_contrastive] = {
        .id = 538, .name = "supervised_contrastive", .family = "pairwise", .flags = SMX_OP_BACKWARD,
        .tolerance = 32,
        .title = "contrast of all rows of a row's class with all others",
        .formula = "out: loss_i = log sum_A e^(s_ij / T) - mean_P s_ij / T;  in: log sum_A e^(s_ij / T) - "
                   "log mean_P e^(s_ij / T);  nce: log sum_A e^(s_ij / T) - log sum_P e^(s_ij / T)",
        .about = ABOUT
                 "A: all pairs of row i that the mask keeps, but that with itself; P: those of its label, "
                 "or that positive names. A row without positives has loss 0 and gradient 0; SupCon's mean "
                 "is over the others. out and in are the two forms of SupCon (L_out, L_in), nce is MIL-NCE "
                 "and that of NPM, without log |P|. decoupled sums over A without P.",
        .source = "Supervised Contrastive Learning (Khosla et al. 2020); End-to-End Learning of Visual "
                  "Representations from Uncurated Instructional Videos (Miech et al. 2020); Nonparametric "
                  "Masked Language Modeling (Min et al. 2022)",
        .example = "softmax run supervised_contrastive features.npy --label labels.npy",
        INPUTS(labels_in), OUTPUTS(loss_out), PARAMS(labels_params)},
    [PAIRWISE_decoupled_softmax_loss] = {
        .id = 539, .name = "decoupled_softmax_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD,
        .tolerance = 32,
        .title = "every positive of a row by itself against its negatives",
        .formula = "loss_i = mean_P w_ip log(1 + e^(log sum_N e^(s_ij / T) - s_ip / T))",
        .about = ABOUT
                 "N: the pairs of row i that are no positives; a mask leaves out positives that were not "
                 "sampled. Other positives are not pushed away, as they are by supervised_contrastive. A "
                 "row without positives or negatives has loss 0.",
        .source = "Dual-Encoders for Extreme Multi-Label Classification (Gupta et al. 2023)",
        .example = "softmax run decoupled_softmax_loss features.npy --label labels.npy",
        INPUTS(weighted_labels_in), OUTPUTS(loss_out), PARAMS(decoupled_params)},
    [PAIRWISE_pairwise_softmax_loss] = {
        .id = 540, .name = "pairwise_softmax_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "softmax loss over differences to the positive, activated (PSL, SL, BPR)",
        .formula = "loss_i = log sum_(j in N) e^(A(d_ij) / outer),  d_ij = (s_ij - s_ip) / T;  bpr: mean_N A",
        .about = ABOUT
                 "exp is the softmax loss of recommendation without its positive. Rows are users, the mask "
                 "keeps the items that were sampled. The form over all pairs of a batch is logsumexp of "
                 "the losses less the log of the number of pairs. A difference that relu or atan cuts has "
                 "no part; where all are cut the loss is -inf.",
        .source = "PSL: Rethinking and Improving Softmax Loss from Pairwise Perspective for "
                  "Recommendation (Yang et al. 2024); BPR (Rendle et al. 2009)",
        .example = "softmax run pairwise_softmax_loss users.npy items.npy",
        INPUTS(ranking_in), OUTPUTS(loss_out), PARAMS(ranking_params)},
    [PAIRWISE_soft_contrastive] = {
        .id = 541, .name = "soft_contrastive", .family = "pairwise", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "contrast whose positives have weights",
        .formula = "loss_i = sum_j w_ij (log sum_k e^(s_ik / T) - s_ij / T)",
        .about = ABOUT
                 "Without b, no row is compared with itself. SoftCLT takes dot products of two views of a "
                 "batch, one time step at a time, with w = 2 alpha / (1 + e^(tau D)) of the distances D of "
                 "the series and w = 1 of the other view, or of two views of a series with w = 2 / (1 + "
                 "e^(tau |t - t'|)); a hierarchy repeats that after max_pool along time.",
        .source = "Soft Contrastive Learning for Time Series (Lee et al. 2023)",
        .example = "softmax run soft_contrastive views.npy --weight weights.npy",
        INPUTS(soft_in), OUTPUTS(loss_out), PARAMS(soft_params)},
    [PAIRWISE_soft_topk_loss] = {
        .id = 542, .name = "soft_topk_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 256,
        .title = "positives are to be among the k best pairs of their row",
        .formula = "loss_i = -mean_P log f_ip,  f_ij = 1 / (1 + e^(-alpha (s_ij / T + t))),  sum_j f_ij = k",
        .about = ABOUT
                 "t by Newton's method in double, until it stays. k as large as the number of pairs: loss "
                 "0. A row without positives has loss 0.",
        .source = "Dual-Encoders for Extreme Multi-Label Classification (Gupta et al. 2023)",
        .example = "softmax run soft_topk_loss features.npy --label labels.npy --k 2",
        INPUTS(labels_in), OUTPUTS(loss_out), PARAMS(topk_params)},
    [PAIRWISE_graded_embedding_loss] = {
        .id = 543, .name = "graded_embedding_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "candidates of a query as a teacher grades them",
        .formula = "loss_i = KL(softmax(teacher_i / T_t) || softmax(s_i / T)), over the pairs that are kept",
        .about = ABOUT
                 "Kept are the positive and what mask and filter leave: a negative as near as the positive "
                 "may be a false one. The loss is ours after the abstract of the report, whose formula we "
                 "could not read.",
        .source = "LG-ANNA-Embedding technical report (2025)",
        .example = "softmax run graded_embedding_loss queries.npy keys.npy --teacher scores.npy",
        INPUTS(graded_in), OUTPUTS(loss_out), PARAMS(graded_params)},
    [PAIRWISE_global_contrastive_loss] = {
        .id = 544, .name = "global_contrastive_loss", .family = "pairwise",
        .flags = SMX_OP_BACKWARD | SMX_OP_DETACHED, .tolerance = 64,
        .title = "contrast with all that a row has been compared with (SogCLR, iSogCLR)",
        .formula = "loss_i = T (L_i - log |N|) + rho T,  L_i = log((1 - gamma) e^state_i + gamma sum_N "
                   "e^((s_ij - s_ip) / T))",
        .about = ABOUT
                 "The state is the logarithm of a running sum, of each row of the data set: take those of "
                 "the batch, and put new_state back. The gradient is the estimate of the papers: it takes "
                 "w_j = e^((s_ij - s_ip) / T - L_i) as constants, so that ds_ij = w_j; dT_i = L_i - log |N| "
                 "+ rho - sum w d. gamma = 1 or a new row: the exact one. Their floor of 1e-14 for the sum "
                 "is left out. No gradient for new_state.",
        .source = "Provable Stochastic Optimization for Global Contrastive Learning (Yuan et al. 2022); Not "
                  "All Semantics are Created Equal (Qiu et al. 2023); To Cool or not to Cool? (Qiu et al. "
                  "2024)",
        .example = "softmax run global_contrastive_loss images.npy texts.npy --state state.npy",
        INPUTS(global_in), OUTPUTS(global_out), PARAMS(global_params)},
    [PAIRWISE_soft_clip_loss] = {
        .id = 545, .name = "soft_clip_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 64,
        .title = "clip_loss whose targets know how alike the rows of either side are (SoftCLIP)",
        .formula = "loss_i = KL((1 - beta) e_i + beta q_i || p_i) + lambda KL(q'_i || p'_i), from a to b "
                   "and from b to a, halved",
        .about = ABOUT
                 "p = softmax(s_i / T), q = softmax(r_i / T_g) with r = guide guide^T of the side that "
                 "asks; p' and q' are the same without the pair (i, i). The targets are constants. With "
                 "similarities the guides are n x n. beta, lambda and the temperatures of the paper are "
                 "not known to us. What some projects call soft CLIP loss has beta = 1 and lambda = 0.",
        .source = "SoftCLIP: Softer Cross-modal Alignment Makes CLIP Stronger (Gao et al. 2023)",
        .example = "softmax run soft_clip_loss images.npy texts.npy --guide_a regions.npy --guide_b tags.npy",
        INPUTS(soft_clip_in), OUTPUTS(loss_out), PARAMS(soft_clip_params)},
    [PAIRWISE_nbc_loss] = {
        .id = 546, .name = "nbc_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "the centres of classes are to have other directions",
        .formula = "loss = sum_a log(sum_(b != a) e^(scale cos(mu_a, mu_b)) + self + 1e-10) / (M K)",
        .about = "mu: means of the rows of the M classes that the batch has, of K in all. NBC-Softmax adds "
                 "it to cross-entropy, (1 - r) ce + r loss. A centre of zeros has cosines of 0. In double.",
        .source = "NBC-Softmax: Darkweb Author fingerprinting and migration tracking (Kulatilleke et al. "
                  "2022), as its code has it",
        .example = "softmax run nbc_loss features.npy labels.npy --classes 100",
        INPUTS(nbc_in), OUTPUTS(nbc_out), PARAMS(nbc_params)},
    [PAIRWISE_flowcon_score] = {
        .id = 547, .name = "flowcon_score", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 64,
        .title = "log-density of latent features under the nearest class (FlowCon)",
        .formula = "score_i = max_k sum_t (-log(2 pi) / 2 - ls_kt - (z_it - mean_kt)^2 e^(-2 ls_kt) / 2) + "
                   "log_det_i",
        .about = "bits = yes divides by d log 2. density has neither that nor log_det. Of rows as their own "
                 "classes, mean and log_sd of each, it is what flowcon_loss takes. In double.",
        .source = "FlowCon: Out-of-Distribution Detection using Flow-Based Contrastive Learning (Aathreya "
                  "and Canavan 2024)",
        .example = "softmax run flowcon_score latents.npy means.npy log_sds.npy",
        INPUTS(flow_in), OUTPUTS(flow_out), PARAMS(flow_params)},
    [PAIRWISE_flowcon_loss] = {
        .id = 548, .name = "flowcon_loss", .family = "pairwise", .flags = SMX_OP_BACKWARD, .tolerance = 64,
        .title = "supervised contrast of densities (FlowCon)",
        .formula = "loss_i = log sum_(k != i) e^r_ik - mean_P r_ij,  r_ij = (e^(tau (l_ij - max_j l_ij)) + "
                   "1e-5) / tau2",
        .about = "P: other rows of the label of row i; without any the loss is 0. The gradient goes through "
                 "the maximum, at its first place. The term of likelihood is the caller's. In double.",
        .source = "FlowCon: Out-of-Distribution Detection using Flow-Based Contrastive Learning (Aathreya "
                  "and Canavan 2024), as its code has it",
        .example = "softmax run flowcon_loss densities.npy labels.npy",
        INPUTS(flow_loss_in), OUTPUTS(loss_out), PARAMS(flow_loss_params)},
    [PAIRWISE_attention_separation] = {
        .id = 549, .name = "attention_separation", .family = "pairwise", .tolerance = 32,
        .title = "how far the keys that attention chooses are from the others",
        .formula = "s = sum_S a_i x_i,  distance = sum_(j not in S) |s - a_j x_j|,  fraction = |{i in S: "
                   "|s - a_i x_i| <= radius}| / |S|,  S = the N largest a",
        .about = "Of equal weights the first is larger. Whether the summand of the paper has a_j x_j or x_j "
                 "is not known to us. In double.",
        .source = "Limitations of Normalization in Attention Mechanism (Mudarisov et al. 2025)",
        .example = "softmax run attention_separation weights.npy keys.npy --top 8",
        INPUTS(separation_in), OUTPUTS(separation_out), PARAMS(separation_params)},
#include "table_classes.inc"
};
