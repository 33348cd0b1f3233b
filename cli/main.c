/* main.c - the softmax command: its verbs, and the one place that prints a fault. */
#include "attend.h"
#include "calibrate.h"
#include "family.h"
#include "fault.h"
#include "help.h"
#include "io/stream.h"
#include "loss.h"
#include "metrics.h"
#include "nearest.h"
#include "options.h"
#include "page.h"
#include "plot.h"
#include "ranks.h"
#include "route.h"
#include "run.h"
#include "sample.h"
#include "score.h"
#include "select.h"
#include "signals.h"
#include "steps.h"
#include "topk.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_OPERATOR "softmax"

static int no_more(const char *after, int argc, const char **argv) {
  return argc ? fault(EXIT_USAGE, "%s: unexpected after %s", argv[0], after) : EXIT_OK;
}

/* The call that begins like `word`, for a word that is no file: of a verb, or of an operator by the
 * verb that runs it. */
static bool likely_call(const char *word, char *call, size_t size) {
  const smx_op *op;
  /* a path is no misspelt word */
  nearest near = nearest_begin(word, strpbrk(word, "./") ? 0 : nearest_usual(word));
  for (size_t i = 1; i < verb_count; i++) nearest_try(&near, verbs[i].name);
  const char *of_verb = near.found;
  for (size_t i = 0; (op = smx_op_at(i)); i++) nearest_try(&near, op->name);
  if (!near.found) return false;
  if (near.found == of_verb) snprintf(call, size, "softmax %s", near.found);
  else
    snprintf(call, size, "softmax %s %s", loss_takes(smx_op_find(near.found)) ? "loss" : "run", near.found);
  return true;
}

/* One file, and one that is there or does not look like a word of the command. */
static int check_default(const options *o) {
  char call[128];
  if (!o->file_count) return fault(EXIT_USAGE, "no input file; softmax help tells more");
  const char *file = o->files[0];
  if (strcmp(file, "-") != 0 && access(file, F_OK) != 0 && likely_call(file, call, sizeof call))
    return fault(EXIT_USAGE, "%s: no such file; did you mean `%s`?", file, call);
  if (o->file_count == 1) return EXIT_OK;
  return fault(EXIT_USAGE,
               "%s: one file too many: a softmax takes scores alone; classes go to `softmax loss "
               "cross_entropy %s --targets %s`, names to --labels, temperatures of the rows to --temperature",
               o->files[1], file, o->files[1]);
}

static int work_default(const options *o) {
  int wrong = check_default(o);
  if (wrong) return wrong;
  labels names;
  run_request request = {.op = smx_op_find(DEFAULT_OPERATOR),
                         .o = o,
                         .kind = TABLE_CLASSES,
                         .labels = o->labels ? &names : NULL};
  int code = labels_read(&names, o->labels);
  if (!code) code = run_operator(&request);
  labels_free(&names);
  return code;
}

static int work_run(const options *o) {
  if (!o->file_count) return fault(EXIT_USAGE, "run: no operator; softmax list shows them all");
  run_request request = {.op = help_find(o->files[0]), .o = o, .first = 1, .kind = TABLE_VALUES};
  return request.op ? run_operator(&request) : EXIT_USAGE;
}

static int run_list(int argc, const char **argv) {
  bool json = argc && strcmp(argv[0], "--json") == 0;
  int code = no_more("list", argc - json, argv + json);
  return code ? code : json ? help_json() : help_list();
}

static int run_help(int argc, const char **argv) {
  if (!argc) return help_command();
  const verb *v = smx_op_find(argv[0]) ? NULL : verb_named(argv[0]); /* nms is both */
  if (!v && !smx_op_find(argv[0]) && argc == 1 && help_entry(argv[0])) return EXIT_OK;
  const smx_op *op = v ? NULL : help_find(argv[0]);
  nearest near = nearest_begin(argv[0], strlen(argv[0]) / 3);
  for (size_t i = 1; !v && !op && i < verb_count; i++) nearest_try(&near, verbs[i].name);
  if (near.found)
    return fault(EXIT_USAGE, "%s: nothing of that name; did you mean `softmax help %s`?", argv[0],
                 near.found);
  if (!v && !op) return EXIT_USAGE;
  int code = no_more(argv[0], argc - 1, argv + 1);
  return code ? code : v ? help_verb(v) : help_operator(op);
}

static int run_version(int argc, const char **argv) {
  int code = no_more("--version", argc, argv);
  if (!code) printf("softmax %s (%s)\n", smx_version(), smx_isa_name());
  return code;
}

