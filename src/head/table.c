/* head/table.c - the facts about each operator that makes a loss or a choice of what a network ends
 * with: logits of a linear layer, scores of a chain. The command, the bindings, the tests and the
 * manual all read this. */
#include "head.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS
#define INF ((double)__builtin_inf())

enum { GRAD = SMX_PORT_GRAD, SAVED = SMX_PORT_SAVED, OPT = SMX_PORT_OPTIONAL, INT = SMX_PORT_INT };

static const smx_port linear_in[] = {
    {"h", DIMS, GRAD | SAVED, "features, a row for each token or image", "n d"},
    {"w", DIMS, GRAD | SAVED, "the weights of each class", "c d"},
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < c"},
    {"bias", DIMS, OPT | GRAD | SAVED, "added to the logits", "c"},
    {"class_weight", DIMS, OPT | SAVED, "multiplies the loss of each class; positive or 0", "c"},
};
static const smx_port linear_out[] = {
    {"loss", DIMS, 0, "of each row", "n"},
    {"lse", DIMS, OPT, "logsumexp of the scores", "n"},
    {"entropy", DIMS, OPT, "of the weights, in nats", "n"},
    {"class", DIMS, OPT | INT, "the first largest score", "n"},
};
static const smx_port gradient_out[] = {
    {"loss", DIMS, 0, "of each row", "n"},
    {"reduced", DIMS, OPT, "the losses of all rows as one value", ""},
    {"dh", DIMS, OPT, "the gradient of h for the reduced loss", "n d"},
    {"dw", DIMS, OPT, "that of w", "c d"},
    {"dbias", DIMS, OPT, "that of bias", "c"},
};
static const char *const reductions[] = {"none", "sum", "mean", "mean_safe", NULL};
#define LINEAR_IGNORE \
  {"ignore_index", "a row with this target is left out: loss 0, gradient 0", \
   -100, -1e15, 1e15, SMX_PARAM_INT, NULL}
#define LINEAR_LOGITS \
  {"softcap", "logits are c tanh(x / c); inf = none", INF, 1e-30, INF, 0, NULL}, \
      {"temperature", "divides the logits", 1, 1e-30, 1e30, 0, NULL}, \
      {"scale", "multiplies h w^T", 1, -1e30, 1e30, SMX_PARAM_NONZERO, NULL}, \
      {"keep", "MiB of logits that may be in memory at a time; at least 64 rows are", \
       32, 0, 1e6, SMX_PARAM_OPEN_MIN, NULL}
#define LINEAR_PARAMS \
  LINEAR_IGNORE, \
      {"label_smoothing", "mass that is spread evenly over the classes", 0, 0, 1, 0, NULL}, \
      {"z_weight", "adds z_weight lse^2, which keeps logits small; 1e-4 is usual", 0, 0, 1e30, 0, NULL}, \
      LINEAR_LOGITS
static const smx_param linear_params[] = {LINEAR_PARAMS};
static const smx_param gradient_params[] = {
    LINEAR_PARAMS,
    {"reduction", "what `reduced` is (none: as sum); mean_safe: 0 when nothing counts",
     1, 0, 3, SMX_PARAM_INT, reductions},
};

#define CHAIN_IN \
  {"emissions", DIMS, GRAD | SAVED, "scores of the tags of each token", "... l k"}, \
      {"transitions", DIMS, GRAD | SAVED, "a score for a tag, the row, before another, the column", "k k"}
#define CHAIN_ENDS \
  {"start", DIMS, OPT | GRAD | SAVED, "scores of the first token's tag; 0 without", "k"}, \
      {"end", DIMS, OPT | GRAD | SAVED, "scores of the last token's tag; 0 without", "k"}, \
      {"mask", DIMS, SMX_PORT_MASK | OPT | SAVED, "nonzero = the token is there", "... l"}
static const smx_port crf_in[] = {
    CHAIN_IN,
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the tag of each token, or ignore_index", "... l | < k"},
    CHAIN_ENDS};
static const smx_port chain_in[] = {CHAIN_IN, CHAIN_ENDS};
static const smx_port crf_out[] = {
    {"loss", DIMS, 0, "log Z less the score of the target's path", "..."},
    {"log_z", DIMS, 0, "the log-partition function", "..."}};
static const smx_port marginals_out[] = {
    {"y", DIMS, 0, "the probability of each tag", "... l k"},
    {"pairs", DIMS, OPT, "how often each transition is expected", "... k k"},
    {"log_z", DIMS, OPT, "the log-partition function", "..."}};
static const smx_port viterbi_out[] = {
    {"path", DIMS, INT, "the tag of each token; -1 of those that are hidden", "... l"},
    {"score", DIMS, 0, "of the path", "..."}};
static const smx_port k_best_out[] = {
    {"path", DIMS, INT, "the tag of each token; -1 of those that are hidden; p = count", "... p l"},
    {"score", DIMS, 0, "of each path; -inf: there are no more", "... p"}};
static const smx_param k_best_params[] = {
    {"count", "how many paths", 5, 1, 10000, SMX_PARAM_INT, NULL}};
static const smx_param crf_params[] = {
    {"ignore_index", "a token with this target is left out, as one that is hidden",
     -100, -1e15, 1e15, SMX_PARAM_INT, NULL}};
#define CHAIN_FORMULA \
  "s(y) = start_y0 + sum_t e_t,yt + sum_t A_yt,y(t+1) + end_yl,  Z = sum of e^s(y) over all paths y"
#define CRF_SOURCE \
  "Conditional Random Fields (Lafferty, McCallum, Pereira 2001); Investigating Bi-LSTM and CRF with POS " \
  "Tag Embedding for Indonesian Named Entity Tagger (2020)"

#define TREE_ROWS \
  {"h", DIMS, GRAD | SAVED, "features, a row for each token or image", "n d"}, \
      {"w", DIMS, GRAD | SAVED, "the weights of each inner node", "m d"}
#define TREE_NODES \
  {"parent", DIMS, INT | SAVED, "of each node, a later one; classes first, the root last, with -1", "t"}, \
      {"bit", DIMS, INT | SAVED, "nonzero = on the side of sigma(z) of the parent", "t"}, \
      {"bias", DIMS, OPT | GRAD | SAVED, "added to the scores of the inner nodes", "m"}
static const smx_port hierarchical_in[] = {
    TREE_ROWS,
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < c"},
    TREE_NODES};
