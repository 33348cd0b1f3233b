/* linear_attention/table.c - the facts about each operator whose attention has a state. The
 * command, the bindings, the tests and the manual all read this. */
#include "linear_attention.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS

enum { GRAD = SMX_PORT_GRAD | SMX_PORT_SAVED, SAVED = SMX_PORT_SAVED, OPT = SMX_PORT_OPTIONAL };

static const char *const no_yes[] = {"no", "yes", NULL},
                  *const maps[] = {"identity", "elu1", "relu", "relu2", "exp", "silu", NULL},
                  *const norms[] = {"none", "sum", "count", "mala", "inline", NULL};

static const smx_port linear_in[] = {
    {"q", DIMS, GRAD, "queries of each head", "... h l d"},
    {"k", DIMS, GRAD, "keys of each head; h is a multiple of g", "... g t d"},
    {"v", DIMS, GRAD, "values", "... g t e"},
    {"decay", DIMS, GRAD | OPT, "log a, at most 0 where the state fades; w = 1, or d: of each element of k",
     "... g t w"},
    {"beta", DIMS, GRAD | OPT, "the delta rule's rates, mostly probabilities", "... g t"},
    {"past", DIMS, GRAD | OPT, "the state that earlier tokens left; 0 without", "... g m n"},
    {"mask", DIMS, SMX_PORT_MASK | OPT | SAVED, "nonzero = the key is there", "... t"}};
static const smx_port linear_out[] = {
    {"y", DIMS, 0, "of every query", "... h l e"},
    {"state", DIMS, SMX_PORT_STATE, "for the tokens that follow; f32 where q is narrower", "... g m n"}};
static const smx_param linear_params[] = {
    {"map", "phi, of every element of q and k", 0, 0, 5, SMX_PARAM_INT, maps},
    {"norm", "what y is divided by", 0, 0, 4, SMX_PARAM_INT, norms},
    {"causal", "a token sees itself and those before it", 1, 0, 1, SMX_PARAM_INT, no_yes},
    {"scale", "of phi(q); 0: 1 / sqrt(d)", 0, -1e30, 1e30, 0, NULL},
    {"eps", "is added to sums that y is divided by", 1e-6, 0, 1, 0, NULL}};

static const smx_port features_in[] = {{"x", DIMS, GRAD, "queries or keys", "... t d"}};
static const smx_port features_out[] = {{"y", DIMS, 0, "features, for linear_attention", "... t r"}};
static const smx_param cosformer_params[] = {
    {"length", "no position is beyond it; 0: the last one here", 0, 0, 1e9, SMX_PARAM_INT, NULL},
    {"start", "the position of the first token, from 0", 0, 0, 1e9, SMX_PARAM_INT, NULL}};
static const char *const sides[] = {"query", "key", NULL};
static const smx_param nala_params[] = {{"side", "what x is", 0, 0, 1, SMX_PARAM_INT, sides}};
static const smx_port performer_in[] = {
    {"x", DIMS, GRAD, "queries or keys", "... t d"},
    {"omega", DIMS, OPT | SAVED, "directions, one a feature; drawn by seed without", "m d"}};
static const smx_port performer_out[] = {{"y", DIMS, 0, "features, for linear_attention", "... t m"}};
static const char *const kernels[] = {"exp", "relu", "none", NULL},
                  *const shifts[] = {"none", "row", "all", NULL};
static const smx_param performer_params[] = {
    {"features", "how many are drawn; 0: d ln d", 0, 0, 1e6, SMX_PARAM_INT, NULL},
    {"map", "of what x is along a direction", 0, 0, 2, SMX_PARAM_INT, kernels},
    {"shift", "takes off the largest, so that exponentials are in range", 0, 0, 2, SMX_PARAM_INT, shifts},
    {"eps", "is added to each", 1e-4, 0, 1, 0, NULL},
    {"seed", "of the directions", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL}};

static const smx_port slots_in[] = {
    {"q", DIMS, GRAD, "queries", "... t d"},
    {"k", DIMS, GRAD, "keys", "... t d"},
    {"v", DIMS, GRAD, "values", "... t e"},
    {"decay", DIMS, GRAD, "log a, at most 0: what each slot keeps", "... t m"},
    {"past_k", DIMS, GRAD | OPT, "keys of the slots that earlier tokens left; 0 without", "... m d"},
    {"past_v", DIMS, GRAD | OPT, "values of the slots", "... m e"}};
