/* pool/table.c - the facts about each operator that pools. The command, the bindings, the tests and
 * the manual all read this. */
#include "pool.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS

enum { GRAD = SMX_PORT_GRAD, SAVED = SMX_PORT_SAVED, OPT = SMX_PORT_OPTIONAL, INT = SMX_PORT_INT,
       MASK = SMX_PORT_MASK };

static const smx_port x_in[] = {
    {"x", DIMS, GRAD | SAVED, "planes of cells: [..., H, W] where spatial is 2", "... s*"}};
static const smx_port y_out[] = {{"y", DIMS, 0, "an output for each window", "... o*"}};
static const smx_port y_saved[] = {{"y", DIMS, SAVED, "an output for each window", "... o*"}};
static const smx_port max_out[] = {
    {"y", DIMS, 0, "an output for each window", "... o*"},
    {"index", DIMS, INT | OPT, "the first of the largest cells, counted through its plane; -1: there is none",
     "... o*"},
};

static const char *const no_yes[] = {"no", "yes", NULL}, *const counts[] = {"present", "padded", NULL},
                  *const gradients[] = {"exact", "weights", NULL};

#define INF ((double)__builtin_inf())
#define WHOLE SMX_PARAM_INT, NULL
#define MOST 1e9
#define SPATIAL {"spatial", "how many dimensions, the last ones, have windows", 2, 1, 3, WHOLE}
#define WINDOW \
  SPATIAL, {"kernel", "cells of a window, along each dimension", 2, 1, MOST, WHOLE}, \
      {"kernel_h", "along the height; 0 = kernel", 0, 0, MOST, WHOLE}, \
      {"kernel_d", "along the depth; 0 = kernel", 0, 0, MOST, WHOLE}, \
      {"stride", "cells from one window to the next; 0 = the kernel", 0, 0, MOST, WHOLE}, \
      {"stride_h", "along the height; 0 = stride", 0, 0, MOST, WHOLE}, \
      {"stride_d", "along the depth; 0 = stride", 0, 0, MOST, WHOLE}, \
      {"padding", "absent cells before and behind, at most half of what a kernel spans", 0, 0, MOST, WHOLE}, \
      {"padding_h", "along the height; -1 = padding", -1, -1, MOST, WHOLE}, \
      {"padding_d", "along the depth; -1 = padding", -1, -1, MOST, WHOLE}, \
      {"dilation", "from one cell of a window to the next", 1, 1, MOST, WHOLE}, \
      {"dilation_h", "along the height; 0 = dilation", 0, 0, MOST, WHOLE}, \
      {"dilation_d", "along the depth; 0 = dilation", 0, 0, MOST, WHOLE}, \
      {"ceil", "a last window that is not whole counts too", 0, 0, 1, SMX_PARAM_INT, no_yes}
#define BINS \
  SPATIAL, {"size", "outputs along each dimension", 1, 1, MOST, WHOLE}, \
      {"size_h", "along the height; 0 = size", 0, 0, MOST, WHOLE}, \
      {"size_d", "along the depth; 0 = size", 0, 0, MOST, WHOLE}
#define BETA \
  {"beta", "0 = the mean, large = the maximum, below 0 towards the minimum", 1, -1e30, 1e30, 0, NULL}
#define GRADIENT \
  {"gradient", "exact, or with the weights as constants, as the paper has it", 0, 0, 1, SMX_PARAM_INT, \
   gradients}

static const smx_param window_params[] = {WINDOW}, bin_params[] = {BINS};
static const smx_param mean_params[] = {
    WINDOW,
    {"count", "what a mean divides by: cells that are there, or those of the padding too", 0, 0, 1,
     SMX_PARAM_INT, counts},
    {"divisor", "divides by this number instead; 0: it does not", 0, 0, 9007199254740992.0, WHOLE}};
static const smx_param soft_params[] = {WINDOW, BETA, GRADIENT}, soft_bin_params[] = {BINS, BETA, GRADIENT};
static const smx_param mixed_params[] = {
    WINDOW, {"mix", "a, where no tensor has it: of the maximum; 1 - a of the mean", 0.5, -1e30, 1e30, 0,
             NULL}};