static const smx_port hierarchical_log_in[] = {TREE_ROWS, TREE_NODES};
static const smx_port hierarchical_out[] = {{"loss", DIMS, 0, "of each row", "n"}};
static const smx_port hierarchical_log_out[] = {{"y", DIMS, 0, "the log-probability of each class", "n c"}};
static const smx_port counts_in[] = {
    {"counts", DIMS, 0, "how often each class is there; positive or 0", "c"}};
static const smx_port huffman_out[] = {
    {"parent", DIMS, INT, "of each class, then of each inner node; -1 of the root, the last", "t"},
    {"bit", DIMS, INT, "0: the rarer of the two; 1: the other", "t"}};
static const smx_param ignore_params[] = {
    {"ignore_index", "a row with this target is left out: loss 0, gradient 0",
     -100, -1e15, 1e15, SMX_PARAM_INT, NULL}};
#define TREE_SOURCE \
  "Hierarchical Probabilistic Neural Network Language Model (Morin, Bengio 2005); Hierarchical Softmax for " \
  "End-to-End Low-resource Multilingual Speech Recognition (2022)"

static const smx_port soft_tree_in[] = {
    {"x", DIMS, GRAD | SAVED, "features, a row for each input", "n d"},
    {"w", DIMS, GRAD | SAVED, "the weights of each inner node, breadth first; m = l - 1", "m d"},
    {"leaf", DIMS, GRAD | SAVED, "the logits of each leaf, from left to right; l = 2^depth", "l k"},
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < k"},
    {"bias", DIMS, OPT | GRAD | SAVED, "added to x w^T", "m"}};
static const smx_port soft_tree_out[] = {
    {"loss", DIMS, 0, "of each row", "n"},
    {"y", DIMS, 0, "the probabilities of the classes: the mean of the leaves", "n k"},
    {"path", DIMS, OPT, "the probability of each leaf", "n l"},
    {"penalty", DIMS, OPT, "for nodes that send all inputs to one side", ""}};
static const char *const tree_forms[] = {"path_ce", "mixture", NULL};
static const smx_param soft_tree_params[] = {
    {"form", "path_ce: the mean of the leaves' losses; mixture: the loss of y", 0, 0, 1, SMX_PARAM_INT,
     tree_forms},
    {"beta", "multiplies the scores of the nodes", 1, -1e30, 1e30, 0, NULL},
    {"ignore_index", "a row with this target has loss 0", -100, -1e15, 1e15, SMX_PARAM_INT, NULL}};

