/* sample/table.c - the facts about the operators that draw. The command, the bindings, the tests,
 * the benchmarks and the manual read this. */
#include "sample.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)

/* The same with the entries written here. */
#define LITERAL(type, ...) ((const type[]){__VA_ARGS__})
#define INPUTS_OF(...) INPUTS(LITERAL(smx_port, __VA_ARGS__))
#define OUTPUTS_OF(...) OUTPUTS(LITERAL(smx_port, __VA_ARGS__))
#define PARAMS_OF(...) PARAMS(LITERAL(smx_param, __VA_ARGS__))

enum { GRAD = SMX_PORT_GRAD, SAVED = SMX_PORT_SAVED, OPT = SMX_PORT_OPTIONAL, INT = SMX_PORT_INT };

#define INF ((double)__builtin_inf())

/* Every draw is a function of the seed and of the row's own stream: rows may be moved, split and
 * batched as one likes. */
#define STREAM \
  "which random numbers the row gets; a number for each, which the caller keeps: (request << 32) + step, " \
  "say"
#define SEED {"seed", "of the random numbers", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL}
#define NOISE_LIMITS \
  {"low", "the least G of gumbel noise", -(double)__builtin_inf(), -(double)__builtin_inf(), 0, 0, NULL}, \
      {"high", "the largest", (double)__builtin_inf(), 0, (double)__builtin_inf(), 0, NULL}

static const smx_port logits_in[] = {
    {"x", SMX_SHAPE_FULL, 0, "scores (logits)"},
    {"stream", SMX_SHAPE_ROW, INT, STREAM},
};
static const smx_port relaxed_in[] = {
    {"x", SMX_SHAPE_FULL, GRAD | SAVED, "scores (logits)"},
    {"stream", SMX_SHAPE_ROW, INT | SAVED, STREAM},
};
static const smx_port gates_in[] = {
    {"x", SMX_SHAPE_FULL, GRAD | SAVED, "logit of each gate"},
    {"stream", SMX_SHAPE_ROW, INT | SAVED, STREAM},
};
static const smx_port dirichlet_in[] = {
    {"x", SMX_SHAPE_FULL, 0, "concentrations; 0 = takes no part"},
    {"stream", SMX_SHAPE_ROW, INT, STREAM},
};
static const smx_port cfg_in[] = {
    {"x", SMX_SHAPE_FULL, GRAD | SAVED, "logits with the condition"},
    {"unconditional", SMX_SHAPE_FULL, GRAD | SAVED, "logits without it"},
};

static const smx_port draw_out[] = {
    {"index", SMX_SHAPE_ROW, INT, "what was drawn; -1 where nothing could be"},
    {"log", SMX_SHAPE_ROW, OPT, "logarithm of its probability"},
};
static const smx_port topk_out[] = {
    {"index", SMX_SHAPE_K, INT, "what was drawn, in the order of drawing; -1 where there was nothing left"},
    {"key", SMX_SHAPE_K, 0, "their perturbed scores, sums of score and noise"},
};
static const smx_port weights_out[] = {{"y", SMX_SHAPE_FULL, 0, "weights"}};
static const smx_port gates_out[] = {{"y", SMX_SHAPE_FULL, 0, "gates between 0 and 1"}};
static const smx_port logits_out[] = {{"y", SMX_SHAPE_FULL, 0, "logits, which are logarithms"}};

static const char *const methods[] = {"gumbel", "cdf", NULL};
static const smx_param categorical_params[] = {
    {"temperature", "divides the scores; 0 = the best", 1, 0, 1e30, 0, NULL},
    {"method", "argmax of perturbed scores, or inverse of the distribution function",
     0, 0, 1, SMX_PARAM_INT, methods},
    SEED,
};
static const char *const hardness[] = {"no", "yes", NULL};
static const smx_param relaxed_params[] = {
    {"temperature", "small = close to one-hot", 1, 1e-6, 1e30, 0, NULL},
    SEED,
    {"hard", "one-hot forward; the gradient stays that of the relaxed sample",
     0, 0, 1, SMX_PARAM_INT, hardness},
};
static const smx_param topk_params[] = {
    {"k", "how many are drawn; at most n", 10, 1, 9007199254740992.0, SMX_PARAM_INT | SMX_PARAM_MAX_N, NULL},
    SEED,
};
static const smx_param dirichlet_params[] = {SEED};
static const smx_param cfg_params[] = {
    {"strength", "0 = unconditional, 1 = conditional, more = guided away from the unconditional",
     1.5, 0, 1e6, 0, NULL},
};

static const char *const draft_methods[] = {"rrs", "rrs-distinct", "kseq", "is2", NULL};
static const char *const trial_scores[] = {"mean", "min", "geometric", "sum", NULL};
static const char *const commit_rules[] = {"threshold", "factor", NULL};
static const char *const density_spaces[] = {"simplex", "logarithms", NULL};
static const char *const soft_noises[] = {"none", "dirichlet", "gumbel", NULL};

enum { BACKWARD = SMX_OP_BACKWARD, INPLACE = SMX_OP_INPLACE };

