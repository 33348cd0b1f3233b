/* fit/table.c - the facts about each operator that is fitted to rows whose class is known. The
 * command, the bindings, the tests and the manual all read this. */
#include "fit.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS
#define OPT SMX_PORT_OPTIONAL

enum {
  GRAD = SMX_PORT_GRAD | SMX_PORT_SAVED,
  TARGET = SMX_PORT_INT | SMX_PORT_TARGET,
  BACKWARD = SMX_OP_BACKWARD
};

#define TARGETS {"target", DIMS, TARGET, "the class of each row; -1: the row does not count", "n | < c"}
#define POSITIVE {"positive", DIMS, SMX_PORT_MASK, "nonzero = what the score is of is so", "n"}
#define LOSSES \
  {"loss", DIMS, OPT, "the mean of the negative log-likelihood, after", ""}, \
  {"before", DIMS, OPT, "the same of the logits as they were", ""}
#define ANY(name, help, def) {name, help, def, -1e30, 1e30, 0, NULL}
#define PENALTY(name, help, def) {name, help, def, 0, 1e30, 0, NULL}

static const smx_port set_in[] = {{"logits", DIMS, 0, "of each row and class", "n c"}, TARGETS};
static const smx_port temperature_out[] = {
    {"temperature", DIMS, 0, "what the logits are divided by", ""}, LOSSES};
static const smx_port vector_out[] = {
    {"scale", DIMS, 0, "of each class", "c"}, {"bias", DIMS, 0, "of each class", "c"}, LOSSES};
static const smx_port matrix_out[] = {
    {"weight", DIMS, 0, "of each new logit (rows) and each old one", "c c"},
    {"bias", DIMS, 0, "of each class", "c"}, LOSSES};
static const smx_param vector_params[] = {
    PENALTY("l2", "times the mean over the classes of (scale - 1)^2", 0.01),
    PENALTY("l2_bias", "times the mean over the classes of bias^2", 0.01)};
static const smx_param matrix_params[] = {
    PENALTY("l2", "times the mean of the squares off the diagonal", 0.01),
    PENALTY("l2_bias", "times the mean over the classes of bias^2", 0.01),
    PENALTY("l2_diagonal", "times the mean of (w - 1)^2 on the diagonal; 0 as ODIR", 0.001)};

static const smx_port vector_in[] = {
    {"logits", DIMS, GRAD, "of the classes; -inf stays", "... c"},
    {"scale", DIMS, GRAD, "of each class", "c"},
    {"bias", DIMS, GRAD | OPT, "of each class", "c"}};
static const smx_port matrix_in[] = {
    {"logits", DIMS, GRAD, "of the classes, all finite", "... c"},
    {"weight", DIMS, GRAD, "of each new logit (rows) and each old one", "c c"},
    {"bias", DIMS, GRAD | OPT, "of each class", "c"}};
static const smx_port logits_out[] = {{"scaled", DIMS, 0, "the new logits", "... c"}};

static const smx_port binary_in[] = {{"score", DIMS, 0, "of each row", "n"}, POSITIVE};
static const smx_port chance_in[] = {
    {"chance", DIMS, 0, "the probability that was given to each row, between 0 and 1", "n"}, POSITIVE};
static const smx_port platt_out[] = {
    {"slope", DIMS, 0, "A; negative where large scores mean positive", ""},
    {"offset", DIMS, 0, "B", ""},
    {"loss", DIMS, OPT, "the mean of the negative log-likelihood", ""}};
static const smx_port beta_out[] = {
    {"a", DIMS, 0, "of log p, at least 0", ""},
    {"b", DIMS, 0, "of -log(1 - p), at least 0", ""},
    {"c", DIMS, 0, "the offset", ""},
    {"loss", DIMS, OPT, "the mean of the negative log-likelihood", ""}};
