/* gate/table.c - the facts about each operator that routes. The command, the bindings, the tests
 * and the manual all read this. */
#include "gate.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS
#define WHOLE SMX_PARAM_INT, NULL
#define MOST 1e9

enum {
  GRAD = SMX_PORT_GRAD | SMX_PORT_SAVED, /* the bindings want the shapes of those */
  SAVED = SMX_PORT_SAVED,
  OPT = SMX_PORT_OPTIONAL,
  INT = SMX_PORT_INT,
  TARGET = SMX_PORT_INT | SMX_PORT_TARGET
};

static const char *const no_yes[] = {"no", "yes", NULL};

/* ---- who takes a token ---- */

static const smx_port topk_in[] = {
    {"logits", DIMS, GRAD, "of a router, of each token and expert", "... e"},
    {"bias", DIMS, OPT | SAVED, "added to the scores of the experts for the choice only", "e"}};
static const smx_port topk_out[] = {
    {"weight", DIMS, 0, "of the chosen, the best first", "... k"},
    {"index", DIMS, INT | SAVED, "the chosen experts; -1 where there are fewer", "... k"}};
static const char *const scores[] = {"softmax", "sigmoid", NULL},
                  *const groups[] = {"auto", "best", "two", NULL};
static const smx_param topk_params[] = {
    {"k", "experts of a token", 2, 1, MOST, WHOLE},
    {"score", "what experts are chosen by, and weighed with", 0, 0, 1, SMX_PARAM_INT, scores},
    {"renormalise", "divides the weights of a token by their sum", 1, 0, 1, SMX_PARAM_INT, no_yes},
    {"groups", "of experts side by side, of the same size", 1, 1, MOST, WHOLE},
    {"top_groups", "groups that take part; 0 = all", 0, 0, MOST, WHOLE},
    {"group", "a group counts by its best score, or the sum of its two best; auto: two where there is a bias",
     0, 0, 2, SMX_PARAM_INT, groups},
    {"scale", "the weights are multiplied by it", 1, -1e30, 1e30, 0, NULL},
    {"temperature", "the logits are divided by it", 1, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL}};

static const smx_port noisy_in[] = {
    {"logits", DIMS, GRAD, "of a router, of each token and expert", "... e"},
    {"spread", DIMS, GRAD | OPT, "s = softplus(spread) + least, the deviation of the noise", "... e"},
    {"stream", DIMS, INT | OPT | SAVED, "which random numbers each token gets; its number without", "..."}};
static const smx_port noisy_out[] = {
    {"weight", DIMS, 0, "of the chosen, the best first", "... k"},
    {"index", DIMS, INT, "the chosen experts; -1 where there are fewer", "... k"},
    {"chance", DIMS, OPT, "how likely each expert is chosen, if its own noise is drawn again", "... e"}};
static const smx_param noisy_params[] = {
    {"k", "experts of a token", 2, 1, MOST, WHOLE},
    {"least", "of the deviation", 0.01, 0, 1e30, 0, NULL},
    {"noise", "without spread s = noise / e; 0: there is none", 1, 0, 1e30, 0, NULL},
    {"seed", "of the random numbers", 0, 0, 9007199254740992.0, WHOLE}};

static const smx_port dense_in[] = {
    {"logits", DIMS, GRAD, "of a router, of each token and expert", "... e"},
    {"bias", DIMS, GRAD | OPT, "added behind the activation", "e"},
    {"gain", DIMS, GRAD | OPT, "a learned inverse of a temperature; 1 without", ""},
    {"stream", DIMS, INT | OPT | SAVED, "which random numbers each token gets; its number without", "..."}};
static const smx_port dense_out[] = {
    {"weight", DIMS, 0, "of the experts that stay, the best first", "... k"},
    {"index", DIMS, INT, "those experts; -1 where there are fewer", "... k"}};
static const char *const activations[] = {"none", "tanh", "sigmoid", "gelu", "relu", NULL},
                  *const noises[] = {"none", "gumbel", NULL};
