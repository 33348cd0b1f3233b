/* score/table.c - the facts about each operator that says how sure a row is. The command, the
 * bindings, the tests and the manual all read this. */
#include "score.h"

#define COUNT(a) ((int32_t)(sizeof(a) / sizeof *(a)))
#define INPUTS(a) .inputs = a, .input_count = COUNT(a)
#define OUTPUTS(a) .outputs = a, .output_count = COUNT(a)
#define PARAMS(a) .params = a, .param_count = COUNT(a)
#define DIMS SMX_SHAPE_DIMS

enum {
  GRAD = SMX_PORT_GRAD | SMX_PORT_SAVED,
  TARGET = SMX_PORT_INT | SMX_PORT_TARGET | SMX_PORT_SAVED,
  BACKWARD = SMX_OP_BACKWARD
};

static const smx_port logits_in[] = {{"logits", DIMS, GRAD, "of the classes", "... c"}};
static const smx_port target_in[] = {
    {"logits", DIMS, GRAD, "of the classes", "... c"},
    {"target", DIMS, TARGET, "the class of each row; -1: it has none, and score NaN", "... | < c"}};
static const smx_port score_out[] = {{"score", DIMS, 0, "of each row", "..."}};

static const char *const no_yes[] = {"no", "yes", NULL}, *const forms[] = {"l1", "tv", NULL};
#define TEMPERATURE {"temperature", "the logits are divided by it", 1, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL}
#define ORDER {"order", "a; 1: the entropy of Shannon, from which it does not jump", 2, 0, 1e6, 0, NULL}
#define NORMALISE(what, choices) {"normalise", what, 0, 0, 1, SMX_PARAM_INT, choices}

static const smx_param plain_params[] = {TEMPERATURE}, order_params[] = {TEMPERATURE, ORDER};
static const smx_param least_params[] = {TEMPERATURE,
                                         NORMALISE("divides by the most it can be, (c - 1) / c", no_yes)};
static const smx_param entropy_params[] = {TEMPERATURE,
                                           NORMALISE("divides by the most it can be, log c", no_yes)};
static const smx_param uniform_params[] = {
    TEMPERATURE, NORMALISE("l1: the sum, at most 2 (1 - 1/c); tv: its half, the total variation", forms)};
static const smx_param true_params[] = {TEMPERATURE, NORMALISE("divides by the largest probability", no_yes)};

static const smx_port ensemble_in[] = {
    {"logits", DIMS, GRAD, "of each prediction and class", "... m c"}};
static const smx_port ensemble_out[] = {
    {"information", DIMS, 0, "mutual information (BALD): what the predictions disagree about", "..."},
    {"entropy", DIMS, SMX_PORT_OPTIONAL, "of the mean of the probabilities", "..."},
    {"expected", DIMS, SMX_PORT_OPTIONAL, "the mean of the entropies", "..."},
    {"similarity", DIMS, SMX_PORT_OPTIONAL, "the mean of p_a p_b over two different predictions", "..."},
    {"variance", DIMS, SMX_PORT_OPTIONAL, "of the probabilities, added up over the classes", "..."},
    {"variation", DIMS, SMX_PORT_OPTIONAL, "the share of votes that the first class does not have", "..."},
    {"votes", DIMS, SMX_PORT_OPTIONAL, "the entropy of the votes", "..."},
    {"pairwise", DIMS, SMX_PORT_OPTIONAL, "the mean of KL(p_a || p_b) over two different ones", "..."}};

static const smx_port tokens_in[] = {
    {"logits", DIMS, GRAD, "of each token of a sequence, and class", "... t v"},
    {"token", DIMS, TARGET, "the token that followed; -1: it does not count, as those of a prompt",
     "... t | < v"}};
static const smx_port tokens_out[] = {
    {"log_probability", DIMS, 0, "the mean of those of the tokens", "..."},
    {"entropy", DIMS, SMX_PORT_OPTIONAL, "the mean over the tokens", "..."},
    {"variance", DIMS, SMX_PORT_OPTIONAL, "the mean of that of the log-probabilities of a row", "..."},
    {"least", DIMS, SMX_PORT_OPTIONAL, "the least log-probability", "..."},
    {"perplexity", DIMS, SMX_PORT_OPTIONAL, "e^-log_probability", "..."},
    {"length", DIMS, SMX_PORT_INT | SMX_PORT_OPTIONAL, "how many tokens count", "..."}};