static const smx_port slots_out[] = {
    {"y", DIMS, 0, "of every query", "... t e"},
    {"state_k", DIMS, SMX_PORT_STATE, "keys of the slots, for the tokens that follow", "... m d"},
    {"state_v", DIMS, SMX_PORT_STATE, "values of the slots", "... m e"},
    {"lse", DIMS, OPT, "of the logits of the slots, to merge y with other keys", "... t"}};
static const smx_param slots_params[] = {
    {"scale", "of the logits; 0: 1 / sqrt(d)", 0, -1e30, 1e30, 0, NULL}};

static const smx_port mesa_in[] = {
    {"q", DIMS, GRAD, "queries", "... t d"},
    {"k", DIMS, GRAD, "keys", "... t d"},
    {"v", DIMS, GRAD, "values", "... t e"},
    {"ridge", DIMS, GRAD, "of each element of k, positive", "d"},
    {"decay", DIMS, GRAD | OPT, "log a, at most 0; 0 without", "... t"},
    {"beta", DIMS, GRAD | OPT, "how much each token counts, mostly probabilities; 1 without", "... t"},
    {"past_h", DIMS, GRAD | OPT, "state_h that earlier tokens left; its symmetric part", "... d d"},
    {"past_c", DIMS, GRAD | OPT, "state_c", "... d e"}};
static const smx_port mesa_out[] = {
    {"y", DIMS, 0, "of every query", "... t e"},
    {"state_h", DIMS, SMX_PORT_STATE, "products of keys, for the tokens that follow", "... d d"},
    {"state_c", DIMS, SMX_PORT_STATE, "products of keys and values", "... d e"}};

#define NORM(name, of, dims) \
  {name "_gain", DIMS, GRAD | OPT, "factors of normalised " of ", for each head; 1 without", dims}, \
  {name "_bias", DIMS, GRAD | OPT, "is added to them; 0 without", dims}
#define HEADS \
  {"q", DIMS, GRAD, "queries of each head", "... h l d"}, {"k", DIMS, GRAD, "keys", "... h t d"}, \
  {"v", DIMS, GRAD, "values", "... h t e"}
static const smx_port galerkin_in[] = {HEADS, NORM("k", "keys", "h d"), NORM("v", "values", "h e")};
static const smx_port fourier_in[] = {HEADS, NORM("q", "queries", "h d"), NORM("k", "keys", "h d")};
static const smx_port galerkin_out[] = {{"y", DIMS, 0, "of every query", "... h l e"}};
#define EPS {"eps", "is added to variances", 1e-5, 1e-15, 1, 0, NULL}
static const smx_param galerkin_params[] = {EPS};
static const smx_param fourier_params[] = {
    EPS, {"scale", "of products of queries and keys; 0: 1 / sqrt(d)", 0, -1e30, 1e30, 0, NULL}};