static const smx_port score_in[] = {{"score", DIMS, GRAD, "any number", "..."}};
static const smx_port probability_in[] = {{"chance", DIMS, GRAD, "probabilities", "..."}};
static const smx_port calibrated_out[] = {{"calibrated", DIMS, 0, "the probability", "..."}};
static const smx_param platt_params[] = {ANY("slope", "A", -1), ANY("offset", "B", 0)};
static const smx_param beta_params[] = {
    PENALTY("a", "of log p", 1), PENALTY("b", "of -log(1 - p)", 1), ANY("c", "the offset", 0)};

static const smx_port isotonic_in[] = {
    {"score", DIMS, 0, "of each row", "n"},
    {"value", DIMS, 0, "what it should be: 0 and 1 of what is so and what is not, or any number", "n"},
    {"weight", DIMS, OPT, "of each row, positive or 0; 1 without", "n"}};
static const smx_port isotonic_out[] = {
    {"x", DIMS, 0, "scores at which the curve bends, rising; the last again to the end", "n"},
    {"y", DIMS, 0, "the value there", "n"},
    {"count", DIMS, SMX_PORT_INT, "how many there are", ""}};
static const smx_port curve_in[] = {
    {"score", DIMS, 0, "any number", "..."},
    {"x", DIMS, 0, "where the curve bends, rising", "k"},
    {"y", DIMS, 0, "the value there", "k"}};
static const smx_port value_out[] = {{"value", DIMS, 0, "that of the curve", "..."}};
static const smx_port bins_in[] = {
    {"confidence", DIMS, 0, "probabilities", "..."},
    {"accuracy", DIMS, 0, "of each bin, as calibration_error gives it; NaN: the bin's middle", "bins"}};
static const char *const sides[] = {"right", "left", NULL};
static const smx_param bins_params[] = {
    {"closed", "right: (a, b], and 0; left: [a, b), and 1", 0, 0, 1, SMX_PARAM_INT, sides}};

#define NOISE(dims) \
  {"noise", DIMS, OPT, "uniform numbers, of probabilities: sets of exactly the coverage (adaptive)", dims}
static const smx_port conformal_in[] = {
    {"logits", DIMS, 0, "of each row and class", "n c"}, TARGETS, NOISE("n")};
static const smx_port threshold_out[] = {
    {"threshold", DIMS, 0, "what the score of a member is not above; inf of too few rows", ""}};
static const smx_port sets_in[] = {{"logits", DIMS, 0, "of the classes", "... c"}, NOISE("...")};
static const smx_port sets_out[] = {
    {"member", DIMS, SMX_PORT_INT, "1 of a class that is in the set of its row, else 0", "... c"},
    {"size", DIMS, SMX_PORT_INT, "how many are", "..."}};
static const char *const methods[] = {"least", "adaptive", NULL}, *const no_yes[] = {"no", "yes", NULL};
#define METHOD \
  {"method", "the score: -p; or the sum of p to the class, largest first", 0, 0, 1, SMX_PARAM_INT, methods}, \
  PENALTY("penalty", "for each place behind rank, of adaptive", 0), \
  {"rank", "places without the penalty", 0, 0, 1e9, SMX_PARAM_INT, NULL}
static const smx_param conformal_params[] = {
    {"coverage", "the probability that a set has the true class", 0.9, 0, 1, 0, NULL}, METHOD};
static const smx_param sets_params[] = {
    {"threshold", "of conformal_fit, by the same method", 0, -1e30, __builtin_inf(), 0, NULL}, METHOD,
    {"empty", "whether a set may be; else it has the most probable class", 0, 0, 1, SMX_PARAM_INT, no_yes}};

static const smx_port numbers_in[] = {{"features", DIMS, 0, "of rows that are known", "..."}};
static const smx_port cut_out[] = {{"threshold", DIMS, 0, "of react", ""}};
static const smx_param cut_params[] = {
    {"percentile", "the share of all numbers, in percent, that is below", 90, 0, 100, 0, NULL}};