static const smx_port ada_in[] = {
    {"x", DIMS, GRAD | SAVED, "planes of cells: [..., H, W] where spatial is 2", "... s*"},
    {"mix", DIMS, GRAD | OPT | SAVED, "b, between 0 and 1; share without", ""},
    {"map", DIMS, GRAD | OPT | SAVED, "b of each output, in place of mix", "o*"}};
static const smx_port unpool_in[] = {
    {"x", DIMS, SAVED, "the cells that were pooled, whose weights it takes", "... s*"},
    {"y", DIMS, GRAD | SAVED, "what is shared among the cells of each window", "... o*"},
    {"mix", DIMS, GRAD | OPT | SAVED, "b, between 0 and 1; share without", ""},
    {"map", DIMS, GRAD | OPT | SAVED, "b of each output, in place of mix", "o*"}};
static const smx_port unpool_out[] = {{"z", DIMS, 0, "cells: those of a window sum to its y", "... s*"}};
static const smx_port max_unpool_in[] = {
    {"y", DIMS, GRAD | SAVED, "what max_pool took from planes", "... o*"},
    {"index", DIMS, INT | SAVED, "the cell that each is from, as max_pool counts; -1: none", "... o*"}};
static const smx_port max_unpool_out[] = {
    {"z", DIMS, 0, "planes of cells, 0 where nothing was taken", "... s*"}};
static const smx_port guided_in[] = {
    {"x", DIMS, GRAD | SAVED, "channels of cells: [..., C, T, H, W] where spatial is 3", "... c s*"},
    {"score", DIMS, GRAD | SAVED, "of each cell, what a prompt has to do with it", "... s*"}};
static const smx_port guided_out[] = {{"y", DIMS, 0, "an output for each window", "... c o*"}};
static const smx_port mixed_in[] = {
    {"x", DIMS, GRAD | SAVED, "planes of cells: [..., H, W] where spatial is 2", "... s*"},
    {"a", DIMS, GRAD | OPT | SAVED, "how much of the maximum; mix without", ""}};
static const smx_port gated_in[] = {
    {"x", DIMS, GRAD | SAVED, "planes of cells: [..., H, W] where spatial is 2", "... s*"},
    {"weight", DIMS, GRAD | SAVED, "of each cell of a window, row by row", "k"}};
static const smx_port tree_in[] = {
    {"x", DIMS, GRAD | SAVED, "planes of cells: [..., H, W] where spatial is 2", "... s*"},
    {"weight", DIMS, GRAD | SAVED, "of the leaves, a power of 2, for each cell of a window", "l k"},
    {"gate", DIMS, GRAD | SAVED, "of the nodes; below node k are 2 k + 1 and 2 k + 2", "g k"}};
static const smx_port drawn_out[] = {
    {"y", DIMS, 0, "an output for each window", "... o*"},
    {"index", DIMS, INT, "the cell that was drawn, counted through its plane; -1: none was", "... o*"}};
static const char *const chances[] = {"softmax", "ratio", NULL}, *const forms[] = {"drawn", "mean", NULL};
static const smx_param stochastic_params[] = {
    WINDOW,
    {"chances", "softmax of the cells, or those above 0 over their sum", 0, 0, 1, SMX_PARAM_INT, chances},
    {"form", "a cell that is drawn, as in training, or their mean", 0, 0, 1, SMX_PARAM_INT, forms},
    {"seed", "of the random numbers", 0, 0, 9007199254740992.0, WHOLE},
    {"stream", "of the first plane; each has the next", 0, 0, 9007199254740992.0, WHOLE}};
static const smx_param lp_params[] = {WINDOW, {"power", "p", 2, 1e-3, 1e30, 0, NULL}};
#define SHARE {"share", "b, where no tensor has it: how much of the Dice form", 0.5, 0, 1, 0, NULL}
static const smx_param guided_params[] = {
    WINDOW, {"scale", "of the scores: CLIP's is 100", 100, 0, 1e30, 0, NULL},
    {"temperature", "of the softmax in a window: large = the mean", 0.01, 1e-30, 1e30, 0, NULL}};
