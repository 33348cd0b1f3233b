/* attention/table_operators.c - the facts about each operator of attention that is a function of
 * its tensors. The command, the bindings, the tests and the manual all read this. */
#include "table_operators.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS

enum { GRAD = SMX_PORT_GRAD | SMX_PORT_SAVED, SAVED = SMX_PORT_SAVED, OPT = SMX_PORT_OPTIONAL };
enum { MASK = SMX_PORT_MASK | SMX_PORT_OPTIONAL | SMX_PORT_SAVED };

static const char *const ways[] = {"steps", "limit", NULL}, *const no_yes[] = {"no", "yes", NULL};

#define QUERIES(dims) {"q", DIMS, GRAD, "queries", dims}
#define KEYS(dims) {"k", DIMS, GRAD, "keys", dims}
#define VALUES(dims) {"v", DIMS, GRAD, "values", dims}
#define SCALE {"scale", "of the products of queries and keys; 0: 1 / sqrt(d)", 0, -1e30, 1e30, 0, NULL}

static const smx_port sinkhorn_in[] = {
    QUERIES("... l d"), KEYS("... t d"), VALUES("... t e"),
    {"mask", DIMS, MASK, "nonzero = the query sees the key", "... l t"}};
static const smx_port sheet_out[] = {
    {"y", DIMS, 0, "of every query", "... l e"},
    {"weights", DIMS, OPT, "of every query and key", "... l t"}};
static const smx_param sinkhorn_params[] = {
    SCALE,
    {"steps", "half steps; 1 = softmax attention", 5, 1, 1000, SMX_PARAM_INT, NULL},
    {"gradient", "back through the steps, or that of the limit of many steps, at the cost of a few",
     0, 0, 1, SMX_PARAM_INT, ways}};

static const smx_port square_in[] = {QUERIES("... l d"), KEYS("... l d"), VALUES("... l e")};
static const smx_port square_out[] = {
    {"y", DIMS, 0, "of every query", "... l e"},
    {"weights", DIMS, OPT, "of every query and key", "... l l"}};
static const smx_param orthostochastic_params[] = {
    SCALE,
    {"noise", "standard deviation of what is added to the scores", 1e-7, 0, 1e30, 0, NULL},
    {"seed", "of the noise", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL}};

static const smx_port max_sim_in[] = {
    {"q", DIMS, GRAD, "tokens of each query", "... l d"},
    {"document", DIMS, GRAD, "tokens of all documents, one after another", "m d"},
    {"offsets", DIMS, SMX_PORT_INT | SAVED, "where each document starts, and m at the end", "b+1 | <= m"},
    {"q_mask", DIMS, MASK, "nonzero = the token of the query counts", "... l"},
    {"mask", DIMS, MASK, "nonzero = the token of the document is there", "m"}};
static const smx_port max_sim_out[] = {
    {"score", DIMS, 0, "of each query and document", "... b"},
    {"index", DIMS, SMX_PORT_INT | OPT, "the best token for each of the query; -1: there is none",
     "... b l"}};
static const smx_param max_sim_params[] = {
    {"tau", "how soft the maximum is; 0: not at all", 0, 0, 1e30, 0, NULL}};

#define MASSES(dims) {"mass", DIMS, 0, "sums of weights of every key, positive or 0", dims}
#define LAYER_BUDGET {"budget", DIMS, SMX_PORT_INT, "how many keys each layer keeps", "... n"}
static const smx_port prefix_in[] = {MASSES("... n t")}, dynamic_in[] = {MASSES("... n h t")};
static const smx_port prefix_out[] = {
    {"index", DIMS, SMX_PORT_INT, "the keys that each layer keeps, in order; then -1", "... n t"},
    LAYER_BUDGET};
static const smx_port dynamic_out[] = {
    {"index", DIMS, SMX_PORT_INT, "the keys that each head keeps, in order; then -1", "... n h t"},
    LAYER_BUDGET};
static const smx_param prefix_params[] = {
    {"keep", "keys of all layers together; 0: half of them", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL},
    {"first", "keys that every layer keeps at the start", 4, 0, 1e9, SMX_PARAM_INT, NULL},
    {"last", "and at the end", 1, 0, 1e9, SMX_PARAM_INT, NULL}};