#define TEMPERATURE {"temperature", "the logits are divided by it", 1, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL}
#define COUNTS {"count", DIMS, SMX_PORT_INT, "how many rows each class has", "c"}
static const smx_port score_out[] = {{"score", DIMS, 0, "of each row", "..."}};
static const smx_port templates_in[] = {
    {"logits", DIMS, 0, "of each row and class", "n c"},
    {"target", DIMS, TARGET | OPT, "the class whose template a row goes to; -1: none", "n | < c"}};
static const smx_port templates_out[] = {
    {"template", DIMS, 0, "the mean of the probabilities of each class; 0 without rows", "c c"}, COUNTS};
static const smx_port matching_in[] = {
    {"logits", DIMS, 0, "of the classes", "... c"},
    {"template", DIMS, 0, "probabilities, a row for each template", "k c"}};
static const smx_port matching_out[] = {
    {"score", DIMS, 0, "of each row", "..."},
    {"nearest", DIMS, SMX_PORT_INT | OPT, "the template with the least divergence; -1: none", "..."}};
static const smx_port centroid_out[] = {
    {"mean", DIMS, 0, "of the probabilities of the right rows of each class", "c c"},
    {"threshold", DIMS, 0, "the least distance of a wrong row of each class; inf: none", "c"}, COUNTS};
static const smx_port centroid_in[] = {
    {"logits", DIMS, 0, "of the classes", "... c"},
    {"mean", DIMS, 0, "of each class", "c c"},
    {"threshold", DIMS, 0, "of each class", "c"}};
static const smx_port distance_out[] = {
    {"score", DIMS, 0, "of each row", "..."},
    {"accepted", DIMS, SMX_PORT_INT, "1 where the distance is below the threshold of the class", "..."}};
static const smx_port relation_out[] = {
    {"matrix", DIMS, 0, "D, symmetric, of norm 1", "c c"}};
static const smx_port relation_in[] = {
    {"logits", DIMS, GRAD, "of the classes", "... c"},
    {"matrix", DIMS, SMX_PORT_SAVED, "D", "c c"}};
static const smx_param relation_params[] = {
    TEMPERATURE, {"lambda", "the weight of wrong rows, 1 - lambda that of right ones", 0.5, 0, 1, 0, NULL}};
static const smx_param temperature_params[] = {TEMPERATURE};

static const smx_port space_in[] = {
    {"features", DIMS, 0, "of each row", "n d"},
    {"target", DIMS, TARGET, "the class of each row; -1: the row does not count", "n | < classes"}};
static const smx_port space_out[] = {
    {"mean", DIMS, 0, "of the features of each class", "classes d"},
    {"whiten", DIMS, 0, "what makes the covariance around them 1", "d d"},
    {"count", DIMS, SMX_PORT_INT, "how many rows each class has", "classes"},
    {"mean_all", DIMS, OPT, "of the features of all rows", "d"},
    {"whiten_all", DIMS, OPT, "what makes the covariance around it 1", "d d"}};
#define CLASSES {"classes", "how many there are", 10, 1, 1e5, SMX_PARAM_INT, NULL}
static const smx_param space_params[] = {
    CLASSES, PENALTY("ridge", "times the mean variance, added to each variance; 0: the paper's", 1e-6)};
static const smx_port whitened_in[] = {
    {"features", DIMS, GRAD, "of each row", "... d"},
    {"mean", DIMS, SMX_PORT_SAVED, "of each class", "k d"},
    {"whiten", DIMS, SMX_PORT_SAVED, "of mahalanobis_fit", "d d"},
    {"mean_all", DIMS, SMX_PORT_SAVED | OPT, "of all rows, for the relative score", "d"},
    {"whiten_all", DIMS, SMX_PORT_SAVED | OPT, "the same", "d d"}};
static const smx_port nearest_out[] = {
    {"score", DIMS, 0, "of each row", "..."},
    {"nearest", DIMS, SMX_PORT_INT | OPT, "the class whose mean is nearest; -1: none", "..."}};