static const smx_port evidence_out[] = {
    {"probability", DIMS, 0, "the mean of the Dirichlet distribution", "... c"},
    {"vacuity", DIMS, SMX_PORT_OPTIONAL, "1 without evidence, near 0 with much", "..."}};
static const char *const evidences[] = {"relu", "softplus", "exp", NULL};
static const smx_param evidence_params[] = {
    {"evidence", "of a logit; exp: of one within -10 and 10", 0, 0, 2, SMX_PARAM_INT, evidences}};

#define OPT SMX_PORT_OPTIONAL
#define WEIGHTS "Rows of weight 0 do not count, and whole numbers count copies of a row."
#define OF_ROW_WEIGHT {"weight", DIMS, OPT, "of each row, positive or 0; 1 without", "... n"}
static const smx_port ranking_in[] = {
    {"score", DIMS, 0, "of each row: large means positive", "... n"},
    {"positive", DIMS, SMX_PORT_MASK, "nonzero = the row is one of those to be found", "... n"},
    OF_ROW_WEIGHT};
static const smx_port ranking_out[] = {
    {"auroc", DIMS, 0, "how likely a positive is above a negative; half where they are equal", "..."},
    {"average_precision", DIMS, OPT, "the sum over thresholds of the gain of recall times precision", "..."},
    {"average_precision_negative", DIMS, OPT, "that of the negatives, whose scores are small", "..."},
    {"fpr", DIMS, OPT, "the least false positive rate where the true positive rate is at least tpr", "..."},
    {"detection_error", DIMS, OPT, "the least mean of both error rates", "..."}};
static const smx_param ranking_params[] = {{"tpr", "the true positive rate of fpr", 0.95, 0, 1, 0, NULL}};

static const smx_port calibration_in[] = {
    {"confidence", DIMS, 0, "the probability of the class that was chosen, of each row", "... n"},
    {"correct", DIMS, SMX_PORT_MASK, "nonzero = it was right", "... n"},
    OF_ROW_WEIGHT};
static const smx_port calibration_out[] = {
    {"ece", DIMS, 0, "the mean of |accuracy - confidence| over the bins, by their rows", "..."},
    {"mce", DIMS, OPT, "the largest of them", "..."},
    {"rms", DIMS, OPT, "the root of the mean of their squares, by their rows", "..."},
    {"adaptive", DIMS, OPT, "ece of as many bins with as many rows each", "..."},
    {"ks", DIMS, OPT, "without bins: the largest |sum of correct - confidence| / n to a confidence", "..."},
    {"count", DIMS, SMX_PORT_INT | OPT, "rows of each bin; -1 with weights that are no copies", "... bins"},
    {"mean", DIMS, OPT, "the mean confidence of each bin; NaN of none", "... bins"},
    {"accuracy", DIMS, OPT, "of each bin; NaN of none", "... bins"}};
static const char *const sides[] = {"right", "left", NULL};
static const smx_param calibration_params[] = {
    {"bins", "of equal width", 15, 1, 1e6, SMX_PARAM_INT, NULL},
    {"closed", "right: (a, b], and 0; left: [a, b), and 1", 0, 0, 1, SMX_PARAM_INT, sides}};

static const smx_port risk_in[] = {
    {"confidence", DIMS, 0, "of each row: large is served first", "... n"},
    {"loss", DIMS, 0, "of each row, 1 for an error, say", "... n"},
    OF_ROW_WEIGHT};
static const smx_port risk_out[] = {
    {"aurc", DIMS, 0, "the mean of the risks", "..."},
    {"excess", DIMS, OPT, "what it is above that of the best order", "..."},
    {"risk", DIMS, OPT, "the mean loss of the 1, 2, ... n most confident rows", "... n"}};

static const smx_port confusion_in[] = {
    {"prediction", DIMS, SMX_PORT_INT | SMX_PORT_TARGET, "the class that was chosen", "... n | < classes"},
    {"target", DIMS, SMX_PORT_INT | SMX_PORT_TARGET, "the true class; -1: the row does not count",
     "... n | < classes"},
    OF_ROW_WEIGHT};
