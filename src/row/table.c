/* row/table.c - the facts about each row operator. The command, the bindings, the tests, the
 * benchmarks and the manual all read this. */
#include "row.h"

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
  MASK = SMX_PORT_MASK,
  INT = SMX_PORT_INT,
  TARGET = SMX_PORT_TARGET | SMX_PORT_INT | SMX_PORT_SAVED,
  EITHER = SMX_PORT_EITHER | SMX_PORT_OPTIONAL | SMX_PORT_SAVED
};

#define INF ((double)__builtin_inf())

/* Ports that several operators share. */
#define X_SAVED {"x", SMX_SHAPE_FULL, GRAD | SAVED, "scores (logits)"}
#define X_PLAIN {"x", SMX_SHAPE_FULL, GRAD, "scores (logits)"}
static const smx_port x_plain[] = {X_PLAIN};
static const smx_port x_plain_only[] = {{"x", SMX_SHAPE_FULL, 0, "scores (logits)"}};
static const smx_port x_saved[] = {X_SAVED};
static const smx_port y_saved[] = {{"y", SMX_SHAPE_FULL, SAVED, "weights"}};
static const smx_port y_log[] = {{"y", SMX_SHAPE_FULL, SAVED, "logarithms of the weights"}};
static const smx_port y_plain[] = {{"y", SMX_SHAPE_FULL, 0, "weights"}};
static const smx_port y_capped[] = {{"y", SMX_SHAPE_FULL, 0, "limited scores"}};
static const smx_port row_value[] = {{"y", SMX_SHAPE_ROW, 0, "one value a row"}};
static const smx_port lse_value[] = {{"lse", SMX_SHAPE_ROW, 0, "one value a row"}};

static const smx_port softmax_in[] = {
    X_PLAIN,
    {"temperature", SMX_SHAPE_ROW, OPT | GRAD | SAVED, "a temperature for each row, in place of the "
                                                       "parameter; the row is NaN below 0"},
};
static const smx_port masked_in[] = {
    X_PLAIN,
    {"mask", SMX_SHAPE_FULL, MASK | SAVED, "nonzero = the element exists"},
};
static const smx_port scaled_masked_in[] = {
    X_PLAIN,
    {"bias", SMX_SHAPE_FULL, OPT | GRAD, "additive mask; -inf = the element does not exist"},
    {"mask", SMX_SHAPE_FULL, OPT | MASK | SAVED, "nonzero = the element exists"},
    {"slope", SMX_SHAPE_ROW, OPT, "ALiBi slope: -slope |position - j| is added to element j"},
    {"position", SMX_SHAPE_ROW, OPT, "where the row's query stands among the elements; n - 1 if absent"},
    {"sink", SMX_SHAPE_ROW, OPT | GRAD | SAVED, "a logit that takes part in the normaliser only"},
};
static const smx_port segment_in[] = {
    X_PLAIN,
    {"offsets", SMX_SHAPE_OFFSETS, INT | SAVED, "where each segment starts, and the length at the end"},
};
static const smx_port boltzmann_in[] = {
    X_SAVED,
    {"alpha", SMX_SHAPE_ROW, OPT | GRAD | SAVED, "an alpha for each row, in place of the parameter"},
};

static const smx_port topk_in[] = {
    X_SAVED,
    {"token", SMX_SHAPE_ROW, OPT | INT, "an element whose rank is asked for"},
};
static const smx_port topk_out[] = {
    {"value", SMX_SHAPE_K, SAVED, "weights of the k best"},
    {"index", SMX_SHAPE_K, SAVED | INT, "where they are; -1 where there are fewer than k"},
    {"log", SMX_SHAPE_K, OPT, "logarithms of their weights"},
    {"lse", SMX_SHAPE_ROW, OPT, "logsumexp of the row"},
    {"rank", SMX_SHAPE_ROW, OPT | INT, "how many elements are better than the token; -1 if there is no such "
                                       "element"},
};