static const smx_port vim_fit_in[] = {
    {"features", DIMS, 0, "of each row, before the last layer", "n d"},
    {"weight", DIMS, 0, "of the last layer", "c d"},
    {"bias", DIMS, OPT, "of the last layer", "c"}};
static const smx_port vim_fit_out[] = {
    {"origin", DIMS, 0, "u, where the logits are nearest to 0", "d"},
    {"residual", DIMS, 0, "the projector on what known features leave free", "d d"},
    {"alpha", DIMS, 0, "what a length there counts", ""}};
static const smx_param vim_fit_params[] = {
    {"dim", "of the space of known features; 0: 1000 of 2048, 512 of 768, else half", 0, 0, 1e6,
     SMX_PARAM_INT, NULL}};
static const smx_port spectrum_in[] = {
    {"x", DIMS, 0, "the weights of each class, or features, row by row", "n d"}};
static const smx_port spectrum_out[] = {
    {"singular_entropy", DIMS, 0, "distance of the spectrum from an even one, in nats", ""},
    {"effective_rank", DIMS, 0, "the number of directions of an even spectrum as wide", ""},
    {"stable_rank", DIMS, 0, "the same by squares, against the largest", ""},
    {"anisotropy", DIMS, 0, "the mean cosine of two rows", ""},
    {"singular_values", DIMS, 0, "the largest first; r = min(n, d)", "r"}};
static const char *const spectrum_shares[] = {"values", "squares", NULL};
static const smx_param spectrum_params[] = {
    {"shares", "of which the entropy is", 0, 0, 1, SMX_PARAM_INT, spectrum_shares}};
static const smx_port rank_in[] = {
    {"h", DIMS, 0, "features, a row for each token or image", "n d"},
    {"w", DIMS, 0, "the weights of each class", "c d"},
    TARGETS,
    {"rank", DIMS, SMX_PORT_INT, "directions that are kept, 0..d, as often as there are", "k"},
    {"bias", DIMS, OPT, "added to the logits", "c"}};
static const smx_port rank_out[] = {
    {"loss", DIMS, 0, "the mean cross-entropy of the rows that count, for each rank", "k"},
    {"kept", DIMS, OPT, "the share of the squares of w that the rank keeps", "k"}};
static const smx_port vim_in[] = {
    {"features", DIMS, 0, "of each row", "... d"},
    {"origin", DIMS, 0, "of vim_fit", "d"},
    {"residual", DIMS, 0, "of vim_fit", "d d"},
    {"logits", DIMS, OPT, "of the classes", "... c"}};
static const smx_port vim_out[] = {
    {"score", DIMS, 0, "of each row", "..."},
    {"norm", DIMS, OPT, "|residual (features - origin)|", "..."}};
static const smx_param vim_params[] = {PENALTY("alpha", "of vim_fit", 1)};
static const char *const metrics[] = {"distance", "square", NULL};
static const smx_port bank_in[] = {
    {"features", DIMS, 0, "of each row", "... d"},
    {"bank", DIMS, 0, "features of known rows", "n d"}};
static const smx_param knn_params[] = {
    {"k", "which neighbour counts", 50, 1, 1e9, SMX_PARAM_INT, NULL},
    {"metric", "the distance, or its square as FAISS has it", 0, 0, 1, SMX_PARAM_INT, metrics},
    {"normalise", "divides features by their length", 1, 0, 1, SMX_PARAM_INT, no_yes}};
static const smx_port trust_in[] = {
    {"features", DIMS, 0, "of each row", "... d"},
    {"bank", DIMS, 0, "features of known rows", "n d"},
    {"label", DIMS, TARGET, "the class of each of them; -1: it does not count", "n | < classes"},
    {"chosen", DIMS, TARGET, "the class that was chosen for each row; -1: none", "... | < classes"}};
static const smx_param trust_params[] = {CLASSES};
#include "table_trust_ports.inc"