static int run_man(int argc, const char **argv) {
  int code = no_more("--man", argc, argv);
  return code ? code : help_manual();
}

static int run_bash(int argc, const char **argv) {
  int code = no_more("--bash-completion", argc, argv);
  return code ? code : help_completion();
}

static int run_zsh(int argc, const char **argv) {
  int code = no_more("--zsh-completion", argc, argv);
  return code ? code : help_completion_zsh();
}

static int run_fish(int argc, const char **argv) {
  int code = no_more("--fish-completion", argc, argv);
  return code ? code : help_completion_fish();
}

enum {
  FOR_ARRAYS = FOR_INPUT | FOR_OUTPUT | FOR_FORMAT | FOR_THREADS,
  FOR_RUN = FOR_ARRAYS | FOR_TYPE | FOR_ROWS | FOR_POLICY | FOR_INF | FOR_OPERATOR
};

/* The first is what is done when no other is named. */
const verb verbs[] = {
    {.name = "",
     .arguments = "FILE [OPTIONS]",
     .help = "The softmax of each row of the array in FILE: a table of the classes with the largest weights "
             "and the entropy, or with -o the weights as a file.",
     .runs = DEFAULT_OPERATOR,
     .work = work_default,
     .ranks = true,
     .groups = FOR_RUN | FOR_GRADIENT | FOR_LABELS},
    {.name = "run",
     .arguments = "OPERATOR FILE... [OPTIONS]",
     .help = "Any operator. FILEs are its inputs in order; an input can also be given as --NAME FILE, and a "
             "parameter as --NAME VALUE. Shows the result, or writes it with -o.",
     .operators = "",
     .work = work_run,
     .ranks = true,
     .groups = FOR_RUN | FOR_GRADIENT},
    {.name = "loss",
     .arguments = "LOSS LOGITS [FILE...] [--targets LABELS] [OPTIONS]",
     .help = "A loss of each row of LOGITS, reduced over all rows (their mean, unless --reduction says "
             "otherwise), with the mean entropy of the rows and, where each has a class, the accuracy. With "
             "-o the losses of the rows as a file, or the gradient.",
     .operators = "loss",
     .work = work_loss,
     .ranks = true,
     .groups = FOR_RUN,
     .own = loss_settings},
    {.name = "head",
     .arguments = "OPERATOR FILE... [--targets FILE] [OPTIONS]",
     .help = "A loss from features and the weights of classes, or another operator of the family head: "
             "linear_cross_entropy, crf, viterbi, margin and so on. Tells the mean of a loss, shows other "
             "results, or writes them with -o.",
     .operators = "head",
     .work = work_head,
     .groups = FOR_RUN | FOR_GRADIENT,
     .own = family_settings},
    {.name = "pairs",
     .arguments = "OPERATOR A [B] [--targets FILE] [OPTIONS]",
     .help =
         "A loss of pairs of rows of features, or another operator of the family pairwise: clip, info_nce, "
         "nt_xent, supcon and so on. Tells its mean, or writes the results with -o.",
     .operators = "pairwise",
     .work = work_pairs,
     .groups = FOR_RUN | FOR_GRADIENT,
     .own = family_settings},
    {.name = "pool",
     .arguments = "OPERATOR FILE... [OPTIONS]",
     .help = "Many elements become one, over windows, bins or sets, by an operator of the family pool: max, "
             "avg, soft, lse, gem and so on. Shows the results, or writes them with -o; --preview draws "
             "them.",
     .operators = "pool",
     .work = work_pool,
     .groups = FOR_RUN | FOR_GRADIENT,
     .own = pool_settings},
    {.name = "nms",
     .arguments = "BOXES --scores FILE [--label FILE] [OPTIONS]",
     .help = "Which boxes stay of those that overlap, the best first: non-maximum suppression; or with "
             "--method linear or gaussian soft_nms, which lets scores fall.",
     .runs = NMS_OPERATOR,
     .work = work_nms,
     .groups = FOR_RUN,
     .own = nms_settings},
    {.name = "top-k",
     .arguments = "FILE [-k K] [OPTIONS]",
     .help = "The K classes with the largest softmax weights of each row: a line each with its rank (1 is "
             "the best), index, probability and log-probability; or with -o as a file.",
     .runs = TOPK_OPERATOR,
     .work = work_topk,
     .ranks = true,
     .groups = FOR_RUN | FOR_LABELS,
     .own = topk_settings},
    {.name = "route",
     .arguments = "LOGITS [-k K] [--bias FILE] [OPTIONS]",
     .help =
         "Which K experts take each token, by the logits of a router [..., experts]: how many tokens each "
         "expert has, its share of them and its mean weight, the busiest first; and with -o the weights "
         "and experts of each token as a file of several arrays.",
     .runs = ROUTE_OPERATOR,
     .work = work_route,
     .groups = FOR_ARRAYS | FOR_TYPE | FOR_POLICY | FOR_INF | FOR_OPERATOR,
     .own = route_settings},
    {.name = "score",
     .arguments = "SCORE[,SCORE...] FILE [--targets FILE] [OPTIONS]",
     .help = "How sure rows of logits are: msp, entropy, energy, margin and other operators of the family "
             "score, of rows along the last axis, all from one read. Tells the mean, the least and the most "
             "of each; or with -o writes them, an array for each score. A parameter, say --temperature 2, "
             "goes to every score that has it.",
     .operators = "score",
     .work = work_score,
     .groups = FOR_ARRAYS | FOR_TYPE | FOR_POLICY | FOR_INF | FOR_ROWS | FOR_OPERATOR,
     .own = score_settings},
    {.name = "select",
     .arguments = "LOGITS [--by SCORE] [--budget N] [--cost FILE] [OPTIONS]",
     .help =
         "Which rows of logits to have labelled: those that are worth the most by a score, entropy unless "
         "--by names another of the family score, within a budget (10 rows; with --cost what all may cost). "
         "Shows the rows, the best first, or with -o writes their numbers. --rank, --lambda and --clip are "
         "parameters of the operator budget_select. --by badge takes rows that differ too, by their features "
         "before the last layer (--features FILE), with a --seed: badge_select.",
     .runs = SELECT_OPERATOR,
     .work = work_select,
     .groups = FOR_ARRAYS | FOR_POLICY | FOR_INF | FOR_ROWS | FOR_OPERATOR,
     .own = select_settings},
    {.name = "metrics",
     .arguments = "LOGITS --targets FILE [OPTIONS]",
     .help = "How right rows of logits are, and how rightly sure: accuracy, top-k accuracy, F1, log loss, "
             "Brier score, calibration errors, and how well confidence tells right rows from wrong ones. "
             "Intervals of 95 %: Wilson's for the accuracy, normal for means. A second model is compared "
             "by McNemar's exact test (--compare), and outliers (--ood) are told apart by msp, energy and "
             "max_logit.",
     .work = work_metrics,
     .groups = FOR_INPUT | FOR_OUTPUT | FOR_THREADS | FOR_ROWS | FOR_INF,
     .own = metrics_settings},
    {.name = "report",
     .arguments = "LOGITS --targets FILE -o OUT.html [OPTIONS]",
     .help = "The metrics as one page for a browser, which needs no network: calibration, with a slider for "
             "the temperature, confidence of right and wrong rows, risk by coverage, confused classes, the "
             "most confident errors, a table of the classes; and outliers, or a second model beside the "
             "first. --json gives the numbers instead.",
     .work = work_report,
     .groups = FOR_INPUT | FOR_OUTPUT | FOR_THREADS | FOR_ROWS | FOR_INF | FOR_LABELS,
     .own = page_settings},
    {.name = "calibrate",
     .arguments = "fit METHOD FILE | apply FIT.json FILE [OPTIONS]",
     .help = "Fits a map to rows whose class is known (--targets), and applies it to new ones; -o is where "
             "the fit, a "
             "JSON file, or the result goes. Of logits [rows, classes]: "
             "temperature, vector, matrix, dirichlet, and conformal, whose result is 1 for each class of a "
             "row's set. Of one number a row: platt, beta, isotonic, histogram. Settings are the parameters "
             "of the fit's operator: temperature_fit, vector_scaling_fit, matrix_scaling_fit, conformal_fit, "
             "platt_fit, beta_fit, isotonic_fit, calibration_error.",
     .work = work_calibrate,
     .groups = FOR_INPUT | FOR_OUTPUT | FOR_FORMAT | FOR_THREADS | FOR_OPERATOR,
     .own = calibrate_settings},
    {.name = "sample",
     .arguments = "FILE [--seed N] [--draws N] [STEPS] [OPTIONS]",
     .help = "Draws from the softmax of each row, after the steps that the options name, in their order. "
             "Shows how often each class was drawn, and its probability after the steps; or with -o writes "
             "the draws: their indices, and in a file of several arrays the logarithms of their "
             "probabilities. A draw depends on the row, its number, the steps and the seed alone.",
     .work = work_sample,
     .groups = FOR_ARRAYS | FOR_ROWS | FOR_LABELS,
     .own = sample_settings,
     .entries_heading =
         "The steps, each with its numbers. TOKENS: 5,7,9 or a file; TEXT: the same, oldest first, where -1 "
         "is a break:",
     .entry = steps_entry},
    {.name = "attention",
     .arguments = "Q K V [--causal] [--weights W] [OPTIONS]",
     .help = "Attention of queries, keys and values: arrays [batch, heads, length, size], the first "
             "dimensions left out where they are 1. Shows the result, or writes it with -o; --result names "
             "others than o, of which those about scores and masses take Q and K alone; --backward gives the "
             "gradients. --map FILE draws the weights of one head; then, without -o, nothing else is done "
             "and V may be left out.",
     .work = work_attention,
     .groups = FOR_ARRAYS | FOR_TYPE | FOR_POLICY | FOR_INF | FOR_LABELS | FOR_GRADIENT,
     .own = attend_settings,
     .entries_heading = "Kinds of weights, for --weights, each with its numbers in the order of --param; z "
                        "are the scores of the n keys that a query sees:",
     .entry = attend_entry},
    {.name = "plot",
     .arguments = "OPERATOR[:NAME=VALUE,...]... [--row FILE] [-o OUT.svg]",
     .help = "A drawing (SVG) of how operators weigh the same scores: the weight of one element while its "
             "score moves, and with --row the weights of a row of a file. Up to eight operators, each with "
             "parameters of its own; they differ in dashes and marks, so that it can be printed. --load "
             "draws how many tokens each expert has instead, from the indices that route wrote. Without -o "
             "it goes to standard output.",
     .operators = "",
     .work = work_plot,
     .groups = FOR_INPUT | FOR_OUTPUT,
     .own = plot_settings},
    {.name = "list",
     .arguments = "[--json]",
     .help = "All operators, a line each, or everything about them as JSON.",
     .run = run_list},
    {.name = "help",
     .arguments = "[OPERATOR | VERB]",
     .help = "This help, or all there is to know about an operator, a kind of attention weights or a step, "
             "or the options of another word of this list.",
     .operators = "",
     .run = run_help},
    {.name = "--version",
     .arguments = "",
     .help = "The version of the library and the instruction set in use.",
     .run = run_version},
    {.name = "--man", .arguments = "", .help = "The manual page, in mdoc.", .run = run_man},
    {.name = "--bash-completion", .arguments = "", .help = "A completion script for bash.", .run = run_bash},
    {.name = "--zsh-completion", .arguments = "", .help = "A completion script for zsh.", .run = run_zsh},
    {.name = "--fish-completion", .arguments = "", .help = "A completion script for fish.", .run = run_fish},
};
const size_t verb_count = sizeof verbs / sizeof *verbs;

