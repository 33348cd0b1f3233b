/* attention/table.c - the facts about each kind of attention weights. The command, the bindings,
 * the tests and the manual all read this. Laid out by hand. */
#include "attention.h"

#define MOST 0x1p127
#define PARAMS(...) \
  .params = (const smx_param[]){__VA_ARGS__}, \
  .param_count = (int32_t)(sizeof((const smx_param[]){__VA_ARGS__}) / sizeof(smx_param))

/* {name, help, default, least, largest}, all real numbers. */
#define REAL(name, help, def, min) {name, help, def, min, MOST, 0, NULL}

static const char *const norms[] = {"none", "count", "l1", "clamp", NULL};
#define NORM_HELP "the divisor N: 1, n, the sum of absolute values, or max(|sum|, 1)"
#define NORM(def) {"norm", NORM_HELP, def, 0, 3, SMX_PARAM_INT, norms}
#define EPSILON REAL("epsilon", "is added to N with the norm l1", 0, 0)
#define NORMED PARAMS(NORM(SMX_ATTENTION_NORM_L1), EPSILON)

/* Papers that several are from. */
#define SINK_VIEW "When Attention Sink Emerges in Language Models: An Empirical View (Gu et al. 2024)"
#define SELF_ADJUST "Self-Adjust Softmax (Zheng et al. 2025)"
#define REWEIGHTING \
  "Softplus Attention with Re-weighting Boosts Length Extrapolation in Large " \
  "Language Models (Gao, Spratling 2025)"

enum { SINKS = SMX_ATTENTION_SINKS, BACKWARD = SMX_ATTENTION_BACKWARD, STATES = SMX_ATTENTION_STATES };

