/* matrix/table.c - the facts about each operator on matrices. The command, the bindings, the tests and the manual all read this. */
#include "matrix.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)

enum { GRAD = SMX_PORT_GRAD, SAVED = SMX_PORT_SAVED, OPT = SMX_PORT_OPTIONAL };

static const smx_port scores_in[] = {{"x", SMX_SHAPE_FULL, GRAD | SAVED, "matrices of scores [.., rows, columns]"}};
static const smx_port square_in[] = {{"x", SMX_SHAPE_FULL, GRAD | SAVED, "square matrices [.., n, n]"}};
static const smx_port weights_saved[] = {{"y", SMX_SHAPE_FULL, SAVED, "weights"}};
static const smx_port weights_out[] = {{"y", SMX_SHAPE_FULL, 0, "weights"}};

/* The rows of A are what softmax runs over, its columns go with x. */
#define MATRIX_PORT {"a", SMX_SHAPE_FULL, 0, "the matrix A [m, n]"}
#define POINT_PORT {"x", SMX_SHAPE_COLUMN, 0, "the point [n]"}
#define DIRECTION_PORT {"v", SMX_SHAPE_COLUMN, OPT, "the direction [n]; 0 if absent"}
static const smx_port affine_in[] = {MATRIX_PORT, {"b", SMX_SHAPE_ROW, 0, "what is subtracted from A x [m]"}, POINT_PORT, DIRECTION_PORT};
static const smx_port regression_in[] = {MATRIX_PORT, {"b", SMX_SHAPE_ROW, 0, "the weights wanted [m]"}, POINT_PORT, DIRECTION_PORT};
static const smx_port objective_out[] = {
    {"f", SMX_SHAPE_SCALAR, 0, "the value"},
    {"gradient", SMX_SHAPE_COLUMN, OPT, "A^T p"},
    {"hessian_v", SMX_SHAPE_COLUMN, OPT, "A^T (p * (u - U)) / mu"},
    {"gauss_newton_v", SMX_SHAPE_COLUMN, OPT, "A^T (p * u) / mu"},
    {"third_vv", SMX_SHAPE_COLUMN, OPT, "A^T (p * ((u - U)^2 - p.(u - U)^2)) / mu^2"},
};
static const smx_port regression_out[] = {
    {"f", SMX_SHAPE_SCALAR, 0, "the value"},
    {"gradient", SMX_SHAPE_COLUMN, OPT, "A^T s"},
    {"hessian_v", SMX_SHAPE_COLUMN, OPT, "the Hessian times v"},
};

static const char *const ways[] = {"steps", "limit", NULL};
static const smx_param sinkhorn_params[] = {
    {"steps", "half steps; 1 = softmax of the rows", 5, 1, 1000, SMX_PARAM_INT, NULL},
    {"gradient", "back through the steps, or that of the limit of many steps, at the cost of a few", 0, 0, 1, SMX_PARAM_INT, ways},
};
static const smx_param objective_params[] = {
    {"mu", "how smooth: f is at most mu log m above the maximum", 1, 1e-300, 1e300, 0, NULL},
};

enum { BACKWARD = SMX_OP_BACKWARD, INPLACE = SMX_OP_INPLACE };

const smx_op matrix_table[MATRIX_COUNT] = {
    [MATRIX_sinkhorn] = {
        .id = 401, .name = "sinkhorn", .family = "matrix", .flags = BACKWARD | INPLACE, .tolerance = 128,
        .title = "doubly stochastic weights",
        .formula = "L = x; L_ij -= log sum_j e^L_ij, then L_ij -= log sum_i e^L_ij, in turn;  y = e^L",
        .about = "Softmax of the rows and of the columns in turn, in the log domain: the weights of a row sum to 1, and no column is left out or "
                 "takes all. One half step is softmax of the rows; what the last one was sums to 1 exactly, rows or columns, and the more "
                 "steps, the nearer the others come to r / c or c / r. The limit is the matrix nearest to e^x, in relative entropy, that has "
                 "these sums. Attention uses 3 to 21 half steps. -inf hides an element; a row or column of nothing else gets zeros. A pattern "
                 "that no doubly stochastic matrix has, as a causal mask, never settles. Gradient: back through the steps, with a copy of x "
                 "for each; or of the limit, from y alone, solved in double (r c^2 + c^3 / 3 steps for a matrix of r x c).",
        .source = "Sinkformers: Transformers with Doubly Stochastic Attention (Sander, Ablin, Blondel, Peyre 2021); baseline of Quantum Doubly "
                  "Stochastic Transformers (Born et al. 2025)",
        .example = "softmax run sinkhorn scores.npy --steps 21 -o weights.npy",
        INPUTS(scores_in), OUTPUTS(weights_saved), PARAMS(sinkhorn_params)},
    [MATRIX_orthostochastic] = {
        .id = 402, .name = "orthostochastic", .family = "matrix", .flags = BACKWARD, .tolerance = 2,
        .title = "doubly stochastic weights from a QR decomposition",
        .formula = "x = Q R, R_kk > 0;  y_ij = Q_ij^2",
        .about = "Rows and columns sum to 1 at once, without steps: the squares of an orthogonal matrix. n^3 operations in double, and the order "
                 "of the columns matters, so it is not for masks: an infinity makes its matrix NaN. Gradient: 0 for the last column, which the "
                 "others determine; NaN where another column depends on those before it.",
        .source = "Quantum Doubly Stochastic Transformers (Born et al. 2025) names a QR decomposition as a way to such weights; that it is the "
                  "square of Q is our reading",
        .example = "softmax run orthostochastic square.npy",
        INPUTS(square_in), OUTPUTS(weights_out)},
    [MATRIX_logsumexp_objective] = {
        .id = 403, .name = "logsumexp_objective", .family = "matrix", .flags = 0, .tolerance = 2,
        .title = "smooth maximum of affine functions, for optimisers",
        .formula = "f = mu log sum_i e^((A x - b)_i / mu);  p = softmax((A x - b) / mu), u = A v, U = p.u",
        .about = "The value, the gradient, and what second-order methods ask for in a direction v: the Hessian times v, the same without its "
                 "term of rank one (Gauss-Newton, never below the Hessian), and the third derivative twice applied to v. f lies between the "
                 "largest of A x - b and mu log m above it. All arithmetic is in double.",
        .source = "Gradient-Normalized Smoothness for Optimization with Approximate Hessians (Semenov, Jaggi, Doikov 2025)",
        .example = "softmax run logsumexp_objective a.npy b.npy x.npy v.npy --mu 0.5",
        INPUTS(affine_in), OUTPUTS(objective_out), PARAMS(objective_params)},
    [MATRIX_softmax_regression] = {
        .id = 404, .name = "softmax_regression", .family = "matrix", .flags = 0, .tolerance = 2,
        .title = "least squares through a softmax, for optimisers",
        .formula = "f = |softmax(A x) - b|^2 / 2;  p = softmax(A x), c = p - b, s = p * (c - p.c)",
        .about = "The regression that one layer of attention can be seen to solve: the value, the gradient, and the Hessian times v, which is not "
                 "definite. The factor 1 / 2 is ours. All arithmetic is in double.",
        .source = "The Closeness of In-Context Learning and Weight Shifting for Softmax Regression (Li, Song, Xia, Yu, Zhou 2023); derivatives "
                  "worked out here",
        .example = "softmax run softmax_regression a.npy b.npy x.npy v.npy",
        INPUTS(regression_in), OUTPUTS(regression_out)},
};
