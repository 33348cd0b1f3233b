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
    {"state", DIMS, 0, "for the tokens that follow", "... g m n"}};
static const smx_param linear_params[] = {
    {"map", "phi, of every element of q and k", 0, 0, 5, SMX_PARAM_INT, maps},
    {"norm", "what y is divided by", 0, 0, 4, SMX_PARAM_INT, norms},
    {"causal", "a token sees itself and those before it", 1, 0, 1, SMX_PARAM_INT, no_yes},
    {"scale", "of phi(q); 0: 1 / sqrt(d)", 0, -1e30, 1e30, 0, NULL},
    {"eps", "is added to sums that y is divided by", 1e-6, 0, 1, 0, NULL}};

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
                 "parts with past, or one by one. A key that the mask hides changes nothing. Without "
                 "causal order all keys come before the first query; no decay and no beta then. h / g "
                 "heads of queries share a head of keys. Gradients of all but the mask, of state too.",
        .source = "Transformers are RNNs (Katharopoulos et al. 2020); Retentive Network (Sun et al. "
                  "2023); GLA (Yang et al. 2023); Parallelizing Linear Transformers with the Delta Rule "
                  "(Yang et al. 2024); Gated Delta Networks (Yang et al. 2024); Choose a Transformer: "
                  "Fourier or Galerkin (Cao 2021); Rectifying Magnitude Neglect in Linear Attention "
                  "(Fan et al. 2025); Bridging the Divide (Han et al. 2024); ONNX LinearAttention",
        .example = "softmax run linear_attention q.npy k.npy v.npy --map elu1 --norm sum",
        INPUTS(linear_in), OUTPUTS(linear_out), PARAMS(linear_params)},
};
