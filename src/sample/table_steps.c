/* sample/table_steps.c - the facts about each kind of step of smx_sample. The command, the
 * bindings, the tests and the manual all read this. Laid out by hand. */
#include "sample.h"

#define PARAMS(...) \
  .params = (const smx_param[]){__VA_ARGS__}, \
  .param_count = (int32_t)(sizeof((const smx_param[]){__VA_ARGS__}) / sizeof(smx_param))

/* {name, help, one to begin with, least, largest}: a number that has to be given; and one that need
 * not be. */
#define GIVEN(name, help, def, min, max) {name, help, def, min, max, SMX_PARAM_REQUIRED, NULL}
#define OTHER(name, help, def, min, max) {name, help, def, min, max, 0, NULL}
#define SHARE(help, def) PARAMS(GIVEN("p", help, def, 0, 1))
#define BIG 1e30
#define WHOLE_MOST 9007199254740992.0 /* 2^53 */

/* Papers that several are from. */
#define MIROSTAT \
  "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity " \
  "(Basu et al. 2021)"
#define DESMOOTHING "Truncation Sampling as Language Model Desmoothing (Hewitt, Manning, Liang 2022)"

enum { TOKENS = SMX_STEP_HAS_TOKENS, VALUES = SMX_STEP_HAS_VALUES, TEXT = SMX_STEP_HAS_TEXT };