static const smx_param ada_params[] = {WINDOW, SHARE};
static const smx_param unpool_params[] = {
    SPATIAL, {"kernel", "cells of a window, along each dimension", 2, 1, MOST, WHOLE},
    {"kernel_h", "along the height; 0 = kernel", 0, 0, MOST, WHOLE},
    {"kernel_d", "along the depth; 0 = kernel", 0, 0, MOST, WHOLE},
    {"ceil", "a last window that is not whole counts too", 0, 0, 1, SMX_PARAM_INT, no_yes}, SHARE};

static const smx_param max_unpool_params[] = {
    SPATIAL, {"kernel", "cells of a window, along each dimension", 2, 1, MOST, WHOLE},
    {"kernel_h", "along the height; 0 = kernel", 0, 0, MOST, WHOLE},
    {"kernel_d", "along the depth; 0 = kernel", 0, 0, MOST, WHOLE},
    {"stride", "cells from one window to the next; 0 = the kernel", 0, 0, MOST, WHOLE},
    {"stride_h", "along the height; 0 = stride", 0, 0, MOST, WHOLE},
    {"stride_d", "along the depth; 0 = stride", 0, 0, MOST, WHOLE},
    {"padding", "absent cells before and behind", 0, 0, MOST, WHOLE},
    {"padding_h", "along the height; -1 = padding", -1, -1, MOST, WHOLE},
    {"padding_d", "along the depth; -1 = padding", -1, -1, MOST, WHOLE},
    {"size", "cells along each dimension; 0 = those of all windows", 0, 0, MOST, WHOLE},
    {"size_h", "along the height; 0 = size", 0, 0, MOST, WHOLE},
    {"size_d", "along the depth; 0 = size", 0, 0, MOST, WHOLE}};

static const smx_port boxes_in[] = {
    {"boxes", DIMS, 0, "x1, y1, x2, y2 of each box, with x1 <= x2 and y1 <= y2", "... n 4"},
    {"score", DIMS, 0, "of each box", "... n"},
    {"label", DIMS, INT | OPT, "the class of each box: those of different ones do not overlap", "... n"},
};
static const smx_port boxes_out[] = {
    {"index", DIMS, INT, "the boxes that stay, the best first; then -1", "... n"},
    {"count", DIMS, INT | OPT, "how many stay", "..."},
    {"kept", DIMS, OPT, "their scores; then 0", "... n"},
};
static const char *const methods[] = {"hard", "linear", "gaussian", NULL};
#define PIXELS \
  {"pixels", "added to every width and height: 1 where the far edges are the last pixels", 0, 0, 1, WHOLE}
#define MOST_BOXES {"most", "how many may stay; 0 = all", 0, 0, MOST, WHOLE}
static const smx_param nms_params[] = {
    {"threshold", "the largest overlap of two boxes that stay", 0.5, 0, 1, 0, NULL},
    {"least", "boxes of smaller scores do not exist", -INF, -INF, INF, 0, NULL}, MOST_BOXES, PIXELS,
    {"inclusive", "an overlap of the threshold is too large as well", 0, 0, 1, SMX_PARAM_INT, no_yes}};
static const smx_param soft_nms_params[] = {
    {"method", "how scores fall", 1, 0, 2, SMX_PARAM_INT, methods},
    {"threshold", "overlaps up to it leave scores alone; gaussian has none", 0.3, 0, 1, 0, NULL},
    {"sigma", "of gaussian", 0.5, 1e-30, 1e30, 0, NULL},
    {"least", "what falls below it goes", 0.001, -INF, INF, 0, NULL}, MOST_BOXES, PIXELS};

#include "table_sets_ports.inc"
#include "table_cluster_ports.inc"

enum { BACKWARD = SMX_OP_BACKWARD };

#define GEOMETRY \
  "Output o of a dimension takes the cells o stride - padding + j dilation, j < kernel, and there are (n " \
  "+ 2 padding - dilation (kernel - 1) - 1) / stride + 1 of them, rounded down, or up with ceil = yes as " \
  "long as the last window begins at a cell or before. Cells of the padding are absent. "
#define BIN_GEOMETRY \
  "Output o of m takes the cells from o n / m, rounded down, to (o + 1) n / m, rounded up: bins differ by " \
  "a cell at most, may share one, and repeat cells where there are more outputs than cells. "
#define NAN_GRADIENT "A NaN makes its window NaN, without a gradient. "