static const smx_port cosine_in[] = {
    {"h", DIMS, GRAD | SAVED, "features, a row for each image or speaker", "n d"},
    {"w", DIMS, GRAD | SAVED, "the direction of each class", "c d"},
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < c"}};
static const char *const beyond_pi[] = {"fold", "linear", "clamp", "none", NULL},
                  *const no_yes[] = {"no", "yes", NULL};
static const smx_param cosine_params[] = {
    {"m1", "multiplies the target's angle", 1, 0, 16, SMX_PARAM_OPEN_MIN, NULL},
    {"m2", "added to the target's angle", 0.5, 0, 3.14159265358979, 0, NULL},
    {"m3", "taken off its cosine", 0, -10, 10, 0, NULL},
    {"scale", "s", 64, 1e-30, 1e30, 0, NULL},
    {"beyond", "pi: the cosine falls on (SphereFace); x - m2 sin m2 (ArcFace); -1; cos",
     0, 0, 3, SMX_PARAM_INT, beyond_pi},
    {"detach", "the margin has no derivative, as in insightface", 0, 0, 1, SMX_PARAM_INT, no_yes},
    {"ignore_index", "a row with this target is left out: loss 0, gradient 0",
     -100, -1e15, 1e15, SMX_PARAM_INT, NULL},
    {"keep", "MiB of cosines that may be in memory at a time; at least 64 rows are",
     32, 0, 1e6, SMX_PARAM_OPEN_MIN, NULL}};

static const smx_port knn_lm_in[] = {
    {"x", DIMS, GRAD | SAVED, "logits of the language model", "n c"},
    {"distance", DIMS, GRAD | SAVED, "of each neighbour; inf = there is none", "n k"},
    {"token", DIMS, INT | SAVED, "the one that followed each neighbour", "n k | < c"}};
static const smx_port knn_lm_out[] = {{"y", DIMS, 0, "log-probabilities", "n c"}};
static const smx_param knn_lm_params[] = {
    {"share", "s, what the neighbours have", 0.25, 0, 1, 0, NULL},
    {"temperature", "divides the distances", 1, 1e-30, 1e30, 0, NULL}};

static const smx_port partial_fc_in[] = {
    {"target", DIMS, INT | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < classes"}};
static const smx_port partial_fc_out[] = {
    {"kept", DIMS, INT, "classes, shard by shard, in their order; m = shards keep", "m"},
    {"moved", DIMS, INT, "where the class of each row is among them, or ignore_index", "n"}};
static const smx_param partial_fc_params[] = {
    {"classes", "of all shards", 1000, 1, 1e12, SMX_PARAM_INT, NULL},
    {"keep", "classes of each shard that take part", 100, 1, 1e12, SMX_PARAM_INT, NULL},
    {"shards", "of the classes, as even as can be, longer ones first", 1, 1, 1e6, SMX_PARAM_INT, NULL},
    {"seed", "of the random numbers", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL},
    {"ignore_index", "a row with this target keeps no class", -100, -1e15, 1e15, SMX_PARAM_INT, NULL}};

static const smx_port sample_in[] = {
    {"target", DIMS, INT | SMX_PORT_TARGET, "the classes of each row, or ignore_index", "n t | < classes"},
    {"counts", DIMS, OPT, "how often each class is there, in place of form; positive or 0", "c"}};
static const smx_port sample_out[] = {
    {"sampled", DIMS, INT, "classes, in the order in which they were drawn; s = count", "s"},
    {"true_expected", DIMS, 0, "how often each target is expected in s draws; 1 of what is ignored", "n t"},
    {"sampled_expected", DIMS, 0, "how often each of `sampled` is", "s"}};
static const char *const sample_forms[] = {"log_uniform", "uniform", NULL};
static const smx_param sample_params[] = {
    {"classes", "there are", 1000, 1, 1e12, SMX_PARAM_INT, NULL},
    {"count", "classes that are drawn", 100, 1, 1e9, SMX_PARAM_INT, NULL},
    {"form", "log((j + 2) / (j + 1)), for classes by falling frequency; or all alike",
     0, 0, 1, SMX_PARAM_INT, sample_forms},
    {"unique", "a class that is there is drawn again", 1, 0, 1, SMX_PARAM_INT, no_yes},
    {"power", "of the counts; 0.75 is word2vec's, 1 makes them frequencies", 0.75, 0, 16, 0, NULL},
    {"seed", "of the random numbers", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL},
    {"ignore_index", "a target that is none", -100, -1e15, 1e15, SMX_PARAM_INT, NULL}};
static const smx_port sampled_in[] = {
    {"h", DIMS, GRAD | SAVED, "features, a row for each token or image", "n d"},
    {"w", DIMS, GRAD | SAVED, "the weights of each class", "c d"},
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the classes of each row, or ignore_index", "n t | < c"},
    {"sampled", DIMS, INT | SAVED, "classes that all rows are compared with", "s | < c"},
    {"bias", DIMS, OPT | GRAD | SAVED, "added to the logits", "c"},
    {"true_expected", DIMS, OPT | SAVED, "how often each target is expected; positive, 1 without", "n t"},
    {"sampled_expected", DIMS, OPT | SAVED, "how often each of `sampled` is; positive, 1 without", "s"}};
#define SAMPLED_PARAMS(hits) \
  {"remove_hits", "classes of a row are no others of it", hits, 0, 1, SMX_PARAM_INT, no_yes}, \
      {"ignore_index", "a target that is none; a row of these has loss 0, gradient 0", \
       -100, -1e15, 1e15, SMX_PARAM_INT, NULL}
static const smx_param sampled_params[] = {SAMPLED_PARAMS(1)}, nce_params[] = {SAMPLED_PARAMS(0)};
#define SAMPLED_FORMULA "x_j = h w_j + bias_j - log expected_j, y the T targets of a row"

static const smx_port token_in[] = {
    {"z", DIMS, GRAD | SAVED, "logits", "... v"},
    {"e", DIMS, GRAD | SAVED, "the codebook, a row for each token", "v d"}};
static const smx_port token_out[] = {{"y", DIMS, 0, "the mean of the codebook", "... d"}};
static const smx_param token_params[] = {
    {"temperature", "divides the logits; 0 = the row of the largest; the paper's factor is 1 / T",
     1, 0, 1e30, 0, NULL}};

static const smx_port vq_in[] = {
    {"h", DIMS, GRAD | SAVED, "features, a row for each token or image", "n d"},
    {"code", DIMS, GRAD | SAVED, "the weights of each code", "k d"},
    {"map", DIMS, INT | SAVED, "the code of each class", "c | < k"},
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < c"},
    {"bias", DIMS, OPT | GRAD | SAVED, "of each class, added to the logit of its code", "c"}};

static const smx_port fusion_in[] = {
    {"x", DIMS, GRAD | SAVED, "logits of the decoder", "... c"},
    {"source", DIMS, GRAD | SAVED, "logits from the embeddings of the source", "... c"},
    {"share", DIMS, OPT | GRAD | SAVED, "g of each row, a probability; in place of gate", "..."}};
static const smx_port fusion_out[] = {{"y", DIMS, 0, "hard: logarithms; soft: log-probabilities", "... c"}};
static const char *const fusion_forms[] = {"hard", "soft", NULL};
static const smx_param fusion_params[] = {
    {"form", "a mean of logarithms; a softmax of the sum", 0, 0, 1, SMX_PARAM_INT, fusion_forms},
    {"gate", "g, the decoder's share (hard)", 0.8, 0, 1, 0, NULL},
    {"kappa", "k, multiplies the source's logits (soft); the paper has 1 and 5", 1, 0, 1e30, 0, NULL}};

static const smx_port memory_in[] = {
    {"query", DIMS, GRAD | SAVED, "of each head; d = 2 e", "... h d"},
    {"keys", DIMS, GRAD | SAVED, "m for each head and half of a query", "h 2 m e"},
    {"values", DIMS, GRAD | SAVED, "that of keys i and j is row i m + j; v = m m", "v o"}};
static const smx_port memory_out[] = {
    {"y", DIMS, 0, "the mean of the chosen values, heads added up", "... o"},
    {"index", DIMS, INT, "the values that were chosen, the best first", "... h k"},
    {"weight", DIMS, 0, "their weights", "... h k"}};
static const smx_param memory_params[] = {
    {"k", "values that a head chooses", 32, 1, 1e6, SMX_PARAM_INT, NULL}};

static const smx_port reduce_in[] = {
    {"h", DIMS, GRAD | SAVED, "features, a row for each token or image", "n d"},
    {"w", DIMS, GRAD | SAVED, "the weights of each class", "c d"},
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < c"},
    {"sampled", DIMS, INT | SAVED, "classes that all rows are compared with", "s | < c"},
    {"bias", DIMS, OPT | GRAD | SAVED, "added to the logits", "c"},
    {"latent", DIMS, OPT | GRAD | SAVED, "softmax: eta of each row, positive; others: u", "n"},
    {"weight", DIMS, OPT | SAVED, "of each of `sampled`, in place of f: 1 / (s P_j); positive", "s"}};
static const smx_port reduce_out[] = {
    {"loss", DIMS, 0, "of each row, no less than minus its log-probability, in the mean", "n"},
    {"sum", DIMS, 0, "s of each row, for a running mean of eta - 1; logistic: the sum", "n"}};
static const char *const reduce_forms[] = {"softmax", "logistic", "probit", NULL};
static const smx_param reduce_params[] = {
    {"form", "which model has the classes", 0, 0, 2, SMX_PARAM_INT, reduce_forms},
    {"ignore_index", "a row with this target is left out: loss 0, gradient 0",
     -100, -1e15, 1e15, SMX_PARAM_INT, NULL}};

static const smx_port fourier_in[] = {
    {"x", DIMS, GRAD | SAVED, "the real parts of a_0..a_N, then the imaginary ones; f = 2 N + 2", "... f"}};
static const smx_port fourier_out[] = {
    {"y", DIMS, 0, "logits of the bins, logarithms of their shares", "... m"},
    {"penalty", DIMS, 0, "for fast waves: twice the sum of 2 pi^2 k^2 |c_k|^2", "..."}};
static const smx_param fourier_params[] = {
    {"bins", "m, of -1..1", 100, 1, 1e9, SMX_PARAM_INT, NULL},
    {"eps", "added to the shares", 1e-5, 0, 1, 0, NULL}};

static const smx_port factored_rows_in[] = {{"v", DIMS, 0, "a row for each class", "c d"}};
static const smx_port factored_weights_in[] = {
    {"v", DIMS, 0, "a row for each class", "c d"},
    {"state", DIMS, 0, "of the layer; r = 3 d + 2", "r d"}};
static const smx_port factored_state_out[] = {
    {"state", DIMS, 0, "U, U^-T, Q, omega and sums, one below the other; r = 3 d + 2", "r d"}};
static const smx_port factored_weights_out[] = {{"w", DIMS, 0, "the weights of each class", "c d"}};
#define FACTORED_IN \
  {"h", DIMS, GRAD | SAVED, "features, a row for each token or image", "n d"}, \
      {"v", DIMS, SAVED, "a row for each class", "c d"}, \
      {"state", DIMS, SAVED, "of the layer; r = 3 d + 2", "r d"}, \
      {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "classes of each row, or ignore_index", \
       "n t | < c"}, \
      {"value", DIMS, OPT | SAVED, "of each target; 1 without", "n t"}
static const smx_port factored_in[] = {FACTORED_IN},
                      factored_step_in[] = {FACTORED_IN, {"grad", DIMS, OPT, "of each loss; 1 without", "n"}};
static const smx_port factored_step_out[] = {
    {"loss", DIMS, 0, "of each row, before the step", "n"},
    {"dh", DIMS, 0, "the gradient of h", "n d"},
    {"rows", DIMS, 0, "what becomes of the rows of v that are targets; 0 of what is ignored", "n t d"},
    {"next", DIMS, 0, "the state after the step", "r d"},
    {"condition", DIMS, 0, "|U| |U^-1| / d, 1 or more: where it is large, or no number, begin anew", ""}};
static const char *const spheres[] = {"z_loss", "mse", "log_spherical", "log_taylor", NULL};
#define FACTORED_PARAMS \
  {"form", "of the loss, as in z_loss and spherical_loss", 0, 0, 3, SMX_PARAM_INT, spheres}, \
      {"a", "steepness (z_loss)", 1, 0, 1e6, SMX_PARAM_OPEN_MIN, NULL}, \
      {"b", "how many deviations above the mean a target should be (z_loss)", 0, -1e6, 1e6, 0, NULL}, \
      {"epsilon", "e: 1e-12 is usual in z_loss, 1e-2 in log_spherical", 1e-2, 1e-300, 1e30, 0, NULL}, \
      {"ignore_index", "a target that is none; a row of these has loss 0, gradient 0", \
       -100, -1e15, 1e15, SMX_PARAM_INT, NULL}
static const smx_param factored_params[] = {FACTORED_PARAMS},
                       factored_step_params[] = {FACTORED_PARAMS,
                                                 {"lr", "the rate of learning", 0.1, -1e30, 1e30, 0, NULL}};
#define FACTORED_SOURCE \
  "Efficient Exact Gradient Update for Training Deep Networks with Very Large Sparse Targets (Vincent, de " \
  "Brebisson, Bouthillier 2015); The Z-loss (de Brebisson, Vincent 2016)"

#define ADAPTIVE_IN \
  {"h", DIMS, GRAD | SAVED, "features, a row for each token or image", "n d"}, \
      {"w", DIMS, GRAD | SAVED, "a row for each class before the first cutoff, then each cluster", "s d"}, \
      {"projection", DIMS, GRAD | SAVED, "those of the clusters, one below the other", "p d"}, \
      {"tail", DIMS, GRAD | SAVED, "their weights [classes, width], one behind the other", "q"}, \
      {"cutoff", DIMS, INT | SAVED, "the first class of each cluster, rising, above 0", "k"}
#define ADAPTIVE_MORE \
  {"bias", DIMS, OPT | GRAD | SAVED, "of the rows of w", "s"}, \
      {"width", DIMS, OPT | INT | SAVED, "columns of each cluster's tail, in place of div_value", "k"}
static const smx_port adaptive_in[] = {
    ADAPTIVE_IN,
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index",
     "n | < classes"},
    ADAPTIVE_MORE};
static const smx_port adaptive_log_in[] = {ADAPTIVE_IN, ADAPTIVE_MORE};
static const smx_port adaptive_log_out[] = {{"y", DIMS, 0, "the log-probability of each class", "n c"}};
#define ADAPTIVE_PARAMS \
  {"classes", "of all clusters and before them", 1000, 1, 1e12, SMX_PARAM_INT, NULL}, \
      {"div_value", "cluster i = 1, 2... has d / div_value^i columns, rounded down", \
       4, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL}, \
      {"keep", "MiB of logits that may be in memory at a time; at least 64 rows are", \
       32, 0, 1e6, SMX_PARAM_OPEN_MIN, NULL}
static const smx_param adaptive_params[] = {
    ADAPTIVE_PARAMS,
    {"ignore_index", "a row with this target is left out: loss 0, gradient 0",
     -100, -1e15, 1e15, SMX_PARAM_INT, NULL}};
static const smx_param adaptive_log_params[] = {ADAPTIVE_PARAMS};
static const smx_port basis_in[] = {
    {"w", DIMS, 0, "a head: its shape and type are those of the basis; no number is read", "n d"}};
static const smx_port basis_out[] = {
    {"basis", DIMS, 0, "unit rows, a direction for each class", "n d"},
    {"largest", DIMS, 0, "the largest |cosine| of two rows", ""},
    {"welch", DIMS, OPT, "what that cannot be below: 0, or sqrt((n - d) / (d (n - 1)))", ""}};
static const char *const basis_forms[] = {"equiangular", "simplex", NULL};
static const smx_param basis_params[] = {
    {"form", "equiangular: |cosines| are small; simplex: they are -1 / (n - 1), n <= d + 1",
     0, 0, 1, SMX_PARAM_INT, basis_forms},
    {"bound", "that no |cosine| is above by more than 1e-4, or it is an error; 0 = none", 0, 0, 1, 0, NULL},
    {"steps", "of descent at most, where n > d + 1", 200, 0, 1e9, SMX_PARAM_INT, NULL},
    {"seed", "of the random numbers", 0, 0, 9007199254740992.0, SMX_PARAM_INT, NULL}};

static const smx_port mixture_in[] = {
    {"h", DIMS, GRAD | SAVED, "features of each component of each row", "n k d"},
    {"prior", DIMS, GRAD | SAVED, "the logits of the components of each row", "n k"},
    {"w", DIMS, GRAD | SAVED, "the weights of each class", "c d"},
    {"target", DIMS, INT | SAVED | SMX_PORT_TARGET, "the class of each row, or ignore_index", "n | < c"},
    {"bias", DIMS, OPT | GRAD | SAVED, "added to the logits", "c"},
    {"class_weight", DIMS, OPT | SAVED, "multiplies the loss of each class; positive or 0", "c"}};
static const smx_port mixture_out[] = {
    {"loss", DIMS, 0, "of each row", "n"},
    {"component", DIMS, OPT | SAVED | SMX_PORT_STATE, "the loss of each component by itself; saves the "
     "gradient from forming logits once more", "n k"}};
static const smx_param mixture_params[] = {LINEAR_IGNORE, LINEAR_LOGITS};

#define SOURCE \
  "Cut Your Losses in Large-Vocabulary Language Models (Wijmans et al. 2024); Liger Kernel (Hsu et al. " \
  "2024); torch.nn.functional.linear_cross_entropy"
#define FORMULA "loss = cross_entropy(z, target),  z = c tanh(x / c) / T,  x = scale h w^T + bias"

const smx_op head_table[HEAD_COUNT] = {
    [HEAD_linear_cross_entropy] = {
        .id = 437, .name = "linear_cross_entropy", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 32,
        .title = "cross-entropy of a linear layer whose logits are not kept",
        .formula = FORMULA,
        .about = "The head of a language model or a classifier in memory that does not grow with the "
                 "product of rows and classes: logits of some rows are formed, used, and formed again for "
                 "the gradient. The loss has the bits of cross_entropy of the same logits, however many "
                 "rows are kept. A class weight multiplies its part of the loss. Gradients: dh = scale dz w, "
                 "dw = scale dz^T h, dbias = sum dz; linear_cross_entropy_gradient has them for less. From "
                 "C, smx_linear_forward takes any operator on rows in place of cross_entropy.",
        .source = SOURCE,
        .example = "softmax run linear_cross_entropy features.npy head.npy labels.npy",
        INPUTS(linear_in), OUTPUTS(linear_out), PARAMS(linear_params)},
    [HEAD_linear_cross_entropy_gradient] = {
        .id = 438, .name = "linear_cross_entropy_gradient", .family = "head", .tolerance = 32,
        .title = "a reduced cross-entropy of a linear layer and its gradients in one walk",
        .formula = FORMULA ";  reduced = sum loss, or their mean",
        .about = "For a step of training: logits of some rows are formed once, for loss and gradients alike, "
                 "which takes 6 n c d operations; linear_cross_entropy and its gradient take 8. A mean "
                 "divides by the class weights of the targets that count.",
        .source = SOURCE,
        .example = "softmax run linear_cross_entropy_gradient features.npy head.npy labels.npy --reduction "
                   "mean",
        INPUTS(linear_in), OUTPUTS(gradient_out), PARAMS(gradient_params)},
    [HEAD_linear_chain_crf] = {
        .id = 525, .name = "linear_chain_crf", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 16,
        .title = "minus the log-likelihood of the tags of a sequence, in a random field on a chain",
        .formula = CHAIN_FORMULA ";  loss = log Z - s(target)",
        .about = "Tags that depend on their neighbours: named entities, parts of speech, segments. "
                 "Gradients are probabilities less what is there. Hidden tokens are left out, wherever "
                 "they are: the tokens beside them are neighbours. Sums over paths are formed in double "
                 "with a scale for each token, and by logarithms where numbers would be below 2^-500 of "
                 "the largest, so that no length or range of scores loses a path; -inf forbids a "
                 "transition or a tag. A sequence of no tokens has loss 0 and log_z 0, one of which no "
                 "path is possible loss 0 and log_z -inf.",
        .source = CRF_SOURCE,
        .example = "softmax run linear_chain_crf emissions.npy transitions.npy tags.npy",
        INPUTS(crf_in), OUTPUTS(crf_out), PARAMS(crf_params)},
    [HEAD_crf_marginals] = {
        .id = 526, .name = "crf_marginals", .family = "head", .tolerance = 16,
        .title = "the probability of each tag of each token, in a random field on a chain",
        .formula = CHAIN_FORMULA ";  y_tj = P(y_t = j)",
        .about = "By the forward and backward sums of linear_chain_crf, of which y is the gradient of "
                 "log_z by the emissions. `pairs` are summed over the tokens. Hidden tokens have 0, and so"
                 " may what is below 2^-100.",
        .source = CRF_SOURCE,
        .example = "softmax run crf_marginals emissions.npy transitions.npy",
        INPUTS(chain_in), OUTPUTS(marginals_out)},
    [HEAD_crf_viterbi] = {
        .id = 527, .name = "crf_viterbi", .family = "head", .tolerance = 16,
        .title = "the best path of tags, in a random field on a chain",
        .formula = "path = argmax_y s(y),  " CHAIN_FORMULA,
        .about = "Where paths are equally good, the lowest last tag, and the lowest tag before each. A "
                 "sequence of which no path is possible has -1 everywhere, and the score -inf.",
        .source = "Error Bounds for Convolutional Codes and an Asymptotically Optimum Decoding Algorithm "
                  "(Viterbi 1967); " CRF_SOURCE,
        .example = "softmax run crf_viterbi emissions.npy transitions.npy",
        INPUTS(chain_in), OUTPUTS(viterbi_out)},
    [HEAD_crf_k_best] = {
        .id = 639, .name = "crf_k_best", .family = "head", .tolerance = 16,
        .title = "the best paths of tags, in a random field on a chain, in their order",
        .formula = "the count paths y of the largest s(y),  " CHAIN_FORMULA,
        .about = "By lists of the best paths to each tag of each token, whose order is that of sums of "
                 "doubles. Of paths that are equally good the first has the lowest last tag, and the lowest"
                 " tag before each. Places beyond the number of paths, and of possible ones, have the tags "
                 "-1 and the score -inf. Time grows with count, memory with tokens and tags times count.",
        .source = "List Viterbi Decoding Algorithms with Applications (Seshadri, Sundberg 1994); " CRF_SOURCE,
        .example = "softmax run crf_k_best emissions.npy transitions.npy --count 3",
        INPUTS(chain_in), OUTPUTS(k_best_out), PARAMS(k_best_params)},
    [HEAD_hierarchical_softmax] = {
        .id = 528, .name = "hierarchical_softmax", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 16,
        .title = "minus the log-probability of a class that is the leaf of a tree",
        .formula = "loss = sum of softplus(-s_i z_i) over the nodes i above the target,  z = h w^T + bias,"
                   "  s_i = 1 where the bit is set, else -1",
        .about = "As many scores a row as the path to its class has nodes: with huffman_tree about the "
                 "entropy of the classes in bits, instead of all classes. Any binary tree whose nodes come"
                 " before their parents will do. Gradients touch the nodes of paths that are there. Sums "
                 "are formed in double.",
        .source = TREE_SOURCE,
        .example = "softmax run hierarchical_softmax features.npy nodes.npy labels.npy parent.npy bit.npy",
        INPUTS(hierarchical_in), OUTPUTS(hierarchical_out), PARAMS(ignore_params)},
    [HEAD_hierarchical_log_softmax] = {
        .id = 529, .name = "hierarchical_log_softmax", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 16,
        .title = "log-probabilities of all classes that are the leaves of a tree",
        .formula = "y_k = -sum of softplus(-s_i z_i) over the nodes i above k,  z = h w^T + bias,  s_i = 1"
                   " where the bit is set, else -1",
        .about = "All that hierarchical_softmax could be asked for, for choices and samples. Their "
                 "exponentials sum to 1 where every inner node has two children, with bits 0 and 1.",
        .source = TREE_SOURCE,
        .example = "softmax run hierarchical_log_softmax features.npy nodes.npy parent.npy bit.npy",
        INPUTS(hierarchical_log_in), OUTPUTS(hierarchical_log_out)},
    [HEAD_huffman_tree] = {
        .id = 530, .name = "huffman_tree", .family = "head", .tolerance = 1,
        .title = "the tree whose paths are shortest for classes that are so frequent",
        .formula = "the two nodes of the least counts become the children of a new one, until one is left",
        .about = "For hierarchical_softmax: classes are nodes 0..c-1, inner nodes follow in the order in "
                 "which they are made, so that row i of w belongs to node c + i. Ties go to the lower "
                 "node.",
        .source = "A Method for the Construction of Minimum-Redundancy Codes (Huffman 1952)",
        .example = "softmax run huffman_tree counts.npy",
        INPUTS(counts_in), OUTPUTS(huffman_out)},
    [HEAD_soft_decision_tree] = {
        .id = 531, .name = "soft_decision_tree", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 16,
        .title = "a decision tree whose nodes send an input to both sides, with probabilities",
        .formula = "p_i = sigma(beta (x w_i + bias_i)) to the right,  P_l = prod of p_i or 1 - p_i,  Q_l = "
                   "softmax(leaf_l);  loss = -sum_l P_l log Q_ly, or -log sum_l P_l Q_ly",
        .about = "A head that can be read: what is asked at each node, and which classes a leaf has. y is "
                 "the mean of the leaves; the likeliest leaf is the largest of `path`. penalty = -sum_i "
                 "2^-depth(i) (log a_i + log(1 - a_i)) / 2, a_i = sum P_i p_i / sum P_i over all rows, "
                 "ignored ones too, within 1e-7 of 0 and 1: it is to be multiplied by the caller's weight "
                 "and added. In double, with logarithms of P for the mixture.",
        .source = "Distilling a Neural Network Into a Soft Decision Tree (Frosst, Hinton 2017)",
        .example = "softmax run soft_decision_tree features.npy nodes.npy leaves.npy labels.npy --form "
                   "mixture",
        INPUTS(soft_tree_in), OUTPUTS(soft_tree_out), PARAMS(soft_tree_params)},
    [HEAD_cosine_margin] = {
        .id = 533, .name = "cosine_margin", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 64,
        .title = "margin_softmax of the cosines of features and classes, which are not kept",
        .formula = "loss = margin_softmax(x, target),  x_j = h w_j / (|h| |w_j|)",
        .about = "Faces, speakers, products: heads of many classes whose directions count. Rows of h and w"
                 " are made unit rows, in double, and cosines are formed as linear_cross_entropy forms "
                 "logits, some rows at a time. Gradients are those of h and w as they are, across their "
                 "directions. A row shorter than 1e-12 is divided by that. m2 = 0 without other margins: "
                 "NormFace.",
        .source = "NormFace (Wang et al. 2017); ArcFace (Deng et al. 2019); CosFace (Wang et al. 2018); "
                  "SphereFace (Liu et al. 2017); Hyperspherical embedding for novel class classification "
                  "(2021)",
        .example = "softmax run cosine_margin features.npy head.npy labels.npy",
        INPUTS(cosine_in), OUTPUTS(hierarchical_out), PARAMS(cosine_params)},
    [HEAD_knn_lm] = {
        .id = 534, .name = "knn_lm", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "a language model mixed with the tokens that followed similar contexts",
        .formula = "y_j = log((1 - s) softmax(x)_j + s sum_(token_i = j) w_i),  w = softmax(-distance / T)",
        .about = "Log-probabilities of all tokens, for nll_loss or a choice. The distances are those of a "
                 "search, squared, or negative products; the paper's finding is that T matters. Sums are "
                 "formed in the order of the neighbours, in double, and mixed as logarithms. A row of "
                 "which no neighbour is there is the model's alone; a token that has none keeps (1 - s) of"
                 " it.",
        .source = "Generalization through Memorization: Nearest Neighbor Language Models (Khandelwal et "
                  "al. 2020); Why do Nearest Neighbor Language Models Work? (Xu, Alon, Neubig 2023)",
        .example = "softmax run knn_lm logits.npy distances.npy tokens.npy --share 0.2 --temperature 10",
        INPUTS(knn_lm_in), OUTPUTS(knn_lm_out), PARAMS(knn_lm_params)},
    [HEAD_partial_fc] = {
        .id = 550, .name = "partial_fc", .family = "head", .tolerance = 1,
        .title = "classes for a step of training: those of the rows, and some others by chance",
        .formula = "kept = of each shard the classes of targets, and those of the least u_j, keep in all;  "
                   "u_j = a random number of seed, shard and class",
        .about = "For millions of identities: a step takes rows kept of the weights, w[kept], and moved as "
                 "its targets, in a loss such as cosine_margin; other weights stay as they are. With "
                 "keep as many as a shard has, nothing is left out. Every rank that holds a shard finds "
                 "the classes of all of them, so nothing has to be sent. A shard with more classes "
                 "of targets than keep is an error (the paper keeps more of them then). No gradient.",
        .source = "Partial FC: Training 10 Million Identities on a Single Machine (An et al. 2020), which "
                  "keeps a tenth",
        .example = "softmax run partial_fc labels.npy --classes 1000 --keep 100",
        INPUTS(partial_fc_in), OUTPUTS(partial_fc_out), PARAMS(partial_fc_params)},
    [HEAD_sample_classes] = {
        .id = 605, .name = "sample_classes", .family = "head", .tolerance = 32,
        .title = "classes by chance, for sampled_softmax and nce_loss, and how often they are expected",
        .formula = "P_j = log((j + 2) / (j + 1)) / log(classes + 1), 1 / classes, or counts_j^power over "
                   "their sum;  expected_j = count P_j, or 1 - (1 - P_j)^T after T > count draws",
        .about = "What TensorFlow's candidate samplers give, by Philox: the same for any threads and "
                 "machine. `unique` draws until there are count different classes, T times, and "
                 "takes that as if T were fixed, as TensorFlow does. Draws that find no new class for "
                 "long (1000 count + 10^6 in all) are an error. A class of count 0 is never drawn. No "
                 "gradient.",
        .source = "On Using Very Large Target Vocabulary for Neural Machine Translation (Jean et al. 2015);"
                  " TensorFlow's tf.random.log_uniform_candidate_sampler",
        .example = "softmax run sample_classes classes.npy --classes 1000 --count 20",
        INPUTS(sample_in), OUTPUTS(sample_out), PARAMS(sample_params)},
    [HEAD_sampled_softmax] = {
        .id = 606, .name = "sampled_softmax", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "cross-entropy of a linear layer among the classes of a row and some others",
        .formula = "loss = sum_y (lse - x_y) / T,  lse = log(sum_y e^x_y + sum_sampled e^x_j),  "
                   SAMPLED_FORMULA,
        .about = "A step of training over a large vocabulary that touches few rows of w; at the end "
                 "linear_cross_entropy says the loss. sample_classes draws the others; with all other "
                 "classes, once each, it is cross-entropy. Scores of the others are formed some rows at a "
                 "time, as linear_cross_entropy forms them, those of targets in double. A class that is "
                 "among the others twice counts twice.",
        .source = "On Using Very Large Target Vocabulary for Neural Machine Translation (Jean et al. 2015);"
                  " TensorFlow's tf.nn.sampled_softmax_loss",
        .example = "softmax run sampled_softmax features.npy head.npy classes.npy others.npy",
        INPUTS(sampled_in), OUTPUTS(hierarchical_out), PARAMS(sampled_params)},
    [HEAD_nce_loss] = {
        .id = 607, .name = "nce_loss", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "noise-contrastive estimation: the classes of a row told from noise",
        .formula = "loss = sum_y (softplus(-x_y) / T + (1 - 1 / T) softplus(x_y)) + sum_sampled "
                   "softplus(x_j),  " SAMPLED_FORMULA,
        .about = "Logits learn to be log-probabilities by themselves, without a sum over the classes. "
                 "Without the expected counts it is the negative sampling of word2vec. Everything else is "
                 "as in sampled_softmax; others that are classes of a row stay, unless remove_hits is set.",
        .source = "Noise-contrastive estimation (Gutmann, Hyvarinen 2010); A Fast and Simple Algorithm for"
                  " Training Neural Probabilistic Language Models (Mnih, Teh 2012); TensorFlow's "
                  "tf.nn.nce_loss",
        .example = "softmax run nce_loss features.npy head.npy classes.npy others.npy",
        INPUTS(sampled_in), OUTPUTS(hierarchical_out), PARAMS(nce_params)},
    [HEAD_soft_token_expectation] = {
        .id = 608, .name = "soft_token_expectation", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 32,
        .title = "the mean of a codebook under a row of logits, in place of one of its rows",
        .formula = "y = sum_j p_j e_j,  p = softmax(z / T)",
        .about = "A token between tokens, so that what is decoded from it has a gradient. Products are "
                 "those of linear_cross_entropy, with p in memory. Every number of the codebook is read; a "
                 "part of the vocabulary is a slice of z and of e. A row without tokens gives zeros. For "
                 "lists of tokens instead of rows: smx_mix_embeddings.",
        .source = "All in Tokens: Unifying Output Space of Visual Tasks via Soft Token (Ning et al. 2023)",
        .example = "softmax run soft_token_expectation logits.npy codebook.npy --temperature 1.25",
        INPUTS(token_in), OUTPUTS(token_out), PARAMS(token_params)},
    [HEAD_vq_logits_head] = {
        .id = 609, .name = "vq_logits_head", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "cross-entropy where the classes of a code share its logit",
        .formula = "loss = lse_k(l_k + log n_k) - l_m(y) - bias_y,  l = h code^T,  n_k = sum_(m(v) = k) "
                   "e^bias_v,  m = map",
        .about = "As many logits as codes, whatever the vocabulary, and no row of classes anywhere: the "
                 "loss is that of the logits l_m(v) + bias_v. Without bias classes of one code are alike, "
                 "as in the paper; bias tells them apart by frequency. A code with no class is never "
                 "chosen. To choose a class, take a code by l + log n, and a class of it by its bias.",
        .source = "VQ-Logits: Compressing the Output Bottleneck of Large Language Models via Vector "
                  "Quantized Logits (2025), without bias; log n in place of scattered logits is ours",
        .example = "softmax run vq_logits_head features.npy codes.npy map.npy labels.npy",
        INPUTS(vq_in), OUTPUTS(hierarchical_out), PARAMS(ignore_params)},
    [HEAD_surface_fusion] = {
        .id = 610, .name = "surface_fusion", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 32,
        .title = "the logits of a decoder and of its source's embeddings as one distribution",
        .formula = "hard: y = g log softmax(x) + (1 - g) log softmax(source);  soft: y = log softmax(x + k "
                   "source)",
        .about = "For a translation that stays near its source. Hard is a mean of logarithms, whose "
                 "exponentials sum to less than 1; soft is the same as adding log softmax(k source) to x or"
                 " to log softmax(x). What either row rules out by -inf is ruled out, unless that row has "
                 "no share. For nll_loss or a choice.",
        .source = "Understanding and Improving Encoder Layer Fusion in Sequence-to-Sequence Learning (Liu "
                  "et al. 2021)",
        .example = "softmax run surface_fusion logits.npy source.npy --gate 0.7",
        INPUTS(fusion_in), OUTPUTS(fusion_out), PARAMS(fusion_params)},
    [HEAD_product_key_memory] = {
        .id = 611, .name = "product_key_memory", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 32,
        .title = "a mean of the best of m^2 values, which two sets of m keys find",
        .formula = "y = sum over heads and the best k of w_ij v_(i m + j),  w = softmax(s),  s_ij = q1 key1_i"
                   " + q2 key2_j,  q = (q1, q2)",
        .about = "A layer of a million values for the cost of two thousand keys: the best k of all are "
                 "among the best k of either half. Nothing divides the scores. Of equal scores the lower "
                 "number is first. A head with a score that is no finite number makes its row NaN, with "
                 "indices -1. Gradients touch what was chosen. A gate, or a projection of y, is the "
                 "caller's.",
        .source = "Large Memory Layers with Product Keys (Lample et al. 2019); Memory Layers at Scale "
                  "(Berges et al. 2024)",
        .example = "softmax run product_key_memory query.npy keys.npy values.npy --k 4",
        INPUTS(memory_in), OUTPUTS(memory_out), PARAMS(memory_params)},
    [HEAD_augment_and_reduce] = {
        .id = 612, .name = "augment_and_reduce", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "bounds of a cross-entropy whose sum over the classes may be sampled",
        .formula = "softmax: log eta - 1 + (1 + s) / eta,  s = f sum_j e^(x_j - x_y);  logistic: u + 2 "
                   "softplus(-u) + f sum_j softplus(x_j - x_y - u);  probit: u^2 / 2 + log(2 pi) / 2 - f "
                   "sum_j log Phi(u + x_y - x_j);  x = h w^T + bias,  f = (c - 1) / (others of the row)",
        .about = "A number of each training row makes the loss a sum over classes, of which a few others "
                 "stand for all: its mean is the bound. The least is at eta = 1 + s, so keep eta - 1 as a "
                 "running mean of `sum`. Without latent, softmax is Botev's estimator log(1 + s), "
                 "and logistic the one-vs-each bound. u is a sample of its posterior, whose entropy "
                 "the caller subtracts. Others that are the class of a row are none of it. Where the others "
                 "are drawn unevenly, weight them by how seldom they are: sampled_expected of "
                 "sample_classes, inverted.",
        .source = "Augment and Reduce: Stochastic Inference for Large Categorical Distributions (Ruiz, "
                  "Titsias, Dieng, Blei 2018); One-vs-Each Approximation to Softmax (Titsias 2016); "
                  "Complementary Sum Sampling (Botev et al. 2017)",
        .example = "softmax run augment_and_reduce features.npy head.npy labels.npy others.npy",
        INPUTS(reduce_in), OUTPUTS(reduce_out), PARAMS(reduce_params)},
    [HEAD_fourier_head] = {
        .id = 613, .name = "fourier_head", .family = "head", .flags = SMX_OP_BACKWARD, .tolerance = 64,
        .title = "logits of bins from the coefficients of a Fourier series",
        .formula = "y_j = log(P_j + eps),  P_j = |A_j|^2 / sum |A|^2,  A_j = sum_l a_l e^(i pi l b_j),  b_j "
                   "= (2 j + 1) / m - 1",
        .about = "For classes that are values in order: a density that is as smooth as it has few waves, "
                 "where a linear layer gives each class a logit of its own. The coefficients come from a "
                 "linear layer of 2 N + 2 outputs; the penalty is to be averaged over the rows and "
                 "multiplied by the caller's weight, c_k = sum_l a_(l + k) conj(a_l). N below m / 2 tells "
                 "all waves apart. A row of zeros is an even density, without a gradient.",
        .source = "Fourier Head: Helping Large Language Models Learn Complex Probability Distributions "
                  "(Gillman et al. 2024)",
        .example = "softmax run fourier_head coefficients.npy --bins 20",
        INPUTS(fourier_in), OUTPUTS(fourier_out), PARAMS(fourier_params)},
    [HEAD_factored_spherical_state] = {
        .id = 626, .name = "factored_spherical_state", .family = "head", .tolerance = 32,
        .title = "the state of a layer of very many classes, for steps whose cost is not theirs",
        .formula = "U = I,  Q = v^T v,  omega = 0,  sums = sum of the rows of v",
        .about = "The beginning of factored_spherical_head, with v the weights of the layer; and the way "
                 "back after many steps, with v from factored_spherical_weights. This reads all of v; "
                 "steps do not. State and v in double keep errors small for thousands of steps. No "
                 "gradient.",
        .source = FACTORED_SOURCE,
        .example = "softmax run factored_spherical_state head.npy",
        INPUTS(factored_rows_in), OUTPUTS(factored_state_out)},
    [HEAD_factored_spherical_weights] = {
        .id = 627, .name = "factored_spherical_weights", .family = "head", .tolerance = 32,
        .title = "the weights of a layer that is kept as factors",
        .formula = "w = v U + 1 omega^T",
        .about = "For what needs all classes: a test, a file, a new state. Some rows of v give those of w. "
                 "No gradient.",
        .source = FACTORED_SOURCE,
        .example = "softmax run factored_spherical_weights head.npy state.npy",
        INPUTS(factored_weights_in), OUTPUTS(factored_weights_out)},
    [HEAD_factored_spherical_head] = {
        .id = 628, .name = "factored_spherical_head", .family = "head", .flags = SMX_OP_BACKWARD,
        .tolerance = 64,
        .title = "a loss of the spherical family of a layer, in d^2 operations a row for any classes",
        .formula = "loss = f(o_y, q, s),  o = w h,  w = v U + 1 omega^T,  q = |o|^2 = h^T Q h,  s = sum o = "
                   "sums h",
        .about = "z_loss, or spherical_loss: what depends on the classes only through sum and squares. A "
                 "row may have several classes: their losses times their values are added; mse is |o - "
                 "y|^2, y the values at their classes. Only rows of v that are targets are read, and "
                 "the gradient is that of h: factored_spherical_step moves the layer. Give v and state in "
                 "one type, without gaps, or they are copied.",
        .source = FACTORED_SOURCE,
        .example = "softmax run factored_spherical_head features.npy head.npy state.npy classes.npy",
        INPUTS(factored_in), OUTPUTS(hierarchical_out), PARAMS(factored_params)},
    [HEAD_factored_spherical_step] = {
        .id = 629, .name = "factored_spherical_step", .family = "head", .tolerance = 128,
        .title = "an exact step of gradient descent on all rows of a layer, in d^2 operations a row",
        .formula = "w' = w - lr sum grad (d loss / d w)  as  v' U' + 1 omega'^T,  v' = v but at the targets",
        .about = "The loss is that of factored_spherical_head. Put `rows` at the targets of v and "
                 "take `next` for the state: that is the step, on every class, though few are touched. "
                 "Nothing given is changed, so a step whose `condition` is large, 1e6 say, or no "
                 "number can be left out: form the weights, take that step on them, and begin anew. "
                 "No gradient.",
        .source = FACTORED_SOURCE,
        .example = "softmax run factored_spherical_step features.npy head.npy state.npy classes.npy --lr "
                   "0.01",
        INPUTS(factored_step_in), OUTPUTS(factored_step_out), PARAMS(factored_step_params)},
#include "table_adaptive.inc"
};