static const smx_param dense_params[] = {
    {"k", "experts of a token, at most; 0 = all", 0, 0, MOST, WHOLE},
    {"temperature", "the scores are divided by it", 1, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL},
    {"threshold", "experts of less weight are left out, but not the best", 0, 0, 1, 0, NULL},
    {"renormalise", "divides the weights of a token by their sum", 0, 0, 1, SMX_PARAM_INT, no_yes},
    {"activation", "of the logits, before the bias", 0, 0, 4, SMX_PARAM_INT, activations},
    {"noise", "gumbel: in training, so that other experts are tried", 0, 0, 1, SMX_PARAM_INT, noises},
    {"seed", "of the random numbers", 0, 0, 9007199254740992.0, WHOLE}};

static const smx_port modified_in[] = {{"x", DIMS, GRAD, "features of tokens", "... d"}};
static const smx_port modified_out[] = {{"y", DIMS, 0, "what the layer of the router sees", "... d"}};
static const char *const transforms[] = {"unit", "tanh", NULL};
static const smx_param modified_params[] = {
    {"transform", "rows of length 1, or each feature within -1 and 1", 0, 0, 1, SMX_PARAM_INT, transforms}};

static const smx_port tokens_in[] = {{"logits", DIMS, GRAD, "of a router, of each token and expert", "t e"}};
static const smx_port expert_out[] = {
    {"weight", DIMS, 0, "of the tokens of each expert, the best first", "e capacity"},
    {"index", DIMS, INT | SAVED, "its tokens; -1 where there are fewer", "e capacity"}};
static const smx_param expert_params[] = {
    {"capacity", "tokens of an expert; 0: t factor / e, rounded up, and t at most", 0, 0, MOST, WHOLE},
    {"factor", "experts of a token, on average", 2, 0, 1e9, SMX_PARAM_OPEN_MIN, NULL}};

static const smx_port relu_out[] = {
    {"weight", DIMS, 0, "of every expert; most are 0", "t e"},
    {"loss", DIMS, OPT, "what keeps most of them 0, and balanced", ""},
    {"sparsity", DIMS, OPT, "the share of weights that are 0", ""},
    {"next", DIMS, OPT, "lambda of the next step", ""}};
static const smx_param relu_params[] = {
    {"k", "experts that a token shall have, on average", 1, 1, MOST, WHOLE},
    {"lambda", "of this step", 1e-8, 0, 1e30, 0, NULL},
    {"alpha", "what lambda is multiplied with, or divided by", 1.2, 1, 1e30, 0, NULL}};

/* ---- where it goes ---- */

static const smx_port places_in[] = {
    {"index", DIMS, TARGET, "the experts of each token; -1: none", "t k | < experts"},
    {"weight", DIMS, OPT, "what priority and score go by", "t k"}};
static const smx_port places_out[] = {
    {"slot", DIMS, INT, "the row of each token and expert; -1: none", "t k"},
    {"source", DIMS, INT, "the token of each row; -1: none", "rows"},
    {"offset", DIMS, INT, "the first row of each expert, and the end of the last", "experts+1"},
    {"count", DIMS, INT | OPT, "tokens that wanted each expert", "experts"},
    {"dropped", DIMS, INT | OPT, "how many found it full", ""},
    {"expert", DIMS, INT | OPT, "the expert of each row; -1 behind the last", "rows"},
    {"pair", DIMS, INT | OPT, "token k + choice, of each row; -1: none", "rows"}};
static const char *const orders[] = {"position", "choice", "priority", "score", NULL},
                  *const layouts[] = {"compact", "fixed", NULL};
static const smx_param places_params[] = {
    {"experts", "how many there are", 8, 1, MOST, WHOLE},
    {"capacity", "tokens that an expert takes; 0 = t k factor / experts, rounded up", 0, 0, MOST, WHOLE},
    {"factor", "of the capacity; 0 = there is none", 0, 0, 1e9, 0, NULL},
    {"order", "who is served first", 0, 0, 3, SMX_PARAM_INT, orders},
    {"align", "an expert's rows are a multiple of it", 1, 1, MOST, WHOLE},
    {"layout", "experts have the rows they need, or all the same number", 0, 0, 1, SMX_PARAM_INT, layouts}};

static const smx_port dispatch_in[] = {
    {"x", DIMS, GRAD, "tokens", "t d"},
    {"source", DIMS, TARGET | SAVED, "the token of each row; -1: none", "rows | < t"}};
static const smx_port dispatch_out[] = {
    {"rows", DIMS, 0, "tokens, row by row; 0 where there is none", "rows d"}};