const smx_op pool_table[POOL_COUNT] = {
    [POOL_max_pool] = {
        .id = 427, .name = "max_pool", .family = "pool", .flags = BACKWARD, .tolerance = 1,
        .title = "the largest cell of each window",
        .formula = "y = max_i x_i",
        .about = GEOMETRY NAN_GRADIENT
                 "Gradient: to the first of the largest cells. A window of nothing above -inf is -inf, "
                 "with index -1 and without a gradient.",
        .source = "standard; sizes and names as in PyTorch's MaxPool1d, 2d and 3d",
        .example = "softmax run max_pool images.npy --kernel 3 --stride 2 --padding 1",
        INPUTS(x_in), OUTPUTS(max_out), PARAMS(window_params)},
    [POOL_avg_pool] = {
        .id = 428, .name = "avg_pool", .family = "pool", .flags = BACKWARD, .tolerance = 4,
        .title = "the mean of each window",
        .formula = "y = sum_i x_i / N",
        .about = GEOMETRY
                 "N counts the cells that are there; with count = padded also those of the padding, as "
                 "PyTorch's count_include_pad = True does, which is its default. The sum is in double. "
                 "Gradient: dy / N to each cell, whatever they hold.",
        .source = "standard; sizes and names as in PyTorch's AvgPool1d, 2d and 3d",
        .example = "softmax run avg_pool images.npy --kernel 2",
        INPUTS(x_in), OUTPUTS(y_out), PARAMS(mean_params)},
    [POOL_soft_pool] = {
        .id = 429, .name = "soft_pool", .family = "pool", .flags = BACKWARD, .tolerance = 64,
        .title = "the mean of each window under its own softmax",
        .formula = "y = sum_i w_i x_i,  w = softmax(beta x) over the window",
        .about = GEOMETRY
                 "It is boltzmann_operator over the cells of a window, each plane by itself, so cells may "
                 "be negative. Gradient: dx_i = dy w_i (1 + beta (x_i - y)); with gradient = weights dy "
                 "w_i, which is what the authors' kernels have.",
        .source = "Refining activation downsampling with SoftPool (Stergiou, Poppe, Kalliatakis 2021)",
        .example = "softmax run soft_pool images.npy --kernel 2 --stride 2",
        INPUTS(x_in), OUTPUTS(y_saved), PARAMS(soft_params)},
    [POOL_lse_pool] = {
        .id = 430, .name = "lse_pool", .family = "pool", .flags = BACKWARD, .tolerance = 32,
        .title = "the logarithm of the sum of exponentials of each window",
        .formula = "y = log sum_i e^x_i",
        .about = GEOMETRY "It is logsumexp over the cells of a window. Gradient: dx = dy softmax(x).",
        .source = "standard; as pooling: From Image-level to Pixel-level Labeling with Convolutional "
                  "Networks (Pinheiro, Collobert 2015), whose mean is less log N",
        .example = "softmax run lse_pool images.npy --kernel 2",
        INPUTS(x_in), OUTPUTS(y_saved), PARAMS(window_params)},
    [POOL_mixed_pool] = {
        .id = 431, .name = "mixed_pool", .family = "pool", .flags = BACKWARD, .tolerance = 8,
        .title = "a mixture of maximum and mean of each window",
        .formula = "y = a max_i x_i + (1 - a) sum_i x_i / N",
        .about = GEOMETRY
                 "N counts the cells that are there. Gradient: a dy to the first of the largest cells, of "
                 "a window without a NaN, and (1 - a) dy / N to each; of a, if it is a tensor, the sum of "
                 "dy (max - mean).",
        .source = "Generalizing Pooling Functions in Convolutional Neural Networks: Mixed, Gated, and Tree "
                  "(Lee, Gallagher, Tu 2015)",
        .example = "softmax run mixed_pool images.npy --kernel 3 --stride 2 --mix 0.3",
        INPUTS(mixed_in), OUTPUTS(y_out), PARAMS(mixed_params)},
    [POOL_adaptive_max_pool] = {
        .id = 432, .name = "adaptive_max_pool", .family = "pool", .flags = BACKWARD, .tolerance = 1,
        .title = "the largest cell of each bin, for a given number of bins",
        .formula = "y = max_i x_i",
        .about = BIN_GEOMETRY NAN_GRADIENT "Gradient: to the first of the largest cells.",
        .source = "standard; bins as in PyTorch's AdaptiveMaxPool1d, 2d and 3d. Levels 6, 3, 2, 1 side by "
                  "side are Spatial Pyramid Pooling (He et al. 2014)",
        .example = "softmax run adaptive_max_pool images.npy --size 7",
        INPUTS(x_in), OUTPUTS(max_out), PARAMS(bin_params)},
    [POOL_adaptive_avg_pool] = {
        .id = 433, .name = "adaptive_avg_pool", .family = "pool", .flags = BACKWARD, .tolerance = 4,
        .title = "the mean of each bin, for a given number of bins",
        .formula = "y = sum_i x_i / N",
        .about = BIN_GEOMETRY "The sum is in double. Gradient: dy / N to each cell, whatever they hold.",
        .source = "standard; bins as in PyTorch's AdaptiveAvgPool1d, 2d and 3d; of images and videos "
                  "before a language model: PLLaVA (Xu et al. 2024), TokenFLEX (2025)",
        .example = "softmax run adaptive_avg_pool images.npy --size 1",
        INPUTS(x_in), OUTPUTS(y_out), PARAMS(bin_params)},
    [POOL_adaptive_soft_pool] = {
        .id = 434, .name = "adaptive_soft_pool", .family = "pool", .flags = BACKWARD, .tolerance = 64,
        .title = "the mean of each bin under its own softmax, for a given number of bins",
        .formula = "y = sum_i w_i x_i,  w = softmax(beta x) over the bin",
        .about = BIN_GEOMETRY "Everything else is as in soft_pool.",
        .source = "the windows of soft_pool (Stergiou et al. 2021) with the bins of adaptive pooling",
        .example = "softmax run adaptive_soft_pool images.npy --size 7",
        INPUTS(x_in), OUTPUTS(y_saved), PARAMS(soft_bin_params)},
    [POOL_nms] = {
        .id = 435, .name = "nms", .family = "pool", .tolerance = 1,
        .title = "non-maximum suppression: of boxes that overlap the best stays",
        .formula = "box i stays if no j that stays is before it with inter_ij > threshold (area_i + area_j "
                   "- inter_ij)",
        .about = "Larger scores are before smaller ones, and of equal ones the smaller number. The overlap "
                 "is the intersection over the union, 0 where the union is empty. With a class for each "
                 "box they are kept class by class, exactly, and listed by score. Boxes and scores with a "
                 "NaN do not exist. All arithmetic is in double. No gradient.",
        .source = "standard; Fast R-CNN's (Girshick 2015) for pixels = 1, torchvision.ops.nms and "
                  "batched_nms for 0",
        .example = "softmax run nms boxes.npy scores.npy --threshold 0.5",
        INPUTS(boxes_in), OUTPUTS(boxes_out), PARAMS(nms_params)},
    [POOL_soft_nms] = {
        .id = 436, .name = "soft_nms", .family = "pool", .tolerance = 16,
        .title = "Soft-NMS: the scores of boxes that overlap fall",
        .formula = "the best box m goes next, and s_i *= f(iou_mi):  linear 1 - iou above the threshold, "
                   "gaussian e^(-iou^2 / sigma), hard 0 above the threshold",
        .about = "Until no score of at least `least` is left, or `most` boxes are. Of equal scores the "
                 "smaller number goes first; boxes of other classes are left alone. The authors' code "
                 "compares with the least score only where a score has just fallen, so that lone boxes "
                 "below it stay there; here they go. Boxes and scores with a NaN do not exist. All "
                 "arithmetic is in double. No gradient.",
        .source = "Soft-NMS: Improving Object Detection With One Line of Code (Bodla, Singh, Chellappa, "
                  "Davis 2017); authors' code: pixels = 1",
        .example = "softmax run soft_nms boxes.npy scores.npy --method gaussian",
        INPUTS(boxes_in), OUTPUTS(boxes_out), PARAMS(soft_nms_params)},
#include "table_cells.inc"
#include "table_sets.inc"
#include "table_cluster.inc"
};