const smx_step_info step_table[SMX_STEP_KINDS] = {
    [SMX_STEP_TEMPERATURE] = {
        .id = SMX_STEP_TEMPERATURE, .name = "temperature",
        .title = "divide the scores",
        .formula = "z / temperature",
        .about = "0 keeps the best alone, and so does a temperature that makes the best quotient overflow.",
        .source = "standard",
        PARAMS(GIVEN("temperature", "divides the scores", 0.8, 0, BIG))},
    [SMX_STEP_TOP_K] = {
        .id = SMX_STEP_TOP_K, .name = "top_k",
        .title = "keep the k best",
        .formula = "the k largest z",
        .about = "Of equal scores the first are kept. 0 or -1 keeps all.",
        .source = "Hierarchical Neural Story Generation (Fan, Lewis, Dauphin 2018)",
        PARAMS({"k", "how many are kept", 40, -1, WHOLE_MOST, SMX_PARAM_REQUIRED | SMX_PARAM_INT, NULL})},
    [SMX_STEP_TOP_P] = {
        .id = SMX_STEP_TOP_P, .name = "top_p",
        .title = "keep the fewest most probable elements whose probabilities sum to p",
        .formula = "all i with sum of the larger p_j < p",
        .about = "1 keeps all, 0 the best.",
        .source = "The Curious Case of Neural Text Degeneration (Holtzman et al. 2020)",
        SHARE("the mass that is kept", 0.95)},
    [SMX_STEP_MIN_P] = {
        .id = SMX_STEP_MIN_P, .name = "min_p",
        .title = "keep those of at least p times the largest probability",
        .formula = "all i with p_i >= p max_j p_j",
        .about = "0 keeps all.",
        .source = "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs (Nguyen et al. "
                  "2024)",
        SHARE("of the largest probability", 0.05)},
    [SMX_STEP_TYPICAL] = {
        .id = SMX_STEP_TYPICAL, .name = "typical",
        .title = "as top_p, the most typical first",
        .formula = "as top_p, in the order of |-log p_i - entropy|",
        .about = "1 keeps all.",
        .source = "Locally Typical Sampling (Meister et al. 2023)",
        SHARE("the mass that is kept", 0.95)},
    [SMX_STEP_EPSILON] = {
        .id = SMX_STEP_EPSILON, .name = "epsilon",
        .title = "keep probabilities of at least p",
        .formula = "all i with p_i >= p",
        .about = "0 keeps all.",
        .source = DESMOOTHING,
        SHARE("the least probability", 3e-4)},
    [SMX_STEP_ETA] = {
        .id = SMX_STEP_ETA, .name = "eta",
        .title = "keep probabilities of at least min(p, sqrt(p) e^-entropy)",
        .formula = "all i with p_i >= min(p, sqrt(p) e^-entropy)",
        .about = "0 keeps all.",
        .source = DESMOOTHING,
        SHARE("the least probability of a row with little entropy", 3e-4)},
    [SMX_STEP_TOP_N_SIGMA] = {
        .id = SMX_STEP_TOP_N_SIGMA, .name = "top_n_sigma",
        .title = "keep scores of at least the largest less some deviations",
        .formula = "all i with z_i >= max z - sigmas deviation of z",
        .about = "Does not depend on a temperature before it.",
        .source = "Top-nsigma: Not All Logits Are You Need (Tang et al. 2024)",
        PARAMS(GIVEN("sigmas", "how many deviations", 1, 0, BIG),
               OTHER("ddof", "1: the deviation of a sample, 0: of a population", 0, 0, 1))},
    [SMX_STEP_SURPRISE] = {
        .id = SMX_STEP_SURPRISE, .name = "surprise",
        .title = "keep those that surprise by some bits at most (mirostat 2)",
        .formula = "all i with -log2 p_i <= bits",
        .about = "Mirostat 2 with its state as bits, from which the caller takes eta (surprise - target) "
                 "after each draw.",
        .source = MIROSTAT,
        PARAMS(GIVEN("bits", "the largest surprise", 10, -BIG, BIG))},
    [SMX_STEP_XTC] = {
        .id = SMX_STEP_XTC, .name = "xtc",
        .title = "with some chance, remove all probable ones but the least of them",
        .formula = "without those of p_i >= threshold but the least probable of them, with probability "
                   "chance",
        .about = "Exclude top choices.",
        .source = "Exclude Top Choices, a sampler that boosts creativity (p-e-w 2024)",
        PARAMS(GIVEN("chance", "how often", 0.5, 0, 1),
               GIVEN("threshold", "what is probable", 0.1, 0x1p-1000, 1))},
    [SMX_STEP_REPETITION] = {
        .id = SMX_STEP_REPETITION, .name = "repetition", .flags = TOKENS,
        .title = "divide positive scores of the tokens, multiply negative ones",
        .formula = "z_i / factor where z_i > 0, else z_i factor, for the tokens i",
        .about = "Once a token, however often it is listed.",
        .source = "CTRL: A Conditional Transformer Language Model for Controllable Generation (Keskar et "
                  "al. 2019)",
        PARAMS(GIVEN("factor", "above 1 the tokens become less probable", 1.2, 0x1p-100, BIG))},
    [SMX_STEP_FREQUENCY] = {
        .id = SMX_STEP_FREQUENCY, .name = "frequency", .flags = TOKENS,
        .title = "take a number from the score for each time that a token is listed, and another once",
        .formula = "z_i - frequency count_i - presence, for the tokens i",
        .about = "Frequency and presence penalties. Values count a token so many times instead of once.",
        .source = "the API of OpenAI (2021)",
        PARAMS(GIVEN("frequency", "taken for each time", 0.5, -BIG, BIG),
               OTHER("presence", "taken once", 0, -BIG, BIG))},
    [SMX_STEP_BIAS] = {
        .id = SMX_STEP_BIAS, .name = "bias", .flags = TOKENS | VALUES,
        .title = "add values to the scores of the tokens",
        .formula = "z_i + value_i, for the tokens i",
        .about = "Of a token that is listed several times all values are added.",
        .source = "standard"},
    [SMX_STEP_BAN] = {
        .id = SMX_STEP_BAN, .name = "ban", .flags = TOKENS,
        .title = "remove the tokens",
        .formula = "all but the tokens",
        .about = "May remove the best.",
        .source = "standard"},
    [SMX_STEP_ALLOW] = {
        .id = SMX_STEP_ALLOW, .name = "allow", .flags = TOKENS,
        .title = "remove all others",
        .formula = "the tokens",
        .about = "An empty list removes all.",
        .source = "standard"},
    [SMX_STEP_DYNAMIC_TEMPERATURE] = {
        .id = SMX_STEP_DYNAMIC_TEMPERATURE, .name = "dynamic_temperature",
        .title = "divide the scores by a temperature that is the higher, the flatter the row",
        .formula = "z / T, T = low + (high - low) (entropy / log count)^exponent, low = max(0, temperature - "
                   "range), "
                   "high = temperature + range",
        .about = "With range 0 it is the step temperature.",
        .source = "Entropy-based dynamic temperature of llama.cpp (2024)",
        PARAMS(GIVEN("temperature", "in the middle", 1, 0, BIG),
               GIVEN("range", "how far it goes up and down", 0.5, 0, BIG),
               OTHER("exponent", "of the entropy's share", 1, 0, BIG))},
    [SMX_STEP_QUADRATIC] = {
        .id = SMX_STEP_QUADRATIC, .name = "quadratic",
        .title = "scores that fall with the square of their distance to the best",
        .formula = "z = max z - factor d^2 ((3 - curve) / 2 - (curve - 1) / 2 d), d = z - max z",
        .about = "A factor of 0 does nothing.",
        .source = "Quadratic sampling of text-generation-webui (2024)",
        PARAMS(GIVEN("factor", "of the square", 0.3, 0, BIG),
               OTHER("curve", "above 1 it bends further", 1, 1, 100))},
    [SMX_STEP_TAIL_FREE] = {
        .id = SMX_STEP_TAIL_FREE, .name = "tail_free",
        .title = "keep the first, best first, whose curvature adds up to p of all of it",
        .formula = "the first whose |second differences of p_i| sum to p of their total at most",
        .about = "1 keeps all. It sorts what is left.",
        .source = "Tail Free Sampling (Bricken 2019)",
        SHARE("of the curvature", 0.95)},
    [SMX_STEP_TOP_H] = {
        .id = SMX_STEP_TOP_H, .name = "top_h",
        .title = "keep the first, best first, whose entropy adds up to p of that of the best 100",
        .formula = "of the 100 best, p_i among those: while sum of -p_i log p_i <= p entropy",
        .about = "Keeps 100 at most.",
        .source = "Top-H Decoding: Adapting the Creativity and Coherence with Bounded Entropy in Text "
                  "Generation (2025)",
        SHARE("of the entropy", 0.4)},
    [SMX_STEP_MIROSTAT] = {
        .id = SMX_STEP_MIROSTAT, .name = "mirostat",
        .title = "keep the k best, k such that they surprise by some bits on average (mirostat 1)",
        .formula = "the k largest z, k from the slope of the 100 best",
        .about = "Mirostat 1 with its state as bits, updated as that of surprise.",
        .source = MIROSTAT,
        PARAMS(GIVEN("bits", "the mean surprise", 10, -BIG, BIG))},
    [SMX_STEP_NO_REPEAT] = {
        .id = SMX_STEP_NO_REPEAT, .name = "no_repeat", .flags = TOKENS | TEXT,
        .title = "remove tokens that would repeat a run of n tokens of the text",
        .formula = "without all i such that the last n - 1 tokens and i stand in the text",
        .about = "1 removes every token of the text.",
        .source = "A Deep Reinforced Model for Abstractive Summarization (Paulus, Xiong, Socher 2017)",
        PARAMS({"n", "how long a run", 3, 1, WHOLE_MOST, SMX_PARAM_REQUIRED | SMX_PARAM_INT, NULL})},
    [SMX_STEP_DRY] = {
        .id = SMX_STEP_DRY, .name = "dry", .flags = TOKENS | TEXT,
        .title = "take more from the score of a token, the longer the run of the text that it would go on "
                 "with",
        .formula = "z_i - multiplier base^(length - allowed) where i would go on with the longest run, of "
                   "length allowed or "
                   "more, that ends the text and stands in it before",
        .about = "A multiplier of 0 does nothing.",
        .source = "DRY: A modern repetition penalty (p-e-w 2024)",
        PARAMS(GIVEN("multiplier", "taken for the shortest run", 0.8, 0, BIG),
               OTHER("base", "factor of each further token", 1.75, 1, BIG),
               {"allowed", "the shortest run", 2, 1, WHOLE_MOST, SMX_PARAM_INT, NULL})},
};
