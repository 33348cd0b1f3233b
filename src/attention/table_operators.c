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
    {"offsets", DIMS, SMX_PORT_INT | OPT | SAVED, "where each document starts, and m at the end; one without",
     "b+1 | <= m"},
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
    {"ridge", "is added to the diagonal of what is inverted", 0.01, 0, 1e30, 0, NULL},
    {"normalise", "W becomes D W D, D = 1 / sqrt(the sums of the rows of A)", 0, 0, 1, SMX_PARAM_INT,
     no_yes}};

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

#define SEED(of) {"seed", "of " of, 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL}
#define CAUSAL(default) \
  {"causal", "a query sees no key behind its own; the last ones are side by side", default, 0, 1, \
   SMX_PARAM_INT, no_yes}
#define HASHES \
  {"bits", "of a code", 10, 1, 30, SMX_PARAM_INT, NULL}, \
      {"tables", "codes of each vector", 150, 1, 1e6, SMX_PARAM_INT, NULL}

static const char *const orders[] = {"binary", "gray", NULL};
static const smx_port codes_in[] = {
    {"x", DIMS, SAVED, "vectors", "... t d"},
    {"planes", DIMS, OPT | SAVED, "normals of planes, table by table; drawn by seed without", "p d"}};
static const smx_port codes_out[] = {
    {"code", DIMS, SMX_PORT_INT, "of every vector in every table; -1: it has a NaN", "... t h"}};
static const smx_param codes_params[] = {
    HASHES, {"order", "gray: neighbouring numbers differ on one side", 0, 0, 1, SMX_PARAM_INT, orders},
    SEED("the planes")};

static const smx_port magicpig_in[] = {
    {"q", DIMS, SAVED, "queries", "... l d"}, {"k", DIMS, SAVED, "keys", "... t d"},
    {"v", DIMS, SAVED, "values", "... t e"},
    {"mask", DIMS, MASK, "nonzero = the query sees the key", "... l t"},
    {"exact", DIMS, MASK, "nonzero = every query that sees the key attends to it", "... t"}};
static const smx_port magicpig_out[] = {
    {"y", DIMS, 0, "of every query", "... l e"},
    {"lse", DIMS, 0, "estimate of that of attention, to merge y with other keys", "... l"},
    {"count", DIMS, SMX_PORT_INT, "how many keys were attended to", "... l"}};
static const smx_param magicpig_params[] = {
    SCALE, HASHES,
    {"least", "tables in which the codes of query and key must agree", 2, 1, 1e6, SMX_PARAM_INT, NULL},
    {"first", "keys at the start that are attended to anyway", 4, 0, 1e9, SMX_PARAM_INT, NULL},
    {"last", "and of the last ones that a query sees", 64, 0, 1e9, SMX_PARAM_INT, NULL},
    {"eps", "is added to u; the authors have 1e-4", 0, 0, 1, 0, NULL},
    {"centre", "codes and angles of keys are of keys less the mean key", 1, 0, 1, SMX_PARAM_INT, no_yes},
    CAUSAL(0), SEED("the planes")};

static const smx_port kde_in[] = {
    {"q", DIMS, SAVED, "queries", "... l d"}, {"k", DIMS, SAVED, "keys", "... t d"},
    {"v", DIMS, SAVED, "values", "... t e"}};
static const smx_port kde_out[] = {
    {"y", DIMS, 0, "of every query", "... l e"},
    {"lse", DIMS, 0, "estimate of that of attention, to merge y with other keys", "... l"}};
static const smx_param kde_params[] = {
    SCALE, {"bits", "of a code", 7, 1, 30, SMX_PARAM_INT, NULL},
    {"block_keys", "keys of a block", 128, 1, 1e9, SMX_PARAM_INT, NULL},
    {"samples", "keys drawn for those outside of the block", 800, 0, 1e9, SMX_PARAM_INT, NULL},
    SEED("planes and samples")};

static const smx_port nystrom_in[] = {QUERIES("... l d"), KEYS("... t d"), VALUES("... t e")};
static const smx_port nystrom_out[] = {{"y", DIMS, 0, "of every query", "... l e"}};
static const smx_param nystrom_params[] = {
    SCALE, {"landmarks", "at most; each the mean of a segment", 64, 1, 1e6, SMX_PARAM_INT, NULL},
    {"steps", "to the inverse", 6, 0, 1000, SMX_PARAM_INT, NULL}};

static const smx_port additive_in[] = {
    {"u", DIMS, GRAD, "how much each element counts", "... d"}, QUERIES("... l d"), KEYS("... t d")};
static const smx_port additive_out[] = {{"z", DIMS, 0, "of every query and key", "... l t"}};