/* What --help after a verb shows: the operator, where one is named. */
static int show_help(const verb *v, const options *o) {
  if (!*v->name) return help_command();
  if (!v->operators || !(v->groups & FOR_OPERATOR) || !o->file_count) return help_verb(v);
  const smx_op *op = help_find(o->files[0]);
  return op ? help_operator(op) : EXIT_USAGE;
}

static int start(const verb *v, int argc, const char **argv) {
  if (v->run) return v->run(argc, argv);
  if (ranks_count() > 1 && !v->ranks)
    return fault(EXIT_USAGE, "%s: not over ranks; run, loss and top-k are", v->name);
  options o;
  int code = options_parse(&o, v->groups, v->own, argc, argv);
  if (!code) code = o.help ? show_help(v, &o) : v->work(&o);
  options_free(&o);
  return code;
}

static int dispatch(int argc, const char **argv) {
  const verb *v = argc > 1 ? verb_named(argv[1]) : NULL;
  return v && *v->name ? start(v, argc - 2, argv + 2) : start(&verbs[0], argc - 1, argv + 1);
}

int main(int argc, char **argv) {
  signals_install();
  stream_hold_printed();
  sample_begin();
  int code = ranks_begin(&argc, &argv);
  if (!code) code = dispatch(argc, (const char **)(void *)argv);
  code = ranks_agree(code);
  errno = 0;
  if ((fflush(stdout) != 0 || ferror(stdout)) && !code)
    code = fault(EXIT_UNWRITABLE, "standard output: cannot be written: %s", strerror(errno));
  if (!code) code = stream_release_printed();
  if (code && ranks_tells()) fprintf(stderr, "softmax: %s\n", fault_text());
  ranks_end();
  return code;
}