static const smx_param softmax_params[] = {
    {"temperature", "divides the scores; 0 = hardmax with ties split, inf = uniform", 1, 0, INF, 0, NULL},
    {"base", "of the exponential; e by default", 2.718281828459045, 1, 1e30, SMX_PARAM_OPEN_MIN, NULL},
};
static const smx_param softmin_params[] = {
    {"temperature", "divides the scores; inf = uniform", 1, 1e-30, INF, 0, NULL},
};
static const smx_param log_softmax_params[] = {
    {"temperature", "divides the scores", 1, 1e-30, 1e30, 0, NULL},
};
static const char *const ties[] = {"first", "split", NULL};
static const char *const yes_no[] = {"no", "yes", NULL};
static const char *const forms[] = {"plain", "range", NULL};
static const char *const transforms[] = {"antipignistic", "min_specificity", NULL};
static const char *const precisions[] = {"f16", "bf16", "f32", "f64", NULL};
static const char *const lengths[] = {"fixed", "row", "valid", NULL};
static const char *const gradients[] = {"zero", "straight_through", NULL};
static const smx_param hardmax_params[] = {
    {"ties", "equal largest scores: the first takes all, or they share", 0, 0, 1, SMX_PARAM_INT, ties},
    {"gradient", "zero, or that of softmax(x / temperature)", 0, 0, 1, SMX_PARAM_INT, gradients},
    {"temperature", "of the straight-through gradient", 1, 1e-30, 1e30, 0, NULL},
};
static const smx_param mellowmax_params[] = {
    {"omega", "larger is closer to the maximum, negative to the minimum", 1, -1e30, 1e30, SMX_PARAM_NONZERO,
     NULL},
};
static const smx_param masked_params[] = {
    {"mask_value", "the score of dropped elements; -inf = they do not exist", -INF, -INF, 3e38, 0, NULL},
};
static const smx_param scaled_masked_params[] = {
    {"scale", "multiplies x before anything is added; 1 / sqrt(d) in attention", 1, -1e30, 1e30, 0, NULL},
};
static const smx_param softcap_params[] = {
    {"cap", "the limit; inf = no cap. 50 for attention scores and 30 for final logits are usual", 30, 1e-30,
     INF, 0, NULL},
};
static const smx_param boltzmann_params[] = {
    {"alpha", "0 = mean, large = maximum, negative = towards the minimum", 1, -1e30, 1e30, 0, NULL},
};
static const char *const orders[] = {"value", "index", NULL};
static const smx_param topk_params[] = {
    {"k", "how many are wanted; at most n", 10, 1, 9007199254740992.0, SMX_PARAM_INT | SMX_PARAM_MAX_N, NULL},
    {"order", "of the results: best first, or by index", 0, 0, 1, SMX_PARAM_INT, orders},
    {"renormalise", "weights among the k only, which then sum to 1", 0, 0, 1, SMX_PARAM_INT, yes_no},
};
static const smx_param sparse_params[] = {
    {"k", "how many elements keep a weight; at most "
          "n", 10, 1, 9007199254740992.0, SMX_PARAM_INT | SMX_PARAM_MAX_N, NULL},
};

enum { BACKWARD = SMX_OP_BACKWARD, INPLACE = SMX_OP_INPLACE };