static const smx_param dynamic_params[] = {
    {"keep", "keys of a head beside the last ones, in the mean of the layers", 504, 0, 1e9, SMX_PARAM_INT,
     NULL},
    {"last", "keys at the end that every head keeps", 8, 0, 1e9, SMX_PARAM_INT, NULL},
    {"most", "no layer keeps more than so many times as many", 10, 1, 1e9, 0, NULL}};

static const smx_port multi_token_in[] = {
    QUERIES("... h l d"), KEYS("... h t d"), VALUES("... h t e"),
    {"theta", DIMS, GRAD, "kernels of the scores: a queries, the last of them its own, b keys around one",
     "h a b"},
    {"mask", DIMS, MASK, "nonzero = the query sees the key, in every head", "... l t"},
    {"mix", DIMS, GRAD | OPT, "of heads, before the softmax: of each out of all", "h h"},
    {"after", DIMS, GRAD | OPT, "kernels of the probabilities, as theta", "h m n"},
    {"after_mix", DIMS, GRAD | OPT, "of heads, after that", "h h"}};
static const smx_port heads_out[] = {
    {"y", DIMS, 0, "of every query", "... h l e"},
    {"weights", DIMS, OPT, "of every query and key", "... h l t"}};
static const smx_param multi_token_params[] = {
    SCALE, {"causal", "a query sees no key behind its own; the last ones are side by side", 1, 0, 1,
            SMX_PARAM_INT, no_yes}};

static const smx_port soft_in[] = {
    {"x", DIMS, GRAD, "tokens: queries and keys are the same", "... t d"},
    {"landmark", DIMS, GRAD, "some that stand for all, as means of neighbours", "... m d"},
    VALUES("... t e")};
static const smx_port soft_out[] = {{"y", DIMS, 0, "of every token", "... t e"}};
static const smx_param soft_params[] = {
    {"scale", "of squared distances; 0: 1 / sqrt(d)", 0, 0, 1e30, 0, NULL},
    {"steps", "of Newton's method", 20, 0, 1000, SMX_PARAM_INT, NULL},
    {"ridge", "is added to the diagonal of what is inverted", 0.01, 0, 1e30, 0, NULL}};

#define WHOLE_OF(name, help) {name, DIMS, SMX_PORT_INT | SAVED, help, "... l"}
static const smx_port segment_in[] = {
    {"score", DIMS, GRAD, "scores of queries and keys, as of additive attention", "... l t"},
    VALUES("... t e"),
    WHOLE_OF("begin", "the first key that each query sees; below 0 counts as 0"),
    WHOLE_OF("end", "the key behind the last one; beyond t counts as t"),
    WHOLE_OF("position", "where each query is")};
static const smx_port segment_out[] = {
    {"y", DIMS, 0, "of every query", "... l e"},
    {"log_p", DIMS, 0, "the logarithm of how likely the position is in its range", "... l"},
    {"lse", DIMS, OPT, "of the scores in the range", "... l"}};
static const smx_param segment_params[] = {
    {"hard", "y is the value at the position", 0, 0, 1, SMX_PARAM_INT, no_yes}};