static const smx_port combine_in[] = {
    {"rows", DIMS, GRAD, "what the experts make of theirs", "rows d"},
    {"slot", DIMS, TARGET | SAVED, "the rows of each token; -1: none", "t k | < rows"},
    {"weight", DIMS, GRAD | OPT, "of each of them; 1 without", "t k"}};
static const smx_port combine_out[] = {{"y", DIMS, 0, "a sum for each token; 0 where it has no rows", "t d"}};

/* ---- what keeps experts busy alike ---- */

static const smx_port balance_in[] = {
    {"logits", DIMS, GRAD, "of a router, of each token and expert", "t e"},
    {"index", DIMS, TARGET | SAVED, "the chosen experts; -1: none", "t k | < e"}};
static const smx_port balance_out[] = {
    {"loss", DIMS, 0, "scale where all is balanced, more where it is not", ""},
    {"count", DIMS, INT | OPT, "tokens of each expert", "e"},
    {"mean", DIMS, OPT, "the mean probability of each expert", "e"},
    {"entropy", DIMS, OPT, "of the shares of the experts in count, in nats; log e where all are equal", ""}};
static const smx_param scale_params[] = {{"scale", "the loss is multiplied by it", 1, -1e30, 1e30, 0, NULL}};
static const smx_port z_in[] = {{"logits", DIMS, GRAD, "of a router, of each token and expert", "... e"}};
static const smx_port z_out[] = {{"loss", DIMS, 0, "the mean of the squares", ""}};
static const smx_port importance_in[] = {
    {"weight", DIMS, GRAD, "of the experts of each token, or the probability of each expert", "t k"},
    {"index", DIMS, TARGET | OPT | SAVED, "these experts; -1: none. Without: all, in their order",
     "t k | < experts"}};
static const smx_port importance_out[] = {
    {"loss", DIMS, 0, "0 where all are alike", ""},
    {"importance", DIMS, OPT, "the sum of each expert", "experts"}};
static const char *const variances[] = {"unbiased", "population", NULL};
static const smx_param importance_params[] = {
    {"experts", "how many there are; 0 = k", 0, 0, MOST, WHOLE},
    {"scale", "the loss is multiplied by it", 1, -1e30, 1e30, 0, NULL},
    {"variance", "unbiased: squares over experts - 1 (M3ViT); population: over experts (V-MoE)", 0, 0, 1,
     SMX_PARAM_INT, variances}};
static const smx_port bias_in[] = {{"bias", DIMS, 0, "of each expert, as gate_topk takes it", "e"},
                                   {"count", DIMS, INT, "tokens of each expert", "e"}};
static const smx_port bias_out[] = {{"next", DIMS, 0, "the bias of the next step", "e"}};
static const smx_param bias_params[] = {{"rate", "u, the step", 0.001, 0, 1e30, 0, NULL}};

static const smx_port soft_in[] = {
    {"x", DIMS, GRAD, "tokens", "... t d"},
    {"phi", DIMS, GRAD, "what each slot looks for", "s d"},
    {"gain", DIMS, GRAD | OPT, "of the logits; 1 without", ""},
    {"mask", DIMS, SMX_PORT_MASK | OPT | SAVED, "nonzero = the token is there", "... t"}};
static const smx_port soft_out[] = {
    {"dispatch", DIMS, SAVED, "of the tokens in each slot", "... t s"},
    {"combine", DIMS, SAVED, "of the slots in each token", "... t s"}};
static const smx_param soft_params[] = {
    {"normalise", "x and phi become unit rows", 1, 0, 1, SMX_PARAM_INT, no_yes}};

static const smx_port gaussian_in[] = {
    {"logits", DIMS, GRAD, "of a router", "... e"},
    {"mean", DIMS, GRAD, "of each expert", "... e"},
    {"log_s", DIMS, GRAD, "the logarithm of each expert's deviation", "... e"},
    {"y", DIMS, GRAD, "what is to be explained", "..."}};
static const smx_port multinomial_in[] = {
    {"logits", DIMS, GRAD, "of a router", "... e"},
    {"scores", DIMS, GRAD, "logits of each expert for the classes", "... e c"},
    {"target", DIMS, TARGET | SAVED, "the class of each token; -1: it has none, and loss 0", "... | < c"}};
