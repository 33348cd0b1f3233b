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

static const char *const ways[] = {"steps", "limit", NULL};

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
};