const smx_op attention_op_table[ATTENTION_OP_COUNT] = {
    [ATTENTION_OP_sinkhorn_attention] = {
        .id = 588, .name = "sinkhorn_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 4,
        .title = "attention whose weights are doubly stochastic: no key is left out, none takes all",
        .formula = "weights = sinkhorn(scale q k^T), y = weights v",
        .about = "The operator sinkhorn of each matrix of scores, in double. An odd number of steps ends "
                 "with the rows, so that the weights of a query sum to 1. The mask makes scores -inf; a "
                 "key that it hides from a query changes nothing there. A causal mask leaves no doubly "
                 "stochastic matrix but the identity. The scores are in memory, some matrices at a time. "
                 "Gradients of q, k and v, for y and for the weights.",
        .source = "Sinkformers: Transformers with Doubly Stochastic Attention (Sander, Ablin, Blondel, "
                  "Peyre 2021)",
        .example = "softmax run sinkhorn_attention q.npy k.npy v.npy --steps 21",
        INPUTS(sinkhorn_in), OUTPUTS(sheet_out), PARAMS(sinkhorn_params)},
    [ATTENTION_OP_orthostochastic_attention] = {
        .id = 589, .name = "orthostochastic_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 4,
        .title = "attention whose weights are the squares of an orthogonal matrix",
        .formula = "weights = orthostochastic(scale q k^T + noise N), y = weights v",
        .about = "The operator orthostochastic of each matrix of scores, in double, l^3 operations. Scores "
                 "of more tokens than q has elements depend on each other: their Q, and its gradient, are "
                 "those of the noise in the columns behind, as the paper adds it. Without noise the "
                 "gradient is NaN there. N of a score depends on seed, row and column alone, and is the "
                 "same for every matrix. Gradients of q, k and v, for y and for the weights.",
        .source = "Quantum Doubly Stochastic Transformers (Born et al. 2025), which adds normal noise of "
                  "1e-7; that this is its deviation is our reading",
        .example = "softmax run orthostochastic_attention q.npy q.npy v.npy",
        INPUTS(square_in), OUTPUTS(square_out), PARAMS(orthostochastic_params)},
    [ATTENTION_OP_max_sim] = {
        .id = 590, .name = "max_sim", .family = "attention", .flags = SMX_OP_BACKWARD, .tolerance = 4,
        .title = "how well documents answer a query, by the best of their tokens for each of its own",
        .formula = "score = sum_i max_j q_i d_j; with tau > 0 max_j is tau log sum_j e^(q_i d_j / tau)",
        .about = "Every query with every document, in double. Padded documents of n tokens have offsets 0, "
                 "n, 2 n ... and a mask. The best of equal tokens is the first. A document without tokens "
                 "scores -inf, with gradient 0; a NaN makes the score NaN, with index -1. Products are not "
                 "normalised: unit rows are the caller's. Gradient: to the best token, or with tau > 0 "
                 "to all by their softmax.",
        .source = "ColBERT: Efficient and Effective Passage Search (Khattab, Zaharia 2020); Simple "
                  "Projection Variants Improve ColBERT Performance (2025)",
        .example = "softmax run max_sim query.npy document.npy offsets.npy",
        INPUTS(max_sim_in), OUTPUTS(max_sim_out), PARAMS(max_sim_params)},
    [ATTENTION_OP_kv_budget_prefix] = {
        .id = 591, .name = "kv_budget_prefix", .family = "attention", .tolerance = 1,
        .title = "how many keys each layer keeps, so that all layers lose the same share of mass",
        .formula = "with masses in falling order the j-th key of a layer stays while sum_(i < j) mass_i / "
                   "sum_i mass_i < threshold, one threshold for all layers",
        .about = "The threshold is the one that keeps so many keys: exactly, where the paper bisects to "
                 "within 5 keys and scales. Of equal shares those of the lower layer stay. first + last "
                 "keys of every layer stay beside these, as the authors count; the others that stay are "
                 "those with the most mass, of equal ones the first. A layer without mass counts as one "
                 "of equal masses. A mass that is negative, infinite or NaN makes every number -1. mass "
                 "is a sum over queries, and the mean over heads.",
        .source = "PrefixKV: Adaptive Prefix KV Cache is What Vision Instruction-Following Models Need "
                  "for Efficient Generation (Wang et al. 2024)",
        .example = "softmax run kv_budget_prefix mass.npy --first 1",
        INPUTS(prefix_in), OUTPUTS(prefix_out), PARAMS(prefix_params)},
    [ATTENTION_OP_kv_budget_dynamic] = {
        .id = 592, .name = "kv_budget_dynamic", .family = "attention", .tolerance = 1,
        .title = "how many keys each layer keeps, by how many of the largest masses are its own",
        .formula = "c_n = how many of the keep heads layers largest masses are in layer n, budget_n = keep "
                   "layers c_n / sum c, at most `most` keep",
        .about = "Shares are whole numbers by largest remainders, ties to the lower layer; what is above "
                 "the cap, or the keys there are, goes to the other layers by the same rule (the authors "
                 "round down twice). Every head of a layer keeps its budget of largest masses, ties to the "
                 "first, and the last keys, which have no vote; budget counts both. A mass that is "
                 "negative, infinite or NaN makes every number -1.",
        .source = "DynamicKV: Task-Aware Adaptive KV Cache Compression for Long Context LLMs (Zhou et al. "
                  "2024)",
        .example = "softmax run kv_budget_dynamic mass.npy --keep 2 --last 1",
        INPUTS(dynamic_in), OUTPUTS(dynamic_out), PARAMS(dynamic_params)},
    [ATTENTION_OP_multi_token_attention] = {
        .id = 593, .name = "multi_token_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 256,
        .title = "attention whose weights look at neighbouring queries, keys and heads",
        .formula = "c_h[i, j] = sum_(u < a, w < b) theta_h[u, w] s_h[i - (a - 1) + u, j - b / 2 + w], p = "
                   "softmax(mix c), weights = after_mix (after * p), y = weights v; s = scale q k^T",
        .about = "b / 2 is rounded down. Scores of hidden keys are 0 while they are convolved, and -inf "
                 "before the softmax; hidden probabilities are 0 after it, so nothing of the future "
                 "comes in. A mixture that is not given is one of each head alone; groups of heads are "
                 "blocks on its diagonal. In double, some batches of all heads in memory at a time. The "
                 "norm of y and its gate are the caller's. Gradients of all but the mask, for y and for "
                 "the weights.",
        .source = "Multi-Token Attention (Golovneva, Wang, Weston, Sukhbaatar 2025)",
        .example = "softmax run multi_token_attention q.npy k.npy v.npy --theta theta.npy",
        INPUTS(multi_token_in), OUTPUTS(heads_out), PARAMS(multi_token_params)},
    [ATTENTION_OP_soft_attention] = {
        .id = 594, .name = "soft_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 4096,
        .title = "attention without softmax through landmarks, in time linear in the tokens",
        .formula = "y = K W K^T v, K_ia = e^(-scale |x_i - z_a|^2 / 2), W ~ (A + ridge)^-1, A as K of "
                   "landmarks z",
        .about = "With P = A + ridge, W begins as 1.8 P / (the largest sum of a row of P)^2, where the "
                 "authors take that of A, and takes steps 2 W - W P W, which square what is left to the "
                 "inverse: 20 are enough for landmarks that are apart, or with a ridge. Sums are not "
                 "divided by anything. With all tokens as landmarks and ridge = 0 it is kernel "
                 "attention. In double. Gradients of x, landmarks and v; the one through W is that of "
                 "an inverse, not of its steps, as the authors have it.",
        .source = "SOFT: Softmax-free Transformer with Linear Complexity (Lu et al. 2021); Softmax-free "
                  "Linear Transformers (Lu et al. 2022)",
        .example = "softmax run soft_attention q.npy landmarks.npy v.npy",
        INPUTS(soft_in), OUTPUTS(soft_out), PARAMS(soft_params)},
    [ATTENTION_OP_segment_attention] = {
        .id = 597, .name = "segment_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 8,
        .title = "attention over a range of keys of each query, and how likely a position in it is",
        .formula = "p = softmax of s_j, begin <= j < end, log_p = s_position - lse, y = sum_j p_j v_j, or "
                   "v_position with hard = yes",
        .about = "Latent monotonic attention: segmental with begin = position of the query before + 1 and "
                 "end = position + 1; over a window with begin = position - 5, end = position + 5; hard "
                 "with begin = position before + 1, end = t. A score of -inf hides its key. Outside of its "
                 "range a position has log_p -inf and the value 0. In double. Gradients of scores and "
                 "values, for all outputs; with hard = yes scores have those of log_p and lse alone.",
        .source = "A study of latent monotonic attention variants (Zeyer, Schlueter, Ney 2021)",
        .example = "softmax run segment_attention score.npy v.npy begin.npy end.npy position.npy",
        INPUTS(segment_in), OUTPUTS(segment_out), PARAMS(segment_params)},
};