#define OF_HEAD(name, help) {name, DIMS, GRAD, help, "h"}
#define HIDING \
  {"mask", DIMS, MASK, "nonzero = the query sees the key, in every head", "... l t"}, \
      {"bias", DIMS, GRAD | OPT, "is added to the scores; -inf hides a key", "... h l t"}
static const smx_port entmax_in[] = {
    QUERIES("... h l d"), KEYS("... h t d"), VALUES("... h t e"),
    OF_HEAD("alpha", "of each head, positive, up to 10: 1 = softmax, 2 = sparsemax"), HIDING};
static const smx_port nap_in[] = {
    QUERIES("... h l d"), KEYS("... h t d"), VALUES("... h t e"), OF_HEAD("gamma", "gain of each head"),
    OF_HEAD("beta", "is added to the weights of each head"), HIDING};
static const smx_port shaped_in[] = {
    QUERIES("... h l d"), KEYS("... h t d"), VALUES("... h t e"),
    OF_HEAD("identity", "of each head: weight of the key where the query stands"),
    OF_HEAD("gain", "factor of softmax"), OF_HEAD("mean", "is taken from all weights, over the keys seen"),
    HIDING};
static const smx_param entmax_params[] = {SCALE, CAUSAL(0)};
static const smx_param nap_params[] = {
    {"scale", "of the products of queries and keys; 0: 1 / sqrt(d)", 1, -1e30, 1e30, 0, NULL},
    CAUSAL(0), {"eps", "keeps the deviation from 0", 1e-3, 1e-3, 1e3, 0, NULL}};

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
                 "divided by anything, unless normalise = yes: the form of the later paper, whose "
                 "authors have ridge = 0 there. With all tokens as landmarks and ridge = 0 it is kernel "
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
    [ATTENTION_OP_lsh_codes] = {
        .id = 630, .name = "lsh_codes", .family = "attention", .tolerance = 1,
        .title = "codes of vectors by the sides of random planes: near vectors share some",
        .formula = "code_h = sum_(b < bits) 2^b [x plane_(h bits + b) > 0]",
        .about = "SimHash: two vectors agree in one bit with probability 1 - angle / pi. Planes are normal "
                 "numbers; those of a table depend on seed, bits and d alone. gray: the number whose Gray "
                 "code has these bits, so that vectors sorted by it are near each other. In double.",
        .source = "Similarity Estimation Techniques from Rounding Algorithms (Charikar 2002)",
        .example = "softmax run lsh_codes k.npy --bits 8 --tables 4",
        INPUTS(codes_in), OUTPUTS(codes_out), PARAMS(codes_params)},
    [ATTENTION_OP_magicpig_attention] = {
        .id = 631, .name = "magicpig_attention", .family = "attention", .tolerance = 64,
        .title = "attention to the keys that share codes with the query, each for those it stands for",
        .formula = "y = sum w_j v_j / sum w_j, w_j = e^(scale q k_j) / u_j of keys that agree in `least` "
                   "tables, u_j = P(Binomial(tables, (1 - angle / pi)^bits) >= least)",
        .about = "A key that is seen with probability u counts 1 / u times, so that numerator and "
                 "denominator are right on average over seeds. Codes are those of lsh_codes; angles are "
                 "between the query and the key less the mean of the keys that some query sees. The "
                 "first and the last keys, and those of exact, are attended to with u = 1; the authors "
                 "keep 4 first ones and the latest. Where query or key is no number it is attended to, and "
                 "y is NaN. In double; no gradient, as the codes have none.",
        .source = "MagicPIG: LSH Sampling for Efficient LLM Generation (Chen et al. 2024)",
        .example = "softmax run magicpig_attention q.npy k.npy v.npy --bits 4 --tables 20",
        INPUTS(magicpig_in), OUTPUTS(magicpig_out), PARAMS(magicpig_params)},
    [ATTENTION_OP_kde_attention] = {
        .id = 632, .name = "kde_attention", .family = "attention", .tolerance = 64,
        .title = "attention to the keys of a block of near ones, and to drawn keys for the others",
        .formula = "y = sum w_j v_j / sum w_j, w_j = e^(scale q k_j) in the block, e^(scale q k_j) / "
                   "(samples P_j) of each drawn key outside, P_j ~ |(v_j, 1)| / N + 1 / t",
        .about = "Queries and keys are sorted by their lsh_codes of one table in Gray's order, of "
                 "equal codes by place, and cut into as many blocks; `block` keys are in one, the last "
                 "may have fewer. N is the largest eigenvalue of (v, 1)^T (v, 1), by 20 steps of the power "
                 "method, as the authors have it. All queries and all items share the drawn places. With "
                 "all keys in one block it is attention; with 0 samples other blocks count for nothing. In "
                 "double; no gradient, as the codes have none.",
        .source = "KDEformer: Accelerating Transformers via Kernel Density Estimation (Zandieh, Han, "
                  "Daliri, Karbasi 2023)",
        .example = "softmax run kde_attention q.npy k.npy v.npy --block_keys 2 --samples 3",
        INPUTS(kde_in), OUTPUTS(kde_out), PARAMS(kde_params)},
    [ATTENTION_OP_nystrom_attention] = {
        .id = 633, .name = "nystrom_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 256,
        .title = "softmax attention through means of segments, in time linear in the tokens",
        .formula = "y = softmax(scale q K^T) Z softmax(scale Q k^T) v, Q and K means of segments, Z ~ the "
                   "pseudo-inverse of A = softmax(scale Q K^T)",
        .about = "Z begins as A^T over the largest sum of a column of A, and takes steps Z (13 - P (15 - P "
                 "(7 - P))) / 4, P = A Z. Segment a begins at token a n / landmarks, rounded down; there "
                 "are no more landmarks than tokens. With every token a landmark it is attention. The "
                 "authors take one start for a whole batch, and add a convolution of v. In double. "
                 "Gradients of q, k and v, through the steps, as the authors train it.",
        .source = "Nystroemformer: A Nystroem-Based Algorithm for Approximating Self-Attention (Xiong et "
                  "al. 2021)",
        .example = "softmax run nystrom_attention q.npy k.npy v.npy --landmarks 2",
        INPUTS(nystrom_in), OUTPUTS(nystrom_out), PARAMS(nystrom_params)},
    [ATTENTION_OP_additive_scores] = {
        .id = 634, .name = "additive_scores", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 16,
        .title = "scores of additive attention, for segment_attention or for softmax",
        .formula = "z_ij = sum_c u_c tanh(q_ic + k_jc)",
        .about = "What smx_attention_additive weighs by; here they are written out, so that ranges of keys, "
                 "the lse and log p of a position follow from them. In double. Gradients of all inputs.",
        .source = "Neural Machine Translation by Jointly Learning to Align and Translate (Bahdanau, Cho, "
                  "Bengio 2015)",
        .example = "softmax run additive_scores u.npy q.npy k.npy",
        INPUTS(additive_in), OUTPUTS(additive_out)},
    [ATTENTION_OP_entmax_attention] = {
        .id = 635, .name = "entmax_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 256,
        .title = "sparse attention whose heads learn how sparse they are",
        .formula = "weights = entmax(scale q k^T + bias, alpha of the head), y = weights v",
        .about = "The operator entmax of every row of scores, in double; an alpha outside of 0..10 makes its "
                 "head NaN. Gradients of q, k, v, alpha and bias, for y and for the weights; those through "
                 "scores are 0 where a weight is 0. Scores are in memory, some heads at a time.",
        .source = "Adaptively Sparse Transformers (Correia, Niculae, Martins 2019)",
        .example = "softmax run entmax_attention q.npy k.npy v.npy alpha.npy",
        INPUTS(entmax_in), OUTPUTS(heads_out), PARAMS(entmax_params)},
    [ATTENTION_OP_nap_attention] = {
        .id = 636, .name = "nap_attention", .family = "attention", .flags = SMX_OP_BACKWARD, .tolerance = 64,
        .title = "attention by standardised scores, with a learned gain and shift of each head",
        .formula = "weights = gamma (s - mean) / (deviation + eps) + beta of keys seen, y = weights v; "
                   "s = scale q k^T + bias",
        .about = "The operator normalized_attention of every row of scores, in double. Hidden keys have "
                 "weight 0. Gradients of q, k, v, gamma, beta and bias, for y and for the weights. Scores "
                 "are in memory, some heads at a time.",
        .source = "Normalized Attention Without Probability Cage (Richter, Wattenhofer 2020)",
        .example = "softmax run nap_attention q.npy k.npy v.npy gamma.npy beta.npy",
        INPUTS(nap_in), OUTPUTS(heads_out), PARAMS(nap_params)},
    [ATTENTION_OP_shaped_attention] = {
        .id = 645, .name = "shaped_attention", .family = "attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "softmax against the plain mean, with three learned gains of each head",
        .formula = "weights_ij = identity [j is the key where i stands] + gain p_ij - mean / n, p = "
                   "softmax(s) of the n keys seen; s = scale q k^T + bias",
        .about = "The weights \"shaped\" of attention, whose gains are numbers; the last query stands at "
                 "the last key. Hidden keys have weight 0. In double. Gradients of q, k, v, of the three "
                 "gains and of bias, for y and for the weights. Scores are in memory, some heads at a time.",
        .source = "The Shaped Transformer: Attention Models in the Infinite Depth-and-Width Limit (Noci et "
                  "al. 2023)",
        .example = "softmax run shaped_attention q.npy k.npy v.npy one.npy one.npy one.npy",
        INPUTS(shaped_in), OUTPUTS(heads_out), PARAMS(entmax_params)},
};