#define FITTED(name_, id_) .id = id_, .name = #name_, .family = "fit"

const smx_op fit_table[FIT_COUNT] = {
    [FIT_temperature_fit] = {
        FITTED(temperature_fit, 481), .tolerance = 16,
        .title = "the temperature with the least loss",
        .formula = "temperature = argmin_T mean -log softmax(logits / T)_target",
        .about = "Between 2^-10, where every row is right, and 2^10, where the logits tell nothing. The "
                 "loss is convex in 1 / T, and the root of its derivative is bracketed to the last "
                 "digits, so there is nothing to choose and nothing that fails to converge. Logits of "
                 "-inf are absent classes. Without rows that count: 1, with losses NaN; so too with a "
                 "NaN, or a target at -inf. Apply it as softmax with this temperature.",
        .source = "On Calibration of Modern Neural Networks (Guo et al. 2017)",
        .example = "softmax run temperature_fit logits.npy --target targets.npy",
        INPUTS(set_in), OUTPUTS(temperature_out)},
    [FIT_vector_scaling_fit] = {
        FITTED(vector_scaling_fit, 482), .tolerance = 1 << 17,
        .title = "a scale and a bias for each class, with the least loss",
        .formula = "argmin mean -log softmax(scale logits + bias)_target + l2 mean (scale - 1)^2 + "
                   "l2_bias mean bias^2",
        .about = "By L-BFGS in double, from scale 1 and bias 0 on. With l2 above 0 there is one minimum, "
                 "also where a map could part all classes. Without rows that count, or with a NaN or a "
                 "target at -inf, the map is the identity and the losses are NaN.",
        .source = "On Calibration of Modern Neural Networks (Guo et al. 2017)",
        .example = "softmax run vector_scaling_fit logits.npy --target targets.npy",
        INPUTS(set_in), OUTPUTS(vector_out), PARAMS(vector_params)},
    [FIT_matrix_scaling_fit] = {
        FITTED(matrix_scaling_fit, 483), .tolerance = 1 << 20,
        .title = "a matrix and a bias, with the least loss",
        .formula = "argmin mean -log softmax(W logits + bias)_target + penalties",
        .about = "By L-BFGS in double, from the identity on; products as linear_cross_entropy has them. "
                 "Of log-probabilities it is Dirichlet calibration. The logits are finite; otherwise as "
                 "vector_scaling_fit.",
        .source = "Beyond Temperature Scaling (Kull et al. 2019): ODIR",
        .example = "softmax run matrix_scaling_fit logits.npy --target targets.npy",
        INPUTS(set_in), OUTPUTS(matrix_out), PARAMS(matrix_params)},
    [FIT_vector_scaling] = {
        FITTED(vector_scaling, 484), .flags = BACKWARD, .tolerance = 16,
        .title = "logits times a scale, plus a bias, of each class",
        .formula = "scaled = scale logits + bias",
        .about = "A logit of -inf stays -inf, whatever the scale, and has no gradient.",
        .source = "On Calibration of Modern Neural Networks (Guo et al. 2017)",
        .example = "softmax run vector_scaling logits.npy --scale w.npy --bias b.npy",
        INPUTS(vector_in), OUTPUTS(logits_out)},
    [FIT_matrix_scaling] = {
        FITTED(matrix_scaling, 485), .flags = BACKWARD, .tolerance = 64,
        .title = "logits times a matrix, plus a bias",
        .formula = "scaled = W logits + bias",
        .about = "Sums as smx_linear_logits has them.",
        .source = "On Calibration of Modern Neural Networks (Guo et al. 2017)",
        .example = "softmax run matrix_scaling logits.npy --weight w.npy --bias b.npy",
        INPUTS(matrix_in), OUTPUTS(logits_out)},
    [FIT_platt_fit] = {
        FITTED(platt_fit, 486), .tolerance = 4096,
        .title = "a sigmoid from scores to probabilities",
        .formula = "argmin -sum t log p + (1 - t) log(1 - p), p = 1 / (1 + e^(slope score + offset))",
        .about = "t is (N+ + 1) / (N+ + 2) of a positive row and 1 / (N- + 2) of another, so that the "
                 "loss has a minimum where a threshold parts the rows. Newton's method. A number that is "
                 "not finite, or no row: NaN.",
        .source = "Probabilistic Outputs for Support Vector Machines (Platt 1999), as Lin, Lin, Weng "
                  "(2007) solve it",
        .example = "softmax run platt_fit scores.npy --positive is.npy",
        INPUTS(binary_in), OUTPUTS(platt_out)},
    [FIT_beta_fit] = {
        FITTED(beta_fit, 487), .tolerance = 1e6,
        .title = "a map from probabilities to probabilities, of three parameters",
        .formula = "argmin -sum t log q + (1 - t) log(1 - q), q = 1 / (1 + e^-(a log p - b log(1 - p) + c))",
        .about = "a and b are at least 0, so the map rises. Targets t as in platt_fit. p is taken between "
                 "2^-52 and 1 - 2^-52. A number that is not finite, or no row: NaN.",
        .source = "Beta calibration (Kull, Silva Filho, Flach 2017)",
        .example = "softmax run beta_fit chances.npy --positive is.npy",
        INPUTS(chance_in), OUTPUTS(beta_out)},
    [FIT_platt_scaling] = {
        FITTED(platt_scaling, 488), .flags = BACKWARD, .tolerance = 16,
        .title = "the sigmoid of platt_fit",
        .formula = "calibrated = 1 / (1 + e^(slope score + offset))",
        .about = "Its defaults make it the sigmoid.",
        .source = "Probabilistic Outputs for Support Vector Machines (Platt 1999)",
        .example = "softmax run platt_scaling scores.npy --slope -0.7 --offset -0.2",
        INPUTS(score_in), OUTPUTS(calibrated_out), PARAMS(platt_params)},
    [FIT_beta_scaling] = {
        FITTED(beta_scaling, 489), .flags = BACKWARD, .tolerance = 16,
        .title = "the map of beta_fit",
        .formula = "calibrated = 1 / (1 + e^-(a log p - b log(1 - p) + c)), p = chance",
        .about = "Its defaults leave p as it is. p is taken between 2^-52 and 1 - 2^-52.",
        .source = "Beta calibration (Kull, Silva Filho, Flach 2017)",
        .example = "softmax run beta_scaling chances.npy --a 0.8 --b 1.2 --c 0.1",
        INPUTS(probability_in), OUTPUTS(calibrated_out), PARAMS(beta_params)},
    [FIT_isotonic_fit] = {
        FITTED(isotonic_fit, 490), .tolerance = 16,
        .title = "the rising curve that is nearest to values",
        .formula = "argmin sum weight (curve(score) - value)^2 over curves that do not fall",
        .about = "Rows of equal scores are one first; then adjacent ones are pooled while they fall. x "
                 "and y are where each pool begins and ends. Rows of weight 0 do not count. No row, or a "
                 "NaN: count 0, and NaN.",
        .source = "Active Set Algorithms for Isotonic Regression (Best, Chakravarti 1990); scikit-learn's "
                  "IsotonicRegression",
        .example = "softmax run isotonic_fit scores.npy --value is.npy",
        INPUTS(isotonic_in), OUTPUTS(isotonic_out)},
    [FIT_isotonic] = {
        FITTED(isotonic, 491), .tolerance = 16,
        .title = "the curve of isotonic_fit",
        .formula = "value = y at score, linear between the x, and y's first and last beyond them",
        .about = "A NaN stays one. Beside a bend at infinity it has the value of the other one. It takes the "
                 "outputs of isotonic_fit as they are.",
        .source = "scikit-learn's IsotonicRegression(out_of_bounds=\"clip\")",
        .example = "softmax run isotonic scores.npy --x x.npy --y y.npy",
        INPUTS(curve_in), OUTPUTS(value_out)},
    [FIT_histogram_binning] = {
        FITTED(histogram_binning, 492), .tolerance = 16,
        .title = "the accuracy of the bin that a confidence is in",
        .formula = "value = accuracy of bin b, b / bins < confidence <= (b + 1) / bins",
        .about = "Its fit is calibration_error, output accuracy. A confidence below 0 is in the first "
                 "bin, one above 1 in the last; a NaN stays one.",
        .source = "Obtaining calibrated probability estimates (Zadrozny, Elkan 2001)",
        .example = "softmax run histogram_binning confidence.npy --accuracy bins.npy",
        INPUTS(bins_in), OUTPUTS(value_out), PARAMS(bins_params)},
    [FIT_conformal_fit] = {
        FITTED(conformal_fit, 493), .tolerance = 16,
        .title = "the threshold of sets of classes that have the true one",
        .formula = "threshold = the k-th smallest score of a target, k = ceil((n + 1) coverage)",
        .about = "The score is -p of the target; or, adaptive, the sum of the probabilities to it, the "
                 "largest first, less noise times its own, plus penalty times the places behind rank "
                 "(RAPS). k above n: inf, and a set is of all classes. A NaN in a row that counts: NaN.",
        .source = "Least Ambiguous Set-Valued Classifiers (Sadinle et al. 2019); Classification with Valid "
                  "and Adaptive Coverage (Romano et al. 2020); Uncertainty Sets (Angelopoulos et al. 2021)",
        .example = "softmax run conformal_fit logits.npy --target targets.npy --coverage 0.9",
        INPUTS(conformal_in), OUTPUTS(threshold_out), PARAMS(conformal_params)},
    [FIT_conformal_sets] = {
        FITTED(conformal_sets, 494), .tolerance = 1,
        .title = "sets of classes, of which a chosen share has the true one",
        .formula = "set = the classes whose score is not above threshold",
        .about = "Scores, method, penalty and rank as in conformal_fit. Rows that are drawn as those of "
                 "the fit have the true class in the set with at least its coverage. The class whose sum "
                 "crosses the threshold is not in the set, as it is with MAPIE's include_last_label. A row "
                 "with a NaN, or without classes: none.",
        .source = "Least Ambiguous Set-Valued Classifiers (Sadinle et al. 2019); Classification with Valid "
                  "and Adaptive Coverage (Romano et al. 2020)",
        .example = "softmax run conformal_sets logits.npy --threshold -0.3",
        INPUTS(sets_in), OUTPUTS(sets_out), PARAMS(sets_params)},
    [FIT_react_fit] = {
        FITTED(react_fit, 505), .tolerance = 4,
        .title = "the threshold of react, a percentile of features",
        .formula = "threshold = the percentile of all numbers, linear between two of them",
        .about = "As numpy.percentile. Without numbers, or with a NaN: NaN. 90 in the paper and OpenOOD.",
        .source = "ReAct: Out-of-distribution Detection With Rectified Activations (Sun, Guo, Li 2021)",
        .example = "softmax run react_fit features.npy --percentile 95",
        INPUTS(numbers_in), OUTPUTS(cut_out), PARAMS(cut_params)},
    [FIT_kl_matching_fit] = {
        FITTED(kl_matching_fit, 506), .tolerance = 16,
        .title = "the typical probabilities of each class",
        .formula = "template_k = mean of softmax(logits) over the rows of class k",
        .about = "Without target a row goes to the class of its largest logit, as in OpenOOD and "
                 "pytorch-ood. A class without rows has zeros, which are infinitely far from every "
                 "row. A NaN, or no class, in a row that counts: NaN.",
        .source = "Scaling Out-of-Distribution Detection for Real-World Settings (Hendrycks et al. 2022)",
        .example = "softmax run kl_matching_fit logits.npy",
        INPUTS(templates_in), OUTPUTS(templates_out)},
    [FIT_kl_matching] = {
        FITTED(kl_matching, 507), .tolerance = 64,
        .title = "how near the probabilities are to some class's typical ones",
        .formula = "score = -min_k sum p log(p / template_k), p = softmax(logits)",
        .about = "Large is known. 0 log 0 is 0; a template of 0 where p is not is infinitely far, one with "
                 "a NaN is left out. A row with a NaN or without classes is NaN, one with +inf too, but "
                 "for on_inf = limit. No gradient.",
        .source = "Scaling Out-of-Distribution Detection for Real-World Settings (Hendrycks et al. 2022); "
                  "OpenOOD, haoqiwang/vim",
        .example = "softmax run kl_matching logits.npy --template templates.npy",
        INPUTS(matching_in), OUTPUTS(matching_out)},
    [FIT_centroid_fit] = {
        FITTED(centroid_fit, 508), .tolerance = 64,
        .title = "mean p of right rows, and where errors begin",
        .formula = "mean_k = mean of p over rows with argmax p = target = k; threshold_k = min |p - mean_k| "
                   "over rows with argmax p = k that are wrong",
        .about = "p = softmax(logits). A class without right rows has its corner as mean: 1 at the class. A "
                 "class without wrong rows has threshold inf. A NaN in a row that counts: NaN. From the "
                 "abstract of the paper, whose code is not public.",
        .source = "When to Accept Automated Predictions and When to Defer to Human Judgment? (2024)",
        .example = "softmax run centroid_fit logits.npy --target targets.npy",
        INPUTS(set_in), OUTPUTS(centroid_out)},
    [FIT_centroid_distance] = {
        FITTED(centroid_distance, 509), .tolerance = 64,
        .title = "how near p is to that of right rows",
        .formula = "score = -|p - mean_k|, k = argmax p, p = softmax(logits); accepted: |p - mean_k| < "
                   "threshold_k",
        .about = "Large is sure. Of equal probabilities the first class. A row with a NaN or without classes "
                 "is NaN and is not accepted. No gradient.",
        .source = "When to Accept Automated Predictions and When to Defer to Human Judgment? (2024)",
        .example = "softmax run centroid_distance logits.npy --mean mean.npy --threshold threshold.npy",
        INPUTS(centroid_in), OUTPUTS(distance_out)},
    [FIT_relative_uncertainty_fit] = {
        FITTED(relative_uncertainty_fit, 510), .tolerance = 64,
        .title = "classes taken for each other",
        .formula = "D = max(0, lambda mean_wrong p p^T - (1 - lambda) mean_right p p^T) off the diagonal, "
                   "over its norm",
        .about = "p = softmax(logits / temperature); wrong: argmax p is not the target. Without a positive "
                 "element, so too without wrong rows, all off the diagonal are equal: the score of gini. A "
                 "NaN in a row that counts: NaN.",
        .source = "A Data-Driven Measure of Relative Uncertainty for Misclassification Detection (Dias et al."
                  " 2024); edadaltocg/relative-uncertainty",
        .example = "softmax run relative_uncertainty_fit logits.npy --target targets.npy",
        INPUTS(set_in), OUTPUTS(relation_out), PARAMS(relation_params)},
    [FIT_relative_uncertainty] = {
        FITTED(relative_uncertainty, 511), .flags = BACKWARD, .tolerance = 64,
        .title = "spread of p over classes taken for each other",
        .formula = "score = p^T D p, p = softmax(logits / temperature)",
        .about = "Large is unsure. A row with a NaN or without classes is NaN, one with +inf too, but for "
                 "on_inf = limit. Gradient: of the logits.",
        .source = "A Data-Driven Measure of Relative Uncertainty for Misclassification Detection (Dias et al."
                  " 2024)",
        .example = "softmax run relative_uncertainty logits.npy --matrix d.npy",
        INPUTS(relation_in), OUTPUTS(score_out), PARAMS(temperature_params)},
#include "table_space.inc"
#include "table_trust.inc"
};