static const smx_port confusion_out[] = {
    {"accuracy", DIMS, 0, "the share of rows that are right, which is micro F1 too", "..."},
    {"macro_f1", DIMS, OPT, "the mean of f1 over the classes that are predicted or true", "..."},
    {"balanced_accuracy", DIMS, OPT, "the mean of recall over the true classes", "..."},
    {"matthews", DIMS, OPT, "the correlation of predictions and targets", "..."},
    {"confusion", DIMS, SMX_PORT_INT | OPT,
     "rows of each target (rows) and prediction (columns); -1 with weights that are no copies",
     "... classes classes"},
    {"precision", DIMS, OPT, "of each class; 0 of what is never predicted", "... classes"},
    {"recall", DIMS, OPT, "of each class; 0 of what is never true", "... classes"},
    {"f1", DIMS, OPT, "of each class", "... classes"}};
static const smx_param confusion_params[] = {
    {"classes", "how many there are", 10, 1, 1e5, SMX_PARAM_INT, NULL}};

static const smx_param generalised_params[] = {
    TEMPERATURE,
    {"gamma", "the power g; a small one tells apart what is unlikely", 0.1, 0, 1, SMX_PARAM_OPEN_MIN, NULL},
    {"top", "how many classes count, the most probable ones", 100, 1, 1e9, SMX_PARAM_INT, NULL}};
static const smx_port features_in[] = {{"features", DIMS, 0, "of each row", "... d"}};
static const smx_port rectified_out[] = {{"rectified", DIMS, 0, "the new features", "... d"}};
static const char *const ash_forms[] = {"p", "b", "s", "scale", NULL};
static const smx_param ash_params[] = {
    {"percentile", "the share of a row, in percent, that is not kept", 65, 0, 100, 0, NULL},
    {"form", "p: prunes; b: and levels; s: and scales; scale: all are scaled", 0, 0, 3, SMX_PARAM_INT,
     ash_forms}};
static const smx_port react_in[] = {{"features", DIMS, GRAD, "any numbers", "..."}};
static const smx_port react_out[] = {{"rectified", DIMS, 0, "the new features", "..."}};
static const smx_param react_params[] = {{"threshold", "of react_fit", 1, -1e30, 1e30, 0, NULL}};
static const smx_port odin_in[] = {
    {"x", DIMS, 0, "what the network reads", "..."},
    {"gradient", DIMS, 0, "that of the loss by x", "..."},
    {"scale", DIMS, OPT, "positive: the deviation that x was divided by; 1 without", "..."}};
static const smx_port odin_out[] = {{"perturbed", DIMS, 0, "what the network is to read instead", "..."}};
static const smx_param odin_params[] = {{"step", "how far", 0.0014, 0, 1e30, 0, NULL}};
static const smx_port odin_rows_in[] = {{"logits", DIMS, 0, "of the classes", "... c"}};
static const smx_port odin_rows_out[] = {
    {"score", DIMS, 0, "the largest p, near 1/c", "..."},
    {"centred", DIMS, 0, "the same, of as many digits as the logits have", "..."}};
static const smx_param odin_rows_params[] = {
    {"temperature", "the logits are divided by it", 1000, 0, 1e30, SMX_PARAM_OPEN_MIN, NULL}};

#include "table_sets_ports.inc"

#define OF_SET(name_, id_) .id = id_, .name = #name_, .family = "score"
#define SCORE(name_, id_) .id = id_, .name = #name_, .family = "score", .flags = BACKWARD, OUTPUTS(score_out)

