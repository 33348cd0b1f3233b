/* matrix/table.c - the facts about each operator on matrices. The command, the bindings, the tests
 * and the manual all read this. */
#include "matrix.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)

enum { GRAD = SMX_PORT_GRAD, SAVED = SMX_PORT_SAVED, OPT = SMX_PORT_OPTIONAL, INT = SMX_PORT_INT };

#define DIMS SMX_SHAPE_DIMS
static const smx_port scores_in[] = {{"x", DIMS, GRAD | SAVED, "matrices of scores", "... r c"}};
static const smx_port square_in[] = {{"x", DIMS, GRAD | SAVED, "square matrices", "... n n"}};
static const smx_port weights_saved[] = {{"y", DIMS, SAVED, "weights", "... r c"}};
static const smx_port weights_out[] = {{"y", DIMS, 0, "weights", "... n n"}};

/* The rows of A are what softmax runs over, its columns go with x. */
#define MATRIX_PORT {"a", DIMS, 0, "the matrix A", "m n"}
#define POINT_PORT {"x", DIMS, 0, "the point", "n"}
#define DIRECTION_PORT {"v", DIMS, OPT, "the direction; 0 if absent", "n"}
static const smx_port affine_in[] = {
    MATRIX_PORT, {"b", DIMS, 0, "what is subtracted from A x", "m"}, POINT_PORT, DIRECTION_PORT};
static const smx_port regression_in[] = {
    MATRIX_PORT, {"b", DIMS, 0, "the weights wanted", "m"}, POINT_PORT, DIRECTION_PORT};
static const smx_port objective_out[] = {
    {"f", DIMS, 0, "the value", ""},
    {"gradient", DIMS, OPT, "A^T p", "n"},
    {"hessian_v", DIMS, OPT, "A^T (p * (u - U)) / mu", "n"},
    {"gauss_newton_v", DIMS, OPT, "A^T (p * u) / mu", "n"},
    {"third_vv", DIMS, OPT, "A^T (p * ((u - U)^2 - p.(u - U)^2)) / mu^2", "n"},
};
static const smx_port regression_out[] = {
    {"f", DIMS, 0, "the value", ""},
    {"gradient", DIMS, OPT, "A^T s", "n"},
    {"hessian_v", DIMS, OPT, "the Hessian times v", "n"},
};

static const smx_port distributions_in[] = {
    {"x", DIMS, 0, "rows of logits, or of logarithms of probabilities, over the same classes", "m n"},
    {"mix", DIMS, OPT, "logits of how much each row counts, w = softmax(mix); all alike if absent", "m"},
};
static const smx_port divergence_out[] = {
    {"loss", DIMS, 0, "the divergence, at most log m", ""},
    {"dx", DIMS, OPT, "its gradient by x", "m n"},
};
static const smx_port centroid_out[] = {{"y", DIMS, 0, "probabilities", "n"}};
static const smx_port votes_in[] = {
    {"x", DIMS, 0, "votes: a class of 0..k-1, or a negative number or NaN where there is none",
     "items workers"},
};
static const smx_port posterior_out[] = {{"y", DIMS, 0, "the probability of each class", "items k"}};

static const smx_port basis_in[] = {
    {"x", DIMS, 0, "probabilities of the classes (tokens)", "... n"},
    {"basis", DIMS, 0, "what the model can tell apart: left singular vectors of its output embedding", "n c"},
    {"token", DIMS, INT, "tokens in doubt; what is no token is not accepted", "... k"},
};
static const smx_port basis_out[] = {
    {"accepted", DIMS, INT, "1 = the token may go out", "... k"},
    {"index", DIMS, INT | OPT, "the first token that may, else the likeliest; -1: there are no probabilities",
     "..."},
};

static const char *const ways[] = {"steps", "limit", NULL};
static const smx_param sinkhorn_params[] = {
    {"steps", "half steps; 1 = softmax of the rows", 5, 1, 1000, SMX_PARAM_INT, NULL},
    {"gradient", "back through the steps, or that of the limit of many steps, at the cost of a few",
     0, 0, 1, SMX_PARAM_INT, ways},
};
static const smx_param objective_params[] = {
    {"mu", "how smooth: f is at most mu log m above the maximum", 1, 1e-300, 1e300, 0, NULL},
};
#define CLASSES_PARAM {"k", "how many classes there are", 2, 1, 1e9, SMX_PARAM_INT, NULL}
static const smx_param skene_params[] = {
    CLASSES_PARAM,
    {"steps", "the most there may be", 100, 1, 1e9, SMX_PARAM_INT, NULL},
    {"tolerance", "done when no probability moved more in a step", 1e-9, 0, 1, SMX_PARAM_OPEN_MIN, NULL},
};
static const smx_param agreement_params[] = {CLASSES_PARAM};
static const smx_param basis_params[] = {
    {"eta", "a true probability is below that of the model over 1 - eta; tokens from eta on are accepted",
     1e-3, 0, 1, 0, NULL},
};