const smx_attention_kind attention_table[SMX_ATTENTION_KINDS] = {
    [SMX_ATTENTION_SOFTMAX] = {
        .id = SMX_ATTENTION_SOFTMAX, .name = "softmax", .flags = SINKS | BACKWARD | STATES,
        .title = "softmax",
        .formula = "w = e^z / sum e^z",
        .about = "Weights that sum to 1.",
        .source = "Attention Is All You Need (Vaswani et al. 2017)"},
    [SMX_ATTENTION_SOFTMAX_N] = {
        .id = SMX_ATTENTION_SOFTMAX_N, .name = "softmax_n", .flags = SINKS | BACKWARD | STATES,
        .title = "softmax with n in the sum",
        .formula = "w = e^z / (n + sum e^z)",
        .about = "As softmax with n more keys whose scores and values are 0: a row may put little on any.",
        .source = "Outlier-Efficient Hopfield Layers for Large Transformer-Based Models (Hu et al. 2024)",
        PARAMS(REAL("n", "is added to the sum", 1, 0))},
    [SMX_ATTENTION_SSMAX] = {
        .id = SMX_ATTENTION_SSMAX, .name = "ssmax", .flags = SINKS | BACKWARD,
        .title = "scalable softmax",
        .formula = "w = softmax(z), where the scale of <q, k> is multiplied by s ln n + b",
        .about = "Cap, bias and slopes come after it. Scores that grow with the logarithm of the number of "
                 "keys: long rows stay peaked.",
        .source = "Scalable-Softmax Is Superior for Attention (Nakanishi 2025)",
        PARAMS(REAL("s", "factor of ln n", 0.43, -MOST), REAL("b", "is added to it", 0, -MOST))},
    [SMX_ATTENTION_SIGMOID] = {
        .id = SMX_ATTENTION_SIGMOID, .name = "sigmoid", .flags = BACKWARD | STATES,
        .title = "sigmoid",
        .formula = "w = 1 / (1 + e^-(z + shift))",
        .about = "Each key by itself: the weights of a row do not compete. With the default shift those of n "
                 "scores of 0 sum to n / (n + 1). The shift is the same for all rows of a sequence, so that "
                 "causal rows do not differ by their place; sigmoid_attention, which sees one row "
                 "alone, counts its elements above -inf.",
        .source = "Theory, Analysis, and Best Practices for Sigmoid Self-Attention (Ramapuram et al. 2024)",
        PARAMS(REAL("shift", "is added to the scores; -ln of the keys that a sequence may have, unless given",
                    (double)__builtin_nan(""), -MOST))},
    [SMX_ATTENTION_SOFTPICK] = {
        .id = SMX_ATTENTION_SOFTPICK, .name = "softpick", .flags = BACKWARD | STATES,
        .title = "softpick",
        .formula = "w = max(e^z - 1, 0) / sum |e^z - 1|",
        .about = "Keys with a score of 0 or less have no weight; there is no sink.",
        .source = "Softpick: No Attention Sink, No Massive Activations with Rectified Softmax (Zuhri et "
                  "al. 2025)"},
    [SMX_ATTENTION_SELF_ADJUST] = {
        .id = SMX_ATTENTION_SELF_ADJUST, .name = "self_adjust", .flags = SINKS | BACKWARD | STATES,
        .title = "self-adjust softmax",
        .formula = "w = z p, p = softmax(z)",
        .about = "Meant to keep a gradient where softmax is nearly 0 or 1. Weights may be negative.",
        .source = SELF_ADJUST},
    [SMX_ATTENTION_SELF_ADJUST_RANGE] = {
        .id = SMX_ATTENTION_SELF_ADJUST_RANGE, .name = "self_adjust_range", .flags = BACKWARD | STATES,
        .title = "self-adjust softmax, normalised",
        .formula = "w = (z - l) / (h - l) p, l = min(z.., 0), h = max(z.., 0), p = softmax(z)",
        .about = "Weights are 0 where h = l.",
        .source = SELF_ADJUST},
    [SMX_ATTENTION_RELU] = {
        .id = SMX_ATTENTION_RELU, .name = "relu", .flags = BACKWARD | STATES,
        .title = "relu over a norm",
        .formula = "w = max(z, 0) / N",
        .about = "Sparse weights.",
        .source = SINK_VIEW,
        NORMED},
    [SMX_ATTENTION_ELU] = {
        .id = SMX_ATTENTION_ELU, .name = "elu", .flags = BACKWARD | STATES,
        .title = "elu + 1 over a norm",
        .formula = "w = (z > 0 ? z + 1 : e^z) / N",
        .about = "Positive weights that grow with the score, not with its exponential.",
        .source = SINK_VIEW,
        NORMED},
    [SMX_ATTENTION_IDENTITY] = {
        .id = SMX_ATTENTION_IDENTITY, .name = "identity", .flags = BACKWARD | STATES,
        .title = "the scores over a norm",
        .formula = "w = z / N",
        .about = "Weights may be negative.",
        .source = SINK_VIEW,
        NORMED},
    [SMX_ATTENTION_SOFTPLUS] = {
        .id = SMX_ATTENTION_SOFTPLUS, .name = "softplus", .flags = BACKWARD | STATES,
        .title = "softplus over a norm",
        .formula = "w = log(1 + e^z) / N",
        .about = "Positive weights that grow with the score, not with its exponential.",
        .source = "standard",
        NORMED},
    [SMX_ATTENTION_TAYLOR] = {
        .id = SMX_ATTENTION_TAYLOR, .name = "taylor", .flags = BACKWARD | STATES,
        .title = "a Taylor series of e^z over a norm",
        .formula = "w = t(z) / N, t(z) = sum_{r < terms} z^r / r!",
        .about = "An odd number of terms keeps the weights positive.",
        .source = "standard",
        PARAMS(NORM(SMX_ATTENTION_NORM_L1), {"terms", "of the series", 3, 1, 64, SMX_PARAM_INT, NULL})},
    [SMX_ATTENTION_CLIPPED] = {
        .id = SMX_ATTENTION_CLIPPED, .name = "clipped", .flags = BACKWARD,
        .title = "clipped softmax",
        .formula = "w = clip((high - low) p + low, 0, 1), p = softmax(z)",
        .about = "Weights that are exactly 0 or 1 within reach of finite scores.",
        .source = "Quantizable Transformers: Removing Outliers by Helping Attention Heads Do Nothing "
                  "(Bondarenko et al. 2023)",
        PARAMS({"low", "what a weight of 0 becomes before the clip", -0.03, -MOST, 0, 0, NULL},
               REAL("high", "what a weight of 1 becomes", 1, 1))},
    [SMX_ATTENTION_CENTRED] = {
        .id = SMX_ATTENTION_CENTRED, .name = "centred", .flags = BACKWARD,
        .title = "scores less their mean, over their deviation",
        .formula = "w = gain (z - mean z) / (deviation of z + epsilon) + shift",
        .about = "Weights that do not sum to 1 and may be negative.",
        .source = "Normalized Attention Without Probability Cage (Richter, Wattenhofer 2020)",
        PARAMS(REAL("gain", "factor of the deviations", 1, -MOST),
               REAL("shift", "is added to the weights", 0, -MOST),
               REAL("epsilon", "is added to the deviation", 1e-3, 0))},
    [SMX_ATTENTION_EXP] = {
        .id = SMX_ATTENTION_EXP, .name = "exp", .flags = BACKWARD | STATES,
        .title = "exponentials over a norm",
        .formula = "w = e^min(z, most) / N",
        .about = "With q' = (q, -|q|^2 / 2, 1), k' = (k, 1, -|k|^2 / 2) and most = 0 it is the Gaussian of "
                 "their distance.",
        .source = "On the Expressiveness of Softmax Attention: A Recurrent Neural Network Perspective "
                  "(Mongaras, Larson 2025)",
        PARAMS(NORM(SMX_ATTENTION_NORM_COUNT), EPSILON, REAL("most", "the largest exponent", 5, -MOST))},
    [SMX_ATTENTION_CREDAL] = {
        .id = SMX_ATTENTION_CREDAL, .name = "credal", .flags = BACKWARD | STATES,
        .title = "softmax with a prior",
        .formula = "w = (e^z + prior) / sum (e^z + prior)",
        .about = "n prior / e^lse is the uncertainty of a row.",
        .source = "Credal Transformer: A Principled Approach for Quantifying and Mitigating Hallucinations "
                  "(2025)",
        PARAMS(REAL("prior", "is added to each exponential", 1, 0))},
    [SMX_ATTENTION_SHAPED] = {
        .id = SMX_ATTENTION_SHAPED, .name = "shaped", .flags = BACKWARD,
        .title = "softmax against the plain mean",
        .formula = "w_j = identity [j is the key where the row stands] + gain p_j - mean / n, p = softmax(z)",
        .about = "With 1, 1, 1 and scores near 0 the output is the value where the row stands.",
        .source = "The Shaped Transformer: Attention Models in the Infinite Depth-and-Width Limit (Noci et "
                  "al. 2023)",
        PARAMS(REAL("identity", "weight of the key where the row stands", 1, -MOST),
               REAL("gain", "factor of softmax", 1, -MOST),
               REAL("mean", "is taken from all weights, divided by n", 1, -MOST))},
    [SMX_ATTENTION_LSSA] = {
        .id = SMX_ATTENTION_LSSA, .name = "lssa", .flags = BACKWARD,
        .title = "length-scaled softplus over a norm",
        .formula = "w = log(1 + e^z) / N, where the scale of <q, k> is multiplied by ln d ln n",
        .about = "Cap, bias and slopes come after it. For rows of q and k of length 1, and scale 1.",
        .source = REWEIGHTING,
        NORMED},
    [SMX_ATTENTION_LSSAR] = {
        .id = SMX_ATTENTION_LSSAR, .name = "lssar", .flags = BACKWARD,
        .title = "length-scaled softplus, re-weighted",
        .formula = "w = y^power / sum y^power, y = max(n u - offset, 0), u = lssa with the norm l1",
        .about = "Where no y is above 2^-16, w = u.",
        .source = REWEIGHTING,
        PARAMS({"power", "of what is left", 15, 1, 0x1p10, 0, NULL},
               REAL("offset", "is taken from n u", 1, 0),
               {"ramp", "rows of so many keys or fewer have offset 0", 3, 0, MOST, SMX_PARAM_INT, NULL})},
    [SMX_ATTENTION_UNIFIED] = {
        .id = SMX_ATTENTION_UNIFIED, .name = "unified", .flags = SINKS | BACKWARD | STATES,
        .title = "softmax by a unified maximum",
        .formula = "w = e^(z - phi) / sum e^(z - phi) where low < z - phi < high, else softmax(z)",
        .about = "The same phi for all rows, as statistics of a model's scores suggest it, in place of "
                 "the largest score; of each 1024 keys, where one is out of range all are recomputed by "
                 "their largest. Exponentials are scaled by powers of two, so the bits of o are those "
                 "of softmax for any phi, and it is no faster here: the largest score is "
                 "known when weights are formed.",
        .source = "FlashDecoding++: Faster Large Language Model Inference on GPUs (Hong et al. 2023)",
        PARAMS({"phi", "the unified maximum", 0, -1e5, 1e5, 0, NULL},
               {"low", "z - phi is above it, or the row is recomputed", -40, -40, 0, 0, NULL},
               {"high", "and below it", 40, 0, 40, 0, NULL})},
};