static const smx_port nll_out[] = {{"loss", DIMS, 0, "of each token", "..."}};

enum { BACKWARD = SMX_OP_BACKWARD };

const smx_op gate_table[GATE_COUNT] = {
    [GATE_gate_topk] = {
        .id = 439, .name = "gate_topk", .family = "gate", .flags = BACKWARD, .tolerance = 64,
        .title = "the k best experts of each token, and their weights",
        .formula = "index = the k best of s + bias, w = scale s_index / sum s_index, s = softmax(z) or "
                   "sigmoid(z), z = logits / temperature",
        .about = "Best is by value descending, then the smaller number. A softmax renormalised is the "
                 "softmax of the chosen logits (Mixtral, gpt-oss), not renormalised it is of all "
                 "(Switch, DeepSeek-V2). The bias takes part in the choice only, so it has no gradient "
                 "(DeepSeek-V3: sigmoid with a bias, 4 of 8 groups, scale 2.5). Experts of a group "
                 "that does not take part are absent, as in the authors' code; code that gives them "
                 "score 0 instead chooses them where scores with a bias are below 0. Without a bias, "
                 "and without groups that count by two, a sigmoid or a softmax renormalised chooses "
                 "by logits, which differ where scores are rounded alike. A logit of -inf is an "
                 "expert that does not exist. A token with a NaN has NaN weights, index -1 and no "
                 "gradient; one without experts weights 0. A sum of sigmoids is divided by itself + "
                 "1e-20. One weight renormalised (k = 1) is 1, without a gradient. Gradient: through "
                 "the weights of the chosen, dz = w (dw - sum w dw) for scale 1 and a softmax "
                 "renormalised.",
        .source = "Outrageously Large Neural Networks (Shazeer et al. 2017); Top-K sparse softmax "
                  "gating: Nguyen et al. 2023; groups and bias: DeepSeek-V3 (2024), authors' code",
        .example = "softmax run gate_topk logits.npy --k 8 --score sigmoid --groups 8 --top_groups 4",
        INPUTS(topk_in), OUTPUTS(topk_out), PARAMS(topk_params)},
    [GATE_gate_expert_choice] = {
        .id = 440, .name = "gate_expert_choice", .family = "gate", .flags = BACKWARD, .tolerance = 32,
        .title = "the best tokens of each expert, and their weights",
        .formula = "index_e = the capacity best t of s_te, w = s_te, s = softmax of each token over "
                   "the experts",
        .about = "Every expert has as many tokens as any other, and a token 0 to e experts. Best is by "
                 "value descending, then the earlier token. The choice needs all tokens, later ones "
                 "too, so it is not for decoding. A token without experts is nobody's. A NaN in a "
                 "token is one for every expert: NaN weights, index -1. Gradient: through the weights "
                 "of the chosen, of the softmax.",
        .source = "Mixture-of-Experts with Expert Choice Routing (Zhou et al. 2022), without the cap "
                  "on a token's experts; google-research/vmoe",
        .example = "softmax run gate_expert_choice logits.npy --factor 2",
        INPUTS(tokens_in), OUTPUTS(expert_out), PARAMS(expert_params)},
    [GATE_gate_relu] = {
        .id = 441, .name = "gate_relu", .family = "gate", .flags = BACKWARD, .tolerance = 8,
        .title = "ReLU routing: the experts of a token are those with logits above 0",
        .formula = "w = max(logits, 0), loss = lambda e / (k t^2) sum_e n_e sum_t w_te, n_e = tokens "
                   "with w_te > 0",
        .about = "next is lambda alpha where sparsity is below 1 - k / e, else lambda / alpha, as the "
                 "authors' code has it (the paper leaves lambda alone where they are equal). Gradient: "
                 "dw, and of the loss with n_e as a constant, where the logit is above 0. Without "
                 "tokens the loss is 0.",
        .source = "ReMoE: Fully Differentiable Mixture-of-Experts with ReLU Routing (Wang, Zhu, Chen "
                  "2024); thu-ml/ReMoE",
        .example = "softmax run gate_relu logits.npy --k 2",
        INPUTS(tokens_in), OUTPUTS(relu_out), PARAMS(relu_params)},
    [GATE_moe_permutation] = {
        .id = 442, .name = "moe_permutation", .family = "gate", .tolerance = 1,
        .title = "which row of which expert each token becomes",
        .formula = "slot_tj = offset_e + how many are served before by e = index_tj, or -1 from the "
                   "capacity on",
        .about = "Served first is, by order, position: the earlier token, and of one token its earlier "
                 "choice; choice: all first choices before all second ones, in either the earlier "
                 "token; priority: as choice, but the token with the larger largest weight; score: the "
                 "larger weight. Of equal ones the earlier; NaN last. Rows of an expert are in the "
                 "order of service. Experts begin at whole blocks; rows that no token fills, and those "
                 "behind the last expert, have source -1. There are t k + min(t k, experts) (align - "
                 "1) rows, rounded up to blocks, or experts times the capacity, rounded up to blocks, "
                 "where the layout is fixed. No gradient.",
        .source = "capacity and order: GShard (Lepikhin et al. 2020), Switch (Fedus et al. 2021), "
                  "V-MoE (Riquelme et al. 2021; google-research/vmoe); blocks: MegaBlocks (Gale et al. "
                  "2022)",
        .example = "softmax run moe_permutation index.npy --experts 64 --align 16",
        INPUTS(places_in), OUTPUTS(places_out), PARAMS(places_params)},
    [GATE_moe_dispatch] = {
        .id = 443, .name = "moe_dispatch", .family = "gate", .flags = BACKWARD, .tolerance = 8,
        .title = "tokens to the rows of their experts",
        .formula = "rows_r = x_source_r",
        .about = "With source of moe_permutation. Gradient: dx_t is the sum over its rows, in their "
                 "order.",
        .source = "GShard (Lepikhin et al. 2020)",
        .example = "softmax run moe_dispatch x.npy source.npy",
        INPUTS(dispatch_in), OUTPUTS(dispatch_out)},
    [GATE_moe_combine] = {
        .id = 444, .name = "moe_combine", .family = "gate", .flags = BACKWARD, .tolerance = 16,
        .title = "tokens from the rows of their experts",
        .formula = "y_t = sum_j w_tj rows_slot_tj",
        .about = "With slot of moe_permutation and weight of gate_topk. The sum is in the order of j; "
                 "a slot of -1 adds nothing. Gradient: drows_r = sum w dy over what has slot r, in "
                 "order; dw_tj = dy_t rows, a sum in double, and 0 without a row.",
        .source = "GShard (Lepikhin et al. 2020)",
        .example = "softmax run moe_combine rows.npy slot.npy --weight weight.npy",
        INPUTS(combine_in), OUTPUTS(combine_out)},
    [GATE_load_balancing_loss] = {
        .id = 445, .name = "load_balancing_loss", .family = "gate", .flags = BACKWARD, .tolerance = 32,
        .title = "a loss that is least where experts are busy alike",
        .formula = "loss = scale e sum_e f_e P_e, f_e = count_e / (t k), P_e = the mean of "
                   "softmax(logits)_e",
        .about = "Tokens whose index is -1 throughout are left out of means and counts, so that is how "
                 "padding is hidden. With the first choices alone as index it is GShard's. Gradient: "
                 "through P, with f as a constant; of mean too. Sums over tokens are in double. 0 "
                 "without tokens.",
        .source = "Switch Transformers (Fedus, Zoph, Shazeer 2021), scale 0.01 there; GShard (Lepikhin "
                  "et al. 2020)",
        .example = "softmax run load_balancing_loss logits.npy index.npy --scale 0.01",
        INPUTS(balance_in), OUTPUTS(balance_out), PARAMS(scale_params)},
    [GATE_router_z_loss] = {
        .id = 446, .name = "router_z_loss", .family = "gate", .flags = BACKWARD, .tolerance = 32,
        .title = "a loss that keeps the logits of a router small",
        .formula = "loss = scale mean_t lse(logits_t)^2",
        .about = "Tokens without experts are left out of the mean; 0 without tokens. The sum is in "
                 "double.",
        .source = "ST-MoE (Zoph et al. 2022), scale 0.001 there",
        .example = "softmax run router_z_loss logits.npy --scale 0.001",
        INPUTS(z_in), OUTPUTS(z_out), PARAMS(scale_params)},
    [GATE_expert_bias_update] = {
        .id = 447, .name = "expert_bias_update", .family = "gate", .tolerance = 2,
        .title = "balance without a loss: the bias of busy experts falls",
        .formula = "next_e = bias_e + rate sign(mean count - count_e)",
        .about = "A step after each batch, for the bias of gate_topk. No gradient.",
        .source = "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts (Wang et al. "
                  "2024); DeepSeek-V3 (2024), rate 0.001",
        .example = "softmax run expert_bias_update bias.npy count.npy",
        INPUTS(bias_in), OUTPUTS(bias_out), PARAMS(bias_params)},
    [GATE_gate_noisy_topk] = {
        .id = 451, .name = "gate_noisy_topk", .family = "gate", .flags = BACKWARD, .tolerance = 64,
        .title = "the k best experts of each token under noise, and how likely that was",
        .formula = "h = logits + s N, index = the k best of h, w = softmax(h_index), chance = "
                   "Phi((logits - threshold) / s)",
        .about = "N are standard normal numbers of seed, stream and expert. The threshold of an expert "
                 "is the (k + 1)-th largest h, or the k-th where it is not above that; where all are "
                 "chosen chances are 1. The sum of chance over the tokens is the load of an expert, "
                 "that of the weights its importance; importance_loss of either keeps experts busy "
                 "alike. Best is by h, then the smaller number. In double. Without noise at "
                 "evaluation: gate_topk. A logit of -inf is an expert that does not exist; a NaN makes "
                 "its token NaN, with index -1. Gradients: of weights and chances, through noise and "
                 "threshold.",
        .source = "Outrageously Large Neural Networks (Shazeer et al. 2017); M3ViT (Liang et al. 2022; "
                  "VITA-Group/M3ViT), Edge-MoE (Sarkar et al. 2023); without spread: V-MoE (Riquelme "
                  "et al. 2021)",
        .example = "softmax run gate_noisy_topk logits.npy --k 2 --seed 1",
        INPUTS(noisy_in), OUTPUTS(noisy_out), PARAMS(noisy_params)},
    [GATE_moe_gaussian_nll] = {
        .id = 449, .name = "moe_gaussian_nll", .family = "gate", .flags = BACKWARD, .tolerance = 16,
        .title = "negative log-likelihood of a mixture of normal experts",
        .formula = "loss = -log sum_i pi_i N(y; mean_i, s_i), pi = softmax(logits)",
        .about = "In double. An expert with logit -inf is absent (outside the top k, say); without any "
                 "the loss is inf. NaN and a logit of +inf make the token NaN. Gradients, with r_i the "
                 "share of expert i in the sum and q = (y - mean) / s: logits pi - r, mean -r q / s, "
                 "log_s r (1 - q^2), y sum r q / s.",
        .source = "standard; Demystifying Softmax Gating Function in Gaussian Mixture of Experts "
                  "(Nguyen et al. 2023)",
        .example = "softmax run moe_gaussian_nll logits.npy mean.npy log_s.npy y.npy",
        INPUTS(gaussian_in), OUTPUTS(nll_out)},
    [GATE_moe_multinomial_nll] = {
        .id = 450, .name = "moe_multinomial_nll", .family = "gate", .flags = BACKWARD, .tolerance = 64,
        .title = "negative log-likelihood of a mixture of classifiers",
        .formula = "loss = -log sum_i pi_i softmax(scores_i)_target, pi = softmax(logits)",
        .about = "An expert with logit -inf is absent; without any the loss is inf. NaN and a logit of "
                 "+inf make the token NaN. Gradients, with r_i the share of expert i in the sum: "
                 "logits pi - r, scores r_i (softmax(scores_i) - [class is target]).",
        .source = "standard; A General Theory for Softmax Gating Multinomial Logistic Mixture of "
                  "Experts (Nguyen et al. 2023); its gate of bounded features: gate_modified",
        .example = "softmax run moe_multinomial_nll logits.npy scores.npy target.npy",
        INPUTS(multinomial_in), OUTPUTS(nll_out)},
    [GATE_soft_moe] = {
        .id = 448, .name = "soft_moe", .family = "gate", .flags = BACKWARD, .tolerance = 64,
        .title = "Soft MoE: every slot is a mean of tokens, every token one of slots",
        .formula = "dispatch = softmax of z over the tokens, combine = softmax of z over the slots, z "
                   "= gain x^ phi^",
        .about = "x^ = x / sqrt(|x|^2 + 1e-6), phi^ alike; or normalise = no. An expert has some of "
                 "the slots: its input is sum_t dispatch_ts x_t, and y_t = sum_s combine_ts out_s. A "
                 "token that the mask hides has weights 0 in both, and changes nothing; a slot without "
                 "tokens has weights 0. Sums of x phi are those of smx_linear_logits. Gradients of phi "
                 "and gain are sums over all tokens.",
        .source = "From Sparse to Soft Mixtures of Experts (Puigcerver et al. 2023; "
                  "google-research/vmoe); in reinforcement learning: Don't flatten, tokenize! (Sokar "
                  "et al. 2024); of adapters: Soft-MoA (Cappellazzo et al. 2024)",
        .example = "softmax run soft_moe x.npy phi.npy",
        INPUTS(soft_in), OUTPUTS(soft_out), PARAMS(soft_params)},
    [GATE_gate_dense_to_sparse] = {
        .id = 452, .name = "gate_dense_to_sparse", .family = "gate", .flags = BACKWARD, .tolerance = 64,
        .title = "every expert of enough weight; the temperature says how many that are",
        .formula = "p = softmax(gain (a(logits) + bias + G) / temperature), w_i = p_i where p_i >= threshold "
                   "or p_i is the largest",
        .about = "Best is by score, then the smaller number. From a high temperature, where all experts "
                 "learn, down to a low one, where a token has one: the caller lowers it. a is none, tanh, "
                 "sigmoid, gelu (x Phi(x)) or relu; G are Gumbel numbers of seed, stream and expert "
                 "(noise = gumbel). A logit of -inf is an expert that does not exist, whatever the "
                 "activation. A token with a NaN or a score of +inf has NaN weights, index -1 and no "
                 "gradient. In double. Gradients: of the softmax, through the weights of those that stay; "
                 "of bias and gain they are sums over the tokens. Weight and index are what "
                 "moe_permutation and moe_combine take.",
        .source = "EvoMoE (Nie et al. 2021); Is Temperature Sample Efficient for Softmax Gaussian Mixture "
                  "of Experts? (Nguyen, Akbarian, Ho 2024), with its activation gate",
        .example = "softmax run gate_dense_to_sparse logits.npy --temperature 0.5 --threshold 0.05",
        INPUTS(dense_in), OUTPUTS(dense_out), PARAMS(dense_params)},
    [GATE_gate_modified] = {
        .id = 453, .name = "gate_modified", .family = "gate", .flags = BACKWARD, .tolerance = 16,
        .title = "features of a bounded size, for a router",
        .formula = "unit: y = x / max(|x|, 1e-12);  tanh: y = tanh(x)",
        .about = "The modified gate is softmax(W y + b): y goes through the layer of the router, its logits "
                 "to gate_topk or softmax. In double; |x| does not overflow. A NaN makes its row NaN; of an "
                 "infinite element unit is NaN. Gradient of unit: (g - (g y) y) / |x|.",
        .source = "A General Theory for Softmax Gating Multinomial Logistic Mixture of Experts (Nguyen et "
                  "al. 2023), which asks of the transform that it is bounded",
        .example = "softmax run gate_modified x.npy",
        INPUTS(modified_in), OUTPUTS(modified_out), PARAMS(modified_params)},
    [GATE_importance_loss] = {
        .id = 454, .name = "importance_loss", .family = "gate", .flags = BACKWARD, .tolerance = 32,
        .title = "the squared coefficient of variation of what experts have",
        .formula = "loss = scale Var(v) / (mean(v)^2 + 1e-10), v_e = the sum over the tokens of the weights "
                   "of expert e",
        .about = "With weight and index of a gate it is the importance loss, with chance of "
                 "gate_noisy_topk as weight and without index the load loss. Sums are in double, in the "
                 "order of the tokens. One expert has loss 0. Gradient: of the loss with respect to v_e, "
                 "the same for every weight of an expert; of importance too.",
        .source = "Outrageously Large Neural Networks (Shazeer et al. 2017), scale 0.1 there; V-MoE "
                  "(Riquelme et al. 2021), population",
        .example = "softmax run importance_loss weight.npy --index index.npy --experts 64",
        INPUTS(importance_in), OUTPUTS(importance_out), PARAMS(importance_params)},
};