const smx_op row_table[ROW_COUNT] = {
    [ROW_softmax] = {
        .id = 1, .name = "softmax", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 16,
        .title = "exponential weights",
        .formula = "y_i = b^(x_i / T) / sum_j b^(x_j / T)",
        .about = "Turns scores into positive weights that sum to one. A score of -inf gets weight 0. A "
                 "temperature T below 1 sharpens, above 1 flattens. Adding a constant to a row does not "
                 "change its weights. Gradient: dx_i = c y_i (dy_i - sum_j y_j dy_j) with c = ln b / T, and "
                 "dT = -(1 / ln b) sum_i log(y_i) dx_i.",
        .source = "standard; plans: The Two-Pass Softmax Algorithm (Dukhan, Ablavatski 2020) and Online "
                  "normalizer calculation for softmax (Milakov, Gimelshein 2018)",
        .example = "softmax run softmax logits.npy --temperature 0.5 -o weights.npy",
        INPUTS(softmax_in), OUTPUTS(y_saved), PARAMS(softmax_params)},
    [ROW_log_softmax] = {
        .id = 2, .name = "log_softmax", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 4,
        .title = "logarithms of softmax weights",
        .formula = "y_i = x_i / T - log sum_j e^(x_j / T)",
        .about = "What losses and perplexities need: no weight underflows to log 0. Computed as (x_i - max) "
                 "- log1p(sum of the others), so that values close to 0 keep their digits. Gradient: dx_i = "
                 "(dy_i - e^y_i sum_j dy_j) / T.",
        .source = "standard",
        .example = "softmax run log_softmax logits.npy -o logp.npy",
        INPUTS(x_plain), OUTPUTS(y_log), PARAMS(log_softmax_params)},
    [ROW_softmin] = {
        .id = 3, .name = "softmin", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 16,
        .title = "softmax of the negated scores",
        .formula = "y_i = e^(-x_i / T) / sum_j e^(-x_j / T)",
        .about = "Weights for costs or distances: the smallest gets the largest weight, a score of +inf gets "
                 "0.",
        .source = "standard",
        .example = "softmax run softmin distances.npy -o weights.npy",
        INPUTS(x_plain), OUTPUTS(y_saved), PARAMS(softmin_params)},
    [ROW_hardmax] = {
        .id = 4, .name = "hardmax", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 16,
        .title = "one-hot of the largest score",
        .formula = "y_i = [i = argmax x], or [x_i = max x] / #max",
        .about = "The limit of softmax as the temperature goes to 0 (ties split), or ONNX Hardmax (ties "
                 "first). Its gradient is 0; the straight-through option uses that of softmax(x / T) "
                 "instead.",
        .source = "standard",
        .example = "softmax run hardmax logits.npy --ties split",
        INPUTS(x_saved), OUTPUTS(y_plain), PARAMS(hardmax_params)},
    [ROW_logsumexp] = {
        .id = 5, .name = "logsumexp", .family = "row", .flags = BACKWARD, .tolerance = 4,
        .title = "logarithm of the sum of exponentials",
        .formula = "lse = log sum_j e^x_j",
        .about = "A smooth maximum: max x <= lse <= max x + log n. Computed as max + log1p(sum of the others "
                 "/ largest), so that a result close to 0 keeps its digits. One element gives that element "
                 "exactly; nothing valid gives -inf. Gradient: dx = dlse softmax(x).",
        .source = "standard",
        .example = "softmax run logsumexp logits.npy",
        INPUTS(x_saved), OUTPUTS(lse_value)},
    [ROW_logmeanexp] = {
        .id = 6, .name = "logmeanexp", .family = "row", .flags = BACKWARD, .tolerance = 4,
        .title = "logarithm of the mean of exponentials",
        .formula = "y = log((1 / n) sum_j e^x_j)",
        .about = "logsumexp minus log n, where n counts the elements of the row. Gradient: dx = dy "
                 "softmax(x).",
        .source = "standard",
        .example = "softmax run logmeanexp logits.npy",
        INPUTS(x_saved), OUTPUTS(row_value)},
    [ROW_mellowmax] = {
        .id = 7, .name = "mellowmax", .family = "row", .flags = BACKWARD, .tolerance = 8,
        .title = "smooth maximum that is a non-expansion",
        .formula = "y = (1 / omega) log((1 / n) sum_j e^(omega x_j))",
        .about = "An alternative to the Boltzmann operator in reinforcement learning whose repeated "
                 "application converges. Lies between the mean (omega near 0) and the maximum. Gradient: dx "
                 "= dy softmax(omega x).",
        .source = "An Alternative Softmax Operator for Reinforcement Learning (Asadi, Littman 2017)",
        .example = "softmax run mellowmax values.npy --omega 5",
        INPUTS(x_saved), OUTPUTS(row_value), PARAMS(mellowmax_params)},
    [ROW_masked_softmax] = {
        .id = 8, .name = "masked_softmax", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 16,
        .title = "softmax over the elements that a mask keeps",
        .formula = "z_i = keep_i ? x_i : v;  y = softmax(z)",
        .about = "With v = -inf (the default) dropped elements do not exist: they are not read, and get "
                 "weight and gradient 0. With a finite v they keep the mass e^v / Z each, but receive no "
                 "gradient.",
        .source = "Revisiting Softmax Masking for Stability in Continual Learning (Kim, Kwon, Kim 2023): "
                  "takes v as given, the paper's rule for choosing it is not part of this operator",
        .example = "softmax run masked_softmax logits.npy mask.npy",
        INPUTS(masked_in), OUTPUTS(y_saved), PARAMS(masked_params)},
    [ROW_scaled_masked_softmax] = {
        .id = 9, .name = "scaled_masked_softmax", .family = "row", .flags = BACKWARD | INPLACE,
        .tolerance = 64,
        .title = "scale, bias, mask, ALiBi and sink in one softmax",
        .formula = "s_i = scale x_i + (bias_i - slope |position - i|);  y_i = e^s_i / (e^sink + sum_j e^s_j)",
        .about = "The softmax of an attention layer as inference engines need it, in one call. bias, mask, "
                 "slope, position and sink are optional and broadcast. An element whose bias is -inf or "
                 "whose mask is 0 does not exist. s_i is rounded to the arithmetic type once, by a fused "
                 "multiply-add. Gradient: ds_i = y_i (dy_i - sum_j y_j dy_j), dx = scale ds, dbias = ds, "
                 "dsink = -y_sink sum_j y_j dy_j.",
        .source = "standard; ALiBi: Train Short, Test Long (Press, Smith, Lewis 2022); sink: Efficient "
                  "Streaming Language Models with Attention Sinks (Xiao et al. 2023), When Attention Sink "
                  "Emerges in Language Models (Gu et al. 2024)",
        .example = "softmax run scaled_masked_softmax scores.npy bias.npy --scale 0.125",
        INPUTS(scaled_masked_in), OUTPUTS(y_saved), PARAMS(scaled_masked_params)},
    [ROW_segment_softmax] = {
        .id = 10, .name = "segment_softmax", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 16,
        .title = "softmax over consecutive segments of a row",
        .formula = "y_i = e^x_i / sum_(j in segment of i) e^x_j",
        .about = "Ragged rows: segment s holds elements offsets[s] .. offsets[s + 1] - 1 of the axis and may "
                 "be empty. Each segment has the bits that softmax gives it as a row of its own.",
        .source = "standard (graph attention, variable-length batches)",
        .example = "softmax run segment_softmax scores.npy offsets.npy",
        INPUTS(segment_in), OUTPUTS(y_saved)},
    [ROW_logcumsumexp] = {
        .id = 11, .name = "logcumsumexp", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 8,
        .title = "running logsumexp",
        .formula = "y_i = log sum_(j <= i) e^x_j",
        .about = "The prefix sums of e^x in the log domain; the sum runs in index order in double. Leading "
                 "-inf give -inf. Gradient: dx_j = sum_(i >= j) dy_i e^(x_j - y_i), by the recurrence V_j = "
                 "dy_j + V_(j+1) e^(y_j - y_(j+1)), dx_j = V_j e^(x_j - y_j).",
        .source = "standard",
        .example = "softmax run logcumsumexp logits.npy",
        INPUTS(x_saved), OUTPUTS(y_log)},
    [ROW_softcap] = {
        .id = 12, .name = "softcap", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 8,
        .title = "smooth limit on scores",
        .formula = "y_i = c tanh(x_i / c)",
        .about = "Keeps scores within +-c without a hard clip; applied before mask and normaliser. +-inf "
                 "give +-c. Gradient: dx = dy (1 - tanh^2(x / c)).",
        .source = "Gemma 2: Improving Open Language Models at a Practical Size (2024); the form is older",
        .example = "softmax run softcap logits.npy --cap 30",
        INPUTS(x_saved), OUTPUTS(y_capped), PARAMS(softcap_params)},
    [ROW_boltzmann_operator] = {
        .id = 13, .name = "boltzmann_operator", .family = "row", .flags = BACKWARD, .tolerance = 32,
        .title = "mean of the scores under their own softmax",
        .formula = "y = sum_i x_i softmax(alpha x)_i",
        .about = "A smooth maximum between the mean (alpha = 0) and the maximum; not monotone. Computed as "
                 "max + sum (x_i - max) e_i / sum e_i, which neither cancels nor multiplies inf by 0. "
                 "Gradient: dx_i = dy p_i (1 + alpha (x_i - y)), dalpha = dy Var_p(x).",
        .source = "Are Transformers with One Layer Self-Attention Using Low-Rank Weight Matrices Universal "
                  "Approximators? (Kajitsuka, Sato 2023); the operator is older",
        .example = "softmax run boltzmann_operator values.npy --alpha 2",
        INPUTS(boltzmann_in), OUTPUTS(row_value), PARAMS(boltzmann_params)},
    [ROW_sparse_softmax] = {
        .id = 14, .name = "sparse_softmax", .family = "row", .flags = BACKWARD | INPLACE, .tolerance = 16,
        .title = "softmax over the k largest scores",
        .formula = "y_i = [i in K] e^x_i / sum_(j in K) e^x_j,  K = the k largest",
        .about = "Elements outside the k largest get weight and gradient 0. Order: value descending, then "
                 "index ascending, so that ties are decided the same way everywhere.",
        .source = "Sparse-softmax: A Simpler and Faster Alternative Softmax Transformation (Sun et al. 2021)",
        .example = "softmax run sparse_softmax logits.npy --k 3",
        INPUTS(x_plain), OUTPUTS(y_saved), PARAMS(sparse_params)},
#include "table_ratio.inc"
#include "table_sparse.inc"
    [ROW_softmax_topk] = {
        .id = 100, .name = "softmax_topk", .family = "row", .flags = BACKWARD, .tolerance = 16,
        .title = "the k largest softmax weights, and where they are",
        .formula = "value_i = e^(x_index_i - lse),  index = the k best,  lse = log sum_j e^x_j",
        .about = "What a sampler or a classifier wants of a long row, from one read of it. Best is by value "
                 "descending, then index ascending. A score of -inf is never among them; where there are "
                 "fewer than k, index is -1 and value 0. Renormalised, the weights are those of "
                 "sparse_softmax. lse has the bits of logsumexp. With a_i = value_i dvalue_i + dlog_i and A "
                 "= sum_i a_i the gradient is dx_j = [j is index_i] a_i - (A - dlse) p_j, or renormalised [j "
                 "is index_i] (a_i - A value_i) + dlse p_j, p the softmax of the row.",
        .source = "Online normalizer calculation for softmax (Milakov, Gimelshein 2018), section 4; its code "
                  "breaks ties by thread, this one by index",
        .example = "softmax run softmax_topk logits.npy --k 5",
        INPUTS(topk_in), OUTPUTS(topk_out), PARAMS(topk_params)},
#include "table_scaled.inc"
#include "table_norms.inc"
#include "table_budget.inc"
#include "table_adjust.inc"
#include "table_training.inc"
#include "table_possibility.inc"
};