enum { BACKWARD = SMX_OP_BACKWARD, INPLACE = SMX_OP_INPLACE };

const smx_op matrix_table[MATRIX_COUNT] = {
    [MATRIX_sinkhorn] = {
        .id = 401, .name = "sinkhorn", .family = "matrix", .flags = BACKWARD | INPLACE, .tolerance = 128,
        .title = "doubly stochastic weights",
        .formula = "L = x; L_ij -= log sum_j e^L_ij, then L_ij -= log sum_i e^L_ij, in turn;  y = e^L",
        .about = "Softmax of the rows and of the columns in turn, in the log domain: the weights of a row "
                 "sum to 1, and no column is left out or takes all. One half step is softmax of the rows; "
                 "what the last one was sums to 1 exactly, rows or columns, and the more steps, the nearer "
                 "the others come to r / c or c / r. The limit is the matrix nearest to e^x, in relative "
                 "entropy, that has these sums. Attention uses 3 to 21 half steps. -inf hides an element; a "
                 "row or column of nothing else gets zeros. A pattern that no doubly stochastic matrix has, "
                 "as a causal mask, never settles. Gradient: back through the steps, with a copy of x for "
                 "each; or of the limit, from y alone, solved in double (r c^2 + c^3 / 3 steps for a matrix "
                 "of r x c).",
        .source = "Sinkformers: Transformers with Doubly Stochastic Attention (Sander, Ablin, Blondel, Peyre "
                  "2021); baseline of Quantum Doubly Stochastic Transformers (Born et al. 2025)",
        .example = "softmax run sinkhorn scores.npy --steps 21 -o weights.npy",
        INPUTS(scores_in), OUTPUTS(weights_saved), PARAMS(sinkhorn_params)},
    [MATRIX_orthostochastic] = {
        .id = 402, .name = "orthostochastic", .family = "matrix", .flags = BACKWARD, .tolerance = 2,
        .title = "doubly stochastic weights from a QR decomposition",
        .formula = "x = Q R, R_kk > 0;  y_ij = Q_ij^2",
        .about = "Rows and columns sum to 1 at once, without steps: the squares of an orthogonal matrix. n^3 "
                 "operations in double, and the order of the columns matters, so it is not for masks: an "
                 "infinity makes its matrix NaN. Gradient: 0 for the last column, which the others "
                 "determine; NaN where another column depends on those before it.",
        .source = "Quantum Doubly Stochastic Transformers (Born et al. 2025) names a QR decomposition as a "
                  "way to such weights; that it is the square of Q is our reading",
        .example = "softmax run orthostochastic square.npy",
        INPUTS(square_in), OUTPUTS(weights_out)},
    [MATRIX_logsumexp_objective] = {
        .id = 403, .name = "logsumexp_objective", .family = "matrix", .flags = 0, .tolerance = 2,
        .title = "smooth maximum of affine functions, for optimisers",
        .formula = "f = mu log sum_i e^((A x - b)_i / mu);  p = softmax((A x - b) / mu), u = A v, U = p.u",
        .about = "The value, the gradient, and what second-order methods ask for in a direction v: the "
                 "Hessian times v, the same without its term of rank one (Gauss-Newton, never below the "
                 "Hessian), and the third derivative twice applied to v. f lies between the largest of A x - "
                 "b and mu log m above it. All arithmetic is in double.",
        .source = "Gradient-Normalized Smoothness for Optimization with Approximate Hessians (Semenov, "
                  "Jaggi, Doikov 2025)",
        .example = "softmax run logsumexp_objective a.npy b.npy x.npy v.npy --mu 0.5",
        INPUTS(affine_in), OUTPUTS(objective_out), PARAMS(objective_params)},
    [MATRIX_softmax_regression] = {
        .id = 404, .name = "softmax_regression", .family = "matrix", .flags = 0, .tolerance = 2,
        .title = "least squares through a softmax, for optimisers",
        .formula = "f = |softmax(A x) - b|^2 / 2;  p = softmax(A x), c = p - b, s = p * (c - p.c)",
        .about = "The regression that one layer of attention can be seen to solve: the value, the gradient, "
                 "and the Hessian times v, which is not definite. The factor 1 / 2 is ours. All arithmetic "
                 "is in double.",
        .source = "The Closeness of In-Context Learning and Weight Shifting for Softmax Regression (Li, "
                  "Song, Xia, Yu, Zhou 2023); derivatives worked out here",
        .example = "softmax run softmax_regression a.npy b.npy x.npy v.npy",
        INPUTS(regression_in), OUTPUTS(regression_out)},
    [MATRIX_jensen_shannon_divergence] = {
        .id = 405, .name = "jensen_shannon_divergence", .family = "matrix", .flags = 0, .tolerance = 64,
        .title = "how far several distributions are apart",
        .formula = "loss = sum_i w_i D(p_i || M),  M = sum_i w_i p_i,  p_i = softmax(x_i), w = softmax(mix)",
        .about = "The rows of x are distributions over the same classes. For two rows that count alike it is "
                 "jensen_shannon. A row that counts nothing is not read as numbers; a NaN in another makes "
                 "the result NaN; where another has nothing valid it is 0. Gradient: w_i p_ij (log p_ij / "
                 "M_j - D(p_i || M)). All arithmetic is in double. smx_jensen_shannon takes many such "
                 "problems at once.",
        .source = "Divergence Measures Based on the Shannon Entropy (Lin 1991)",
        .example = "softmax run jensen_shannon_divergence logits.npy mix.npy -o divergence.npz",
        INPUTS(distributions_in), OUTPUTS(divergence_out)},
    [MATRIX_jensen_shannon_centroid] = {
        .id = 406, .name = "jensen_shannon_centroid", .family = "matrix", .flags = 0, .tolerance = 64,
        .title = "the distribution between several others",
        .formula = "y = argmin_y sum_i w_i JS(p_i, y),  p_i = softmax(x_i), w = softmax(mix)",
        .about = "One soft label of several. By a fixed point, until the sum of changes is below 1e-10, or "
                 "1000 steps, in double. Other ways: labels_mix, which is their mean, and labels_crowd, "
                 "their product. NaN, and rows that are empty or do not count: as in "
                 "jensen_shannon_divergence. smx_js_centroid takes many such problems at once.",
        .source = "On a Generalization of the Jensen-Shannon Divergence and the Jensen-Shannon Centroid "
                  "(Nielsen 2020)",
        .example = "softmax run jensen_shannon_centroid logits.npy",
        INPUTS(distributions_in), OUTPUTS(centroid_out)},
    [MATRIX_dawid_skene] = {
        .id = 407, .name = "dawid_skene", .family = "matrix", .flags = 0, .tolerance = 64,
        .title = "classes from votes, where workers err each in a way of his own",
        .formula = "y_ik ~ prior_k prod_w error^w_(k, x_iw),  prior_k = mean_i y_ik, error^w_kl = how often "
                   "w says l where the class is k",
        .about = "Expectation maximisation, from the shares of votes on, in double. An item without votes "
                 "has the prior. smx_dawid_skene takes votes as a list, several by a worker on one item "
                 "among them, and gives the prior and the errors too.",
        .source = "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm (Dawid, "
                  "Skene 1979)",
        .example = "softmax run dawid_skene votes.csv --k 4",
        INPUTS(votes_in), OUTPUTS(posterior_out), PARAMS(skene_params)},
    [MATRIX_worker_agreement] = {
        .id = 408, .name = "worker_agreement", .family = "matrix", .flags = 0, .tolerance = 64,
        .title = "classes from votes, weighed by how often a worker agrees with the majority",
        .formula = "y_ik = sum_(w: x_iw = k) skill_w / sum_w skill_w,  skill_w = the share of w's votes that "
                   "the majority of their items has",
        .about = "One look at the majority, and one at who is with it (Worker Agreement with Aggregate); "
                 "ties go to the lower class. An item without votes has 1 / k. All arithmetic is in double.",
        .source = "Learning from Crowds with Crowd-Kit (Ustalov, Pavlichenko, Tseitlin 2024)",
        .example = "softmax run worker_agreement votes.csv --k 4",
        INPUTS(votes_in), OUTPUTS(posterior_out), PARAMS(agreement_params)},
    [MATRIX_basis_aware_accept] = {
        .id = 426, .name = "basis_aware_accept", .family = "matrix", .flags = 0, .tolerance = 1,
        .title = "which tokens are possible for certain, by what a model can tell apart",
        .formula = "accepted: x_t >= eta, or no q has q_t = 0, 0 <= q <= x / (1 - eta), sum q = sum x, "
                   "basis^T q = basis^T x",
        .about = "A model whose logits are a product with an embedding cannot give every distribution: a "
                 "likely token may be wrong, an unlikely one certain. If the true distribution agrees with x "
                 "on the basis and is nowhere above x / (1 - eta), a token that no such q can do without is "
                 "possible. Without columns it is the threshold eta. One linear program for each token below "
                 "eta, by the simplex method in double: some 3 c steps, each over n (c + 1) numbers. A proof "
                 "is checked with a tolerance of 1e-9 before it counts; without one, also where steps run "
                 "out, the token does not go out, as the paper states (its two published programs decide "
                 "differently). A token of probability 0 is never accepted; a negative number, infinity or "
                 "NaN in a row or in the basis leaves nothing accepted. The paper's way to draw: ten tokens "
                 "of gumbel_topk, then index.",
        .source = "Closing the Curious Case of Neural Text Degeneration (Finlayson, Hewitt, Koller, "
                  "Swayamdipta, Sabharwal 2023)",
        .example = "softmax run basis_aware_accept p.npy --basis basis.npy --token drafts.npy --eta 0.002",
        INPUTS(basis_in), OUTPUTS(basis_out), PARAMS(basis_params)},
};