const smx_op sample_table[SAMPLE_COUNT] = {
    [SAMPLE_categorical_sample] = {
        .id = 300, .name = "categorical_sample", .family = "sample", .tolerance = 32,
        .title = "one draw from the softmax of scores",
        .formula = "index ~ softmax(x / T);  gumbel: argmax_i x_i / T + G_i;  cdf: the first i with sum_(j "
                   "<= i) w_j > u sum_j w_j",
        .about = "Scores of -inf are never drawn. G_i depends on seed, stream and i alone, so that masking "
                 "some elements leaves the noise of the others as it was, and a vocabulary may be searched "
                 "in pieces. cdf: w = e^(x / T), summed left to right in double by blocks of 256, then the "
                 "blocks. The two methods draw different elements from one seed.",
        .source = "standard; Gumbel-max: Statistical Theory of Extreme Values (Gumbel 1954); noise: Parallel "
                  "Random Numbers: As Easy as 1, 2, 3 (Salmon et al. 2011)",
        .example = "softmax run categorical_sample logits.npy --stream streams.npy --temperature 0.8 --seed "
                   "1",
        INPUTS(logits_in), OUTPUTS(draw_out), PARAMS(categorical_params)},
    [SAMPLE_gumbel_softmax] = {
        .id = 301, .name = "gumbel_softmax", .family = "sample", .flags = BACKWARD | INPLACE, .tolerance = 32,
        .title = "a draw from a softmax, relaxed so that it has a gradient",
        .formula = "y = softmax((x + G) / T);  hard: the one-hot of its argmax",
        .about = "G is Gumbel noise: the argmax is an exact draw from softmax(x) for every T. Gradient, hard "
                 "or not: dx_i = y_i (dy_i - sum_j y_j dy_j) / T with the relaxed y (straight-through).",
        .source = "Categorical Reparameterization with Gumbel-Softmax (Jang, Gu, Poole 2016)",
        .example = "softmax run gumbel_softmax logits.npy --stream streams.npy --temperature 0.5",
        INPUTS(relaxed_in), OUTPUTS(weights_out), PARAMS(relaxed_params)},
    [SAMPLE_gumbel_topk] = {
        .id = 302, .name = "gumbel_topk", .family = "sample", .tolerance = 32,
        .title = "k draws from a softmax without replacement",
        .formula = "index = the k largest of x_i + G_i, largest first",
        .about = "An ordered sample without replacement (Plackett-Luce). Perturbed scores, less the largest "
                 "score of the row, are rounded to the arithmetic type and ordered by value descending, then "
                 "index ascending. Scores of -inf are never drawn.",
        .source = "Stochastic Beams and Where to Find Them (Kool, van Hoof, Welling 2019)",
        .example = "softmax run gumbel_topk logits.npy --stream streams.npy --k 5",
        INPUTS(logits_in), OUTPUTS(topk_out), PARAMS(topk_params)},
    [SAMPLE_binary_concrete] = {
        .id = 303, .name = "binary_concrete", .family = "sample", .flags = BACKWARD | INPLACE,
        .tolerance = 64,
        .title = "independent gates, relaxed so that they have a gradient",
        .formula = "y_i = 1 / (1 + e^-h_i),  h_i = (x_i + L_i) / T;  hard: [h_i > 0]",
        .about = "L is logistic noise: h_i > 0 with probability 1 / (1 + e^-x_i) for every T. Gradient, hard "
                 "or not: dx_i = dy_i y_i (1 - y_i) / T with the relaxed y. +-inf give 1 and 0.",
        .source = "The Concrete Distribution (Maddison, Mnih, Teh 2016)",
        .example = "softmax run binary_concrete logits.npy --stream streams.npy --hard yes",
        INPUTS(gates_in), OUTPUTS(gates_out), PARAMS(relaxed_params)},
    [SAMPLE_dirichlet_sample] = {
        .id = 304, .name = "dirichlet_sample", .family = "sample", .tolerance = 64,
        .title = "a draw from a Dirichlet distribution",
        .formula = "y = softmax(log g),  g_i ~ Gamma(x_i)",
        .about = "Formed from logarithms of gamma variates, so that concentrations of 1e-6 do not underflow. "
                 "A concentration of 0 gives exactly 0; a negative or infinite one makes the row NaN.",
        .source = "standard; gamma variates: A Simple Method for Generating Gamma Variables (Marsaglia, "
                  "Tsang 2000)",
        .example = "softmax run dirichlet_sample concentrations.npy --stream streams.npy",
        INPUTS(dirichlet_in), OUTPUTS(weights_out), PARAMS(dirichlet_params)},
    [SAMPLE_cfg_logits] = {
        .id = 305, .name = "cfg_logits", .family = "sample", .flags = BACKWARD | INPLACE, .tolerance = 64,
        .title = "classifier-free guidance of logits",
        .formula = "y_i = u_i + s (x_i - u_i)",
        .about = "A NaN or +inf makes the row NaN. An element that is -inf in either row is -inf, and has no "
                 "gradient: what is masked for one is masked. Gradient: dx = s dy, du = (1 - s) dy.",
        .source = "Classifier-Free Diffusion Guidance (Ho, Salimans 2022); on logits: Stay on topic with "
                  "Classifier-Free Guidance (Sanchez et al. 2023)",
        .example = "softmax run cfg_logits conditional.npy --unconditional unconditional.npy --strength 3",
        INPUTS(cfg_in), OUTPUTS(logits_out), PARAMS(cfg_params)},
#include "table_decode.inc"
#include "table_sets.inc"
#include "table_noise.inc"
};