const smx_op linear_attention_table[LINEAR_ATTENTION_COUNT] = {
    [LINEAR_ATTENTION_linear_attention] = {
        .id = 495, .name = "linear_attention", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "attention with a state instead of scores, in time linear in the tokens",
        .formula = "S_t = a_t S_(t-1) + phi(k_t)^T u_t, y_t = scale phi(q_t) S_t; u = v, with beta u_t "
                   "= beta_t (v_t - phi(k_t) a_t S_(t-1))",
        .about = "decay is log a: retention and gated linear attention; beta: the delta rule; both: "
                 "gated delta net. elu1 is elu(x) + 1, relu2 relu(x)^2. Norms, with w_j = scale phi(q) "
                 "phi(k_j) and N keys: sum y = (sum w v) / (sum w + eps); count y = (sum w v) / N "
                 "(Galerkin attention); mala (1 + 1 / (z + eps)) (sum w v) / N - z mean(v), z = sum w / "
                 "N; inline (sum w v) / N + (1 - z) mean(v). What would be divided by 0 is 0. The state "
                 "has d rows and e columns, and with a norm one more of each for the sums of phi(k), v "
                 "and 1: m = d + 1, n = e + 1. Every element of it is one sum in the order of the "
                 "tokens, with one rounding a token, so y has the same bits for all tokens at once, in "
                 "parts with past, or one by one; without decay, sums in f32 of more than 2^24 tokens "
                 "may stand still (f64 tensors have f64 states), and the state keeps subnormal numbers. "
                 "A key that the mask hides changes nothing. Without causal order all keys come "
                 "before the first query; no decay and no beta then. h / g heads of queries "
                 "share a head of keys. Gradients of all but the mask, of state too.",
        .source = "Transformers are RNNs (Katharopoulos et al. 2020); Retentive Network (Sun et al. "
                  "2023); GLA (Yang et al. 2023); Parallelizing Linear Transformers with the Delta "
                  "Rule (Yang et al. 2024); Gated Delta Networks (Yang et al. 2024); Choose a "
                  "Transformer: Fourier or Galerkin (Cao 2021); Rectifying Magnitude Neglect in Linear "
                  "Attention (Fan et al. 2025); Bridging the Divide (Han et al. 2024); ONNX "
                  "LinearAttention",
        .example = "softmax run linear_attention q.npy k.npy v.npy --map elu1 --norm sum",
        INPUTS(linear_in), OUTPUTS(linear_out), PARAMS(linear_params)},
    [LINEAR_ATTENTION_taylor_features] = {
        .id = 496, .name = "taylor_features", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 4,
        .title = "features whose products are 1 + s + s^2 / 2, s = q k / sqrt(d)",
        .formula = "y = (1, x / d^(1/4), x_i x_j / sqrt(2 d) for all i, j); r = 1 + d + d^2",
        .about = "linear_attention of such features of q and of k, with norm = sum and scale = 1, is "
                 "softmax attention whose exponential is its Taylor series to the second term; weights "
                 "are at least 1/2. In double.",
        .source = "Simple linear attention language models balance the recall-throughput tradeoff "
                  "(Arora et al. 2024, Based)",
        .example = "softmax run taylor_features q.npy",
        INPUTS(features_in), OUTPUTS(features_out)},
    [LINEAR_ATTENTION_cosformer_features] = {
        .id = 497, .name = "cosformer_features", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 4,
        .title = "features whose products are relu(q) relu(k) cos(pi (i - j) / (2 length))",
        .formula = "y = (relu(x) sin a_i, relu(x) cos a_i), a_i = pi (start + i) / (2 length), i = "
                   "1..t; r = 2 d",
        .about = "linear_attention of them, with norm = sum and scale = 1, is cosFormer, whose code has "
                 "max(sum, 1e-6) for sum + eps. Near tokens weigh more. Where tokens come one by one, length "
                 "is to be that of the whole. In double.",
        .source = "cosFormer: Rethinking Softmax in Attention (Qin et al. 2022)",
        .example = "softmax run cosformer_features q.npy --length 4096",
        INPUTS(features_in), OUTPUTS(features_out), PARAMS(cosformer_params)},
    [LINEAR_ATTENTION_nala_features] = {
        .id = 498, .name = "nala_features", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "features that know the norm of a query",
        .formula = "query: y = ((relu(x) / |x|)^p, (relu(-x) / |x|)^p), p = 3 (1/2 + tanh |x|); key: y "
                   "= (relu(x^3), relu(-x^3)); r = 2 d",
        .about = "Queries of a larger norm have sharper weights. linear_attention of the features of q "
                 "and of k, with norm = sum and scale = 1, is the attention of the authors' code "
                 "without its rotary positions. A query of zeros has features 0. In double.",
        .source = "NaLaFormer: Norm-Aware Linear Attention for Transformer Models (Meng et al. 2025), "
                  "as its code has it",
        .example = "softmax run nala_features q.npy --side query",
        INPUTS(features_in), OUTPUTS(features_out), PARAMS(nala_params)},
    [LINEAR_ATTENTION_performer_features] = {
        .id = 499, .name = "performer_features", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "positive orthogonal random features (FAVOR+), whose products estimate e^(q k / "
                 "sqrt(d))",
        .formula = "exp: y_r = (e^(omega_r x' - |x'|^2 / 2 - c) + eps) / sqrt(m); relu: y_r = "
                   "relu(omega_r x') + eps; none: y_r = omega_r x'; x' = x / d^(1/4)",
        .about = "c = 0, the largest omega_r x' of the row (shift = row, as the authors have it for "
                 "queries), or of all rows (all, for keys); it has no gradient, and falls out of norm "
                 "= sum but for eps. With all, features of a token depend on the others. omega: rows "
                 "orthogonal in blocks of d, as long as rows of d normal numbers, the same for every "
                 "seed, d and m; gradients of x only. eps is 1e-3 with relu in the authors' code. "
                 "omega x' are sums of the real type in index order.",
        .source = "Rethinking Attention with Performers (Choromanski et al. 2020)",
        .example = "softmax run performer_features q.npy --features 64 --shift row",
        INPUTS(performer_in), OUTPUTS(performer_out), PARAMS(performer_params)},
    [LINEAR_ATTENTION_gated_slot_attention] = {
        .id = 500, .name = "gated_slot_attention", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "softmax attention over m slots, each of which remembers a mean of keys and values",
        .formula = "K_t = a_t K_(t-1) + (1 - a_t) k_t, V_t = a_t V_(t-1) + (1 - a_t) v_t, y_t = "
                   "softmax(scale q_t K_t) V_t, a_t = e^decay_t",
        .about = "decay has a number for each slot. Logits and sums of values are of the real type, in "
                 "index order, the softmax is in double. y has the same bits for all tokens at once, in "
                 "parts with past, or one by one. With lse it can be merged with attention over a "
                 "window. The authors take decay = logsigmoid(f) / 8, and silu of q, k and v. Gradients "
                 "of all inputs, for all outputs.",
        .source = "Gated Slot Attention (Zhang et al. 2024); Native Hybrid Attention (Du et al. 2025)",
        .example = "softmax run gated_slot_attention q.npy k.npy v.npy decay.npy",
        INPUTS(slots_in), OUTPUTS(slots_out), PARAMS(slots_params)},
    [LINEAR_ATTENTION_mesa_attention] = {
        .id = 524, .name = "mesa_attention", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 1 << 14,
        .title = "values as a linear function of keys, by least squares over the tokens so far",
        .formula = "H_t = a_t H_(t-1) + beta_t k_t k_t^T, C_t = a_t C_(t-1) + beta_t k_t v_t^T, y_t = "
                   "C_t^T (H_t + diag(ridge))^-1 q_t",
        .about = "Exact: L D L^T of every token's matrix, d^3 / 6 products each, in double. States are "
                 "rounded to the real type token by token, so single tokens have the bits of the "
                 "whole. A zero on the diagonal of D makes y infinite or NaN; with ridge above 0 and "
                 "beta at least 0 there is none. Gradients of all inputs, of the states too.",
        .source = "MesaNet (von Oswald et al. 2025); Test-time regression (Wang et al. 2025)",
        .example = "softmax run mesa_attention q.npy k.npy v.npy ridge.npy",
        INPUTS(mesa_in), OUTPUTS(mesa_out)},
    [LINEAR_ATTENTION_galerkin_attention] = {
        .id = 595, .name = "galerkin_attention", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 16,
        .title = "attention without softmax, with layer norms of keys and values, in linear time",
        .formula = "y = q (N(k)^T N(v)) / t, N(x) = gain (x - mean) / sqrt(variance + eps) + bias of "
                   "every row",
        .about = "t is the number of keys, and nobody is masked. Coordinates of a grid that the authors put "
                 "before the rows are the caller's. Without the norms, or with other divisors, it is "
                 "linear_attention. In double. Gradients of all inputs.",
        .source = "Choose a Transformer: Fourier or Galerkin (Cao 2021)",
        .example = "softmax run galerkin_attention q.npy k.npy v.npy",
        INPUTS(galerkin_in), OUTPUTS(galerkin_out), PARAMS(galerkin_params)},
    [LINEAR_ATTENTION_fourier_attention] = {
        .id = 596, .name = "fourier_attention", .family = "linear_attention", .flags = SMX_OP_BACKWARD,
        .tolerance = 16,
        .title = "attention without softmax, with layer norms of queries and keys, in linear time",
        .formula = "y = scale (N(q) N(k)^T) v / t, N(x) = gain (x - mean) / sqrt(variance + eps) + bias "
                   "of every row",
        .about = "The product of keys and values comes first, since there is no softmax between. t is the "
                 "number of keys, and nobody is masked. In double. Gradients of all inputs.",
        .source = "Choose a Transformer: Fourier or Galerkin (Cao 2021)",
        .example = "softmax run fourier_attention q.npy k.npy v.npy",
        INPUTS(fourier_in), OUTPUTS(galerkin_out), PARAMS(fourier_params)},
};
