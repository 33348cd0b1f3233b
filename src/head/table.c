/* head/table.c - the facts about each operator whose logits are those of a linear layer. The
 * command, the bindings, the tests and the manual all read this. */
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
#define LINEAR_PARAMS \
  {"ignore_index", "a row with this target is left out: loss 0, gradient 0", \
   -100, -1e15, 1e15, SMX_PARAM_INT, NULL}, \
      {"label_smoothing", "mass that is spread evenly over the classes", 0, 0, 1, 0, NULL}, \
      {"z_weight", "adds z_weight lse^2, which keeps logits small; 1e-4 is usual", 0, 0, 1e30, 0, NULL}, \
      {"softcap", "logits are c tanh(x / c); inf = none", INF, 1e-30, INF, 0, NULL}, \
      {"temperature", "divides the logits", 1, 1e-30, 1e30, 0, NULL}, \
      {"scale", "multiplies h w^T", 1, -1e30, 1e30, SMX_PARAM_NONZERO, NULL}, \
      {"keep", "MiB of logits that may be in memory at a time; at least 64 rows are", \
       32, 0, 1e6, SMX_PARAM_OPEN_MIN, NULL}
static const smx_param linear_params[] = {LINEAR_PARAMS};
static const smx_param gradient_params[] = {
    LINEAR_PARAMS,
    {"reduction", "what `reduced` is (none: as sum); mean_safe: 0 when nothing counts",
     1, 0, 3, SMX_PARAM_INT, reductions},
};

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
};