const smx_op score_table[SCORE_COUNT] = {
    [SCORE_msp] = {
        SCORE(msp, 455), .tolerance = 16,
        .title = "the largest probability",
        .formula = "score = max p, p = softmax(z), z = logits / temperature",
        .about = "Large is sure. Between 1/c and 1. What holds for every score of a row: classes with "
                 "logit -inf are absent, and c counts the others; a row with a NaN is NaN, one with "
                 "+inf too, or with on_inf = limit the score of a row whose +inf entries share the "
                 "mass; a row without classes is NaN (energy and max_logit: -inf), without a gradient. "
                 "Of equal largest logits the first has the gradient. Sums are in double, page by page "
                 "of 1024 elements.",
        .source = "A Baseline for Detecting Misclassified and Out-of-Distribution Examples (Hendrycks, "
                  "Gimpel 2017); OpenOOD",
        .example = "softmax run msp logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_least_confidence] = {
        SCORE(least_confidence, 456), .tolerance = 16,
        .title = "1 less the largest probability",
        .formula = "score = 1 - max p, p = softmax(z), z = logits / temperature",
        .about = "Large is unsure. Without cancelling: the sum of the other probabilities, 8e-18 where "
                 "max p rounds to 1. One class: 0.",
        .source = "A Survey on Active Learning (Settles 2009); small-text",
        .example = "softmax run least_confidence logits.npy",
        INPUTS(logits_in), PARAMS(least_params)},
    [SCORE_margin] = {
        SCORE(margin, 457), .tolerance = 16,
        .title = "the largest probability less the next",
        .formula = "score = p(1) - p(2), p = softmax(z), z = logits / temperature",
        .about = "Large is sure. Without cancelling. One class: 1; equal largest ones: 0.",
        .source = "Active Hidden Markov Models (Scheffer et al. 2001); breaking ties in small-text",
        .example = "softmax run margin logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_ratio] = {
        SCORE(ratio, 458), .tolerance = 16,
        .title = "the second largest probability over the largest",
        .formula = "score = p(2) / p(1) = e^(z(2) - z(1)), z = logits / temperature",
        .about = "Large is unsure. One class: 0.",
        .source = "A Survey on Active Learning (Settles 2009)",
        .example = "softmax run ratio logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_max_logit] = {
        SCORE(max_logit, 459), .tolerance = 1,
        .title = "the largest logit",
        .formula = "score = max logits",
        .about = "Large is sure. Not divided by the temperature.",
        .source = "Scaling Out-of-Distribution Detection for Real-World Settings (Hendrycks et al. "
                  "2022)",
        .example = "softmax run max_logit logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_logit_margin] = {
        SCORE(logit_margin, 460), .tolerance = 2,
        .title = "the largest logit less the next",
        .formula = "score = logits(1) - logits(2) = temperature log(p(1) / p(2))",
        .about = "Large is sure. One class: inf.",
        .source = "Scaling Out-of-Distribution Detection for Real-World Settings (Hendrycks et al. "
                  "2022)",
        .example = "softmax run logit_margin logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_energy] = {
        SCORE(energy, 461), .tolerance = 16,
        .title = "the negative energy of a row, which is large for what is known",
        .formula = "score = temperature logsumexp(logits / temperature)",
        .about = "Large is sure: this is -E, as the paper scores with. pytorch-ood and the energy "
                 "itself have the other sign.",
        .source = "Energy-based Out-of-distribution Detection (Liu et al. 2020); wetliu/energy_ood",
        .example = "softmax run energy logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_entropy] = {
        SCORE(entropy, 462), .tolerance = 32,
        .title = "the entropy of the probabilities, in nats",
        .formula = "score = -sum p log p, p = softmax(z), z = logits / temperature",
        .about = "Large is unsure. Never below 0, and 0 log 0 is 0. One class: 0.",
        .source = "A Mathematical Theory of Communication (Shannon 1948); scipy.stats.entropy",
        .example = "softmax run entropy logits.npy --normalise yes",
        INPUTS(logits_in), PARAMS(entropy_params)},
    [SCORE_renyi_entropy] = {
        SCORE(renyi_entropy, 463), .tolerance = 64,
        .title = "the entropy of Renyi",
        .formula = "score = log(sum p^a) / (1 - a), p = softmax(z), z = logits / temperature",
        .about = "Large is unsure. a = 0: the logarithm of how many classes there are; 1: the entropy "
                 "of Shannon; large: -log max p. Near 1 without cancelling.",
        .source = "On Measures of Entropy and Information (Renyi 1961)",
        .example = "softmax run renyi_entropy logits.npy --order 2",
        INPUTS(logits_in), PARAMS(order_params)},
    [SCORE_tsallis_entropy] = {
        SCORE(tsallis_entropy, 464), .tolerance = 64,
        .title = "the entropy of Tsallis",
        .formula = "score = (1 - sum p^a) / (a - 1), p = softmax(z), z = logits / temperature",
        .about = "Large is unsure. a = 2: gini; 1: the entropy of Shannon. Near 1 without cancelling.",
        .source = "Possible Generalization of Boltzmann-Gibbs Statistics (Tsallis 1988)",
        .example = "softmax run tsallis_entropy logits.npy --order 1.5",
        INPUTS(logits_in), PARAMS(order_params)},
    [SCORE_gini] = {
        SCORE(gini, 465), .tolerance = 32,
        .title = "how likely two draws differ",
        .formula = "score = 1 - sum p^2 = sum p (1 - p), p = softmax(z), z = logits / temperature",
        .about = "Large is unsure. Without cancelling.",
        .source = "Classification and Regression Trees (Breiman et al. 1984)",
        .example = "softmax run gini logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_kl_to_uniform] = {
        SCORE(kl_to_uniform, 466), .tolerance = 32,
        .title = "how far the probabilities are from equal ones",
        .formula = "score = sum p log(p c) = log c - entropy, p = softmax(z), z = logits / temperature",
        .about = "Large is sure. Never below 0.",
        .source = "Deep Anomaly Detection with Outlier Exposure (Hendrycks et al. 2019)",
        .example = "softmax run kl_to_uniform logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_kl_from_uniform] = {
        SCORE(kl_from_uniform, 467), .tolerance = 32,
        .title = "how far equal probabilities are from those of the row",
        .formula = "score = -sum log(p c) / c = logsumexp(z) - mean(z) - log c, p = softmax(z), z = "
                   "logits / temperature",
        .about = "Large is sure. Never below 0.",
        .source = "On the Importance of Gradients for Detecting Distributional Shifts in the Wild "
                  "(Huang et al. 2021)",
        .example = "softmax run kl_from_uniform logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_logit_variance] = {
        SCORE(logit_variance, 468), .tolerance = 32,
        .title = "the variance of the logits, which is that of the log-probabilities",
        .formula = "score = sum (z - mean(z))^2 / (c - 1), z = logits / temperature",
        .about = "Large is sure. One class: NaN, as a variance of one number is.",
        .source = "Self-Evaluation of Large Language Model based on Glass-box Features (Huang et al. "
                  "2024)",
        .example = "softmax run logit_variance logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_label_non_uniformity] = {
        SCORE(label_non_uniformity, 469), .tolerance = 64,
        .title = "the distance of the probabilities from equal ones",
        .formula = "score = sum |p - 1/c|, p = softmax(z), z = logits / temperature",
        .about = "Large is sure. Gradient: with sgn(0) = 0.",
        .source = "Leveraging Label Non-Uniformity for Node Classification in Graph Neural Networks "
                  "(Ji et al. 2023); amblee0306/label-non-uniformity-gnn",
        .example = "softmax run label_non_uniformity logits.npy",
        INPUTS(logits_in), PARAMS(uniform_params)},
    [SCORE_doctor_alpha] = {
        SCORE(doctor_alpha, 470), .tolerance = 32,
        .title = "DOCTOR: how likely two draws differ, over how likely they agree",
        .formula = "score = (1 - g) / g, g = sum p^2, p = softmax(z), z = logits / temperature",
        .about = "Large is unsure. Without cancelling.",
        .source = "DOCTOR: A Simple Method for Detecting Misclassification Errors (Granese et al. "
                  "2021)",
        .example = "softmax run doctor_alpha logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_doctor_beta] = {
        SCORE(doctor_beta, 471), .tolerance = 32,
        .title = "DOCTOR: the odds that the largest is wrong",
        .formula = "score = (1 - max p) / max p, p = softmax(z), z = logits / temperature",
        .about = "Large is unsure. Without cancelling.",
        .source = "DOCTOR: A Simple Method for Detecting Misclassification Errors (Granese et al. "
                  "2021)",
        .example = "softmax run doctor_beta logits.npy",
        INPUTS(logits_in), PARAMS(plain_params)},
    [SCORE_true_class_probability] = {
        SCORE(true_class_probability, 472), .tolerance = 32,
        .title = "the probability of the class that is true",
        .formula = "score = p_target, or p_target / max p, p = softmax(z), z = logits / temperature",
        .about = "Large is right and sure; what a confidence is trained on.",
        .source = "Addressing Failure Prediction by Learning Model Confidence (Corbiere et al. 2019); "
                  "valeoai/ConfidNet",
        .example = "softmax run true_class_probability logits.npy target.npy",
        INPUTS(target_in), PARAMS(true_params)},
    [SCORE_brier_score] = {
        SCORE(brier_score, 479), .tolerance = 32,
        .title = "the squared distance of the probabilities from the truth",
        .formula = "score = sum_i (p_i - [i = target])^2, p = softmax(z), z = logits / temperature",
        .about = "Small is right and sure: between 0 and 2, and with two classes twice the score of "
                 "scikit-learn's brier_score_loss. Without cancelling where the target is the largest. "
                 "A proper score: its mean is least for the true probabilities.",
        .source = "Verification of Forecasts Expressed in Terms of Probability (Brier 1950)",
        .example = "softmax run brier_score logits.npy target.npy",
        INPUTS(target_in), PARAMS(plain_params)},
    [SCORE_ensemble_scores] = {
        .id = 473, .name = "ensemble_scores", .family = "score", .flags = BACKWARD, .tolerance = 64,
        .title = "what several predictions of a row agree about, and what not",
        .formula = "information = entropy - expected = sum_m KL(p_m || mean p) / m, p_m = "
                   "softmax(logits_m / temperature)",
        .about = "Predictions of an ensemble, or of one network with dropout. Large information, "
                 "variance, votes and pairwise are unsure; large similarity is sure. In double; "
                 "information does not cancel, and none is below 0. A vote is for the first of the "
                 "largest logits. With one prediction similarity and pairwise are NaN. A NaN, +inf or "
                 "a prediction without classes makes its row NaN. Gradients: of information, entropy, "
                 "expected and similarity.",
        .source = "BALD (Houlsby et al. 2011); vote entropy: Dagan, Engelson 1995; similarity: "
                  "Leveraging Ensemble Diversity for Robust Self-Training (Odonnat et al. 2024; "
                  "ambroiseodt/tsim); know your limits (Ulmer, Cina 2021)",
        .example = "softmax run ensemble_scores logits.npy",
        INPUTS(ensemble_in), .outputs = ensemble_out, .output_count = COUNT(ensemble_out),
        PARAMS(plain_params)},
    [SCORE_glassbox_features] = {
        .id = 474, .name = "glassbox_features", .family = "score", .flags = BACKWARD, .tolerance = 64,
        .title = "how sure a language model was of the tokens of a sequence",
        .formula = "log_probability = mean_t log p_t,token, entropy = mean_t -sum p log p, variance = "
                   "mean_t var(log p_t), p_t = softmax(logits_t / temperature)",
        .about = "Large log_probability, least and variance are sure, large entropy and perplexity are "
                 "not (the authors take the entropy with the other sign). The variance divides by v - "
                 "1; classes with logit -inf are left out of it. A sequence without tokens has NaN and "
                 "length 0. Gradients: of the first four; of least through the first of the least.",
        .source = "Self-Evaluation of Large Language Model based on Glass-box Features (Huang et al. "
                  "2024; HuihuiChyan/SelfEval)",
        .example = "softmax run glassbox_features logits.npy tokens.npy",
        INPUTS(tokens_in), .outputs = tokens_out, .output_count = COUNT(tokens_out), PARAMS(plain_params)},
    [SCORE_evidential_score] = {
        .id = 475, .name = "evidential_score", .family = "score", .flags = BACKWARD, .tolerance = 16,
        .title = "probabilities from evidence, and how little of it there is",
        .formula = "alpha = e(logits) + 1, probability = alpha / sum alpha, vacuity = c / sum alpha",
        .about = "A Dirichlet distribution over the classes. Large vacuity is unsure. In double. A "
                 "class with logit -inf is absent and has probability 0. A NaN makes its row NaN. "
                 "Gradients: of both; relu has slope 0 at 0, exp beyond its bounds.",
        .source = "Evidential Deep Learning to Quantify Classification Uncertainty (Sensoy, Kaplan, "
                  "Kandemir 2018)",
        .example = "softmax run evidential_score logits.npy --evidence softplus",
        INPUTS(logits_in), .outputs = evidence_out, .output_count = COUNT(evidence_out),
        PARAMS(evidence_params)},
    [SCORE_ranking_metrics] = {
        .id = 476, .name = "ranking_metrics", .family = "score", .tolerance = 8,
        .title = "how well a score tells positives from negatives",
        .formula = "auroc = (pairs with s_positive > s_negative + half of those with equal ones) / "
                   "pairs",
        .about = "Exact: sorted, a threshold at every different score, counts in whole numbers. "
                 "Without positives, or negatives, or with a NaN, the metrics of the set are NaN. "
                 "AUROC and average precision are scikit-learn's, with weights too, fpr is OpenOOD's FPR@95 "
                 "(with in-distribution as positive). " WEIGHTS " No gradient.",
        .source = "Hanley, McNeil 1982; OpenOOD; scikit-learn (roc_auc_score, average_precision_score)",
        .example = "softmax run ranking_metrics score.npy positive.npy",
        INPUTS(ranking_in), .outputs = ranking_out, .output_count = COUNT(ranking_out),
        PARAMS(ranking_params)},
    [SCORE_calibration_error] = {
        .id = 477, .name = "calibration_error", .family = "score", .tolerance = 16,
        .title = "how far confidence is from accuracy",
        .formula = "ece = sum_b n_b / n |accuracy_b - confidence_b|, edges of bin b: b / bins and (b + "
                   "1) / bins",
        .about = "The edges are these quotients in double. Which side of a bin is closed changes "
                 "results: Guo et al. take (a, b] (and drop a confidence of 0, which counts here), "
                 "netcal [a, b); torchmetrics has a hidden bin for 1. A confidence outside 0..1 is an "
                 "error; a NaN, or no rows, make the errors NaN. adaptive takes rows in the order of "
                 "confidence, equal ones in reverse; the first bins have one row more; with weights, bins of "
                 "equal weight share the rows on their edges. " WEIGHTS " No gradient.",
        .source = "On Calibration of Modern Neural Networks (Guo et al. 2017); adaptive: Nguyen, "
                  "O'Connor 2015; ks: Calibration of Neural Networks using Splines (Gupta et al. 2021)",
        .example = "softmax run calibration_error confidence.npy correct.npy --bins 10",
        INPUTS(calibration_in), .outputs = calibration_out, .output_count = COUNT(calibration_out),
        PARAMS(calibration_params)},
    [SCORE_risk_coverage] = {
        .id = 478, .name = "risk_coverage", .family = "score", .tolerance = 16,
        .title = "what risk is left when the least confident rows are left out",
        .formula = "risk_k = sum of the losses of the k most confident / k, aurc = mean risk",
        .about = "Rows of equal confidence have the mean over their orders: risk_k = (losses before + "
                 "losses of the block j / m) / k at place j of m, so no order of the file changes a "
                 "result. excess is aurc less that of rows in the order of their losses (the paper has "
                 "an approximation of it). " WEIGHTS " Other weights are over their mean, so that they "
                 "sum to the rows; aurc is then what psi makes of the sums of 1 / k. risk has the rows "
                 "that count, then NaN. With a NaN, or without rows, NaN. No gradient.",
        .source = "Selective Classification for Deep Neural Networks (Geifman, El-Yaniv 2017); "
                  "Bias-Reduced Uncertainty Estimation (Geifman et al. 2019)",
        .example = "softmax run risk_coverage confidence.npy loss.npy",
        INPUTS(risk_in), .outputs = risk_out, .output_count = COUNT(risk_out)},
    [SCORE_classification_metrics] = {
        .id = 480, .name = "classification_metrics", .family = "score", .tolerance = 16,
        .title = "who was taken for whom: accuracy, F1, balanced accuracy, Matthews, the confusion",
        .formula = "f1_k = 2 right_k / (predicted_k + true_k), matthews = (right n - sum predicted_k "
                   "true_k) / sqrt((n^2 - sum predicted_k^2) (n^2 - sum true_k^2))",
        .about = "Counts are whole numbers. Rows whose target or prediction is -1 do not count; "
                 "without rows the metrics are NaN. A quotient of nothing is 0, as in scikit-learn, "
                 "whose labels are those that occur: so here. Without floats among the inputs, float "
                 "outputs decide the precision. " WEIGHTS " No gradient.",
        .source = "scikit-learn (confusion_matrix, f1_score, balanced_accuracy_score, "
                  "matthews_corrcoef)",
        .example = "softmax run classification_metrics prediction.npy target.npy --classes 100",
        INPUTS(confusion_in), .outputs = confusion_out, .output_count = COUNT(confusion_out),
        PARAMS(confusion_params)},
    [SCORE_generalised_entropy] = {
        SCORE(generalised_entropy, 501), .tolerance = 32,
        .title = "GEN: -sum of powers of p (1 - p), largest p",
        .formula = "score = -sum_top p^g (1 - p)^g, p = softmax(z), z = logits / temperature",
        .about = "Large is sure, at most 0 (GEN). A small g tells apart rows whose small probabilities "
                 "differ. 1 - p does not cancel. Of equal logits the first count. One class: 0.",
        .source = "GEN: Pushing the Limits of Softmax-Based Out-of-Distribution Detection (Liu et al. "
                  "2023); OpenOOD",
        .example = "softmax run generalised_entropy logits.npy --top 10",
        INPUTS(logits_in), PARAMS(generalised_params)},
    [SCORE_react] = {
        .id = 502, .name = "react", .family = "score", .flags = BACKWARD, .tolerance = 1,
        .title = "features that are cut at a threshold, before the last layer",
        .formula = "rectified = min(features, threshold)",
        .about = "What is out of distribution has units of great activation. The threshold is a percentile "
                 "of the features of known rows, which react_fit finds. Then the last layer and energy.",
        .source = "ReAct: Out-of-distribution Detection With Rectified Activations (Sun, Guo, Li 2021)",
        .example = "softmax run react features.npy --threshold 1.5",
        INPUTS(react_in), .outputs = react_out, .output_count = COUNT(react_out), PARAMS(react_params)},
    [SCORE_ash] = {
        .id = 503, .name = "ash", .family = "score", .tolerance = 64,
        .title = "the largest features of a row alone, before the last layer",
        .formula = "p: h of the k largest, else 0; b: s1 / k of these; s: h e^(s1 / s2) of these; scale: "
                   "h e^(s1 / s2) of all",
        .about = "k = d - round(d percentile / 100), a half to the even number; s1 is the sum of the row, s2 "
                 "that of the k largest, of equal ones the first. Where s2 is 0, s and scale leave the row "
                 "as it is. A NaN makes its row NaN. Features are those behind a ReLU. Then the last layer "
                 "and energy. OpenOOD's code overwrites its input; here it stays.",
        .source = "Extremely Simple Activation Shaping (Djurisic et al. 2023); SCALE: Scaling for Training "
                  "Time and Post-hoc OOD Detection Enhancement (Xu et al. 2024); OpenOOD",
        .example = "softmax run ash features.npy --percentile 90 --form s",
        INPUTS(features_in), .outputs = rectified_out, .output_count = COUNT(rectified_out),
        PARAMS(ash_params)},
    [SCORE_odin_perturb] = {
        .id = 504, .name = "odin_perturb", .family = "score", .tolerance = 4,
        .title = "an input that is moved a step towards more confidence",
        .formula = "perturbed = x - step sgn(gradient) / scale, sgn(0) = 1",
        .about = "gradient is that of the loss -log softmax(z / T) of the most probable class by x; its "
                 "share by the logits is what cross_entropy with that class as target gives. Run the "
                 "network again, then msp with that temperature, T = 1000 in the paper, in f64. Mahalanobis "
                 "scores move inputs the same way. A NaN in the gradient stays one.",
        .source = "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks "
                  "(Liang, Li, Srikant 2018); facebookresearch/odin",
        .example = "softmax run odin_perturb x.npy --gradient g.npy --step 0.002",
        INPUTS(odin_in), .outputs = odin_out, .output_count = COUNT(odin_out), PARAMS(odin_params)},
    [SCORE_odin] = {
        .id = 638, .name = "odin", .family = "score", .tolerance = 64,
        .title = "the largest probability at a high temperature",
        .formula = "score = max p, p = softmax(logits / T); centred = T (c max p - 1)",
        .about = "Of logits of an input that odin_perturb moved. Scores are close to 1/c, of which f32 keeps "
                 "few digits of what differs; centred ranks rows as they do, and with T goes to the distance "
                 "of the largest logit from their mean. c: classes above -inf. A NaN or no class: NaN, +inf "
                 "too, but for on_inf = limit.",
        .source = "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks "
                  "(Liang, Li, Srikant 2018); facebookresearch/odin",
        .example = "softmax run odin logits.npy",
        INPUTS(odin_rows_in), .outputs = odin_rows_out, .output_count = COUNT(odin_rows_out),
        PARAMS(odin_rows_params)},
#include "table_sets.inc"
};
