/* decode.c - proves that speculative decoding leaves the distribution of the target model as it is
 * (exact counts that the definition implies, and chi-square with fixed seeds), that mixtures, beam
 * search and the plan of a diffusion decoder give their known answers, and that inputs of shape K
 * say how long they are. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include "util.h"

enum { TRIALS = 100000, MOST = 8 };

/* Rows that are all the same but for their streams and drafts; n probabilities of target and draft
 * model. */
typedef struct round_of {
  size_t n, k, rows;
  const double *p, *q;
  int64_t *draft, *stream, *position, *index, *accepted;
} round_of;

static smx_tensor matrix(void *data, smx_dtype t, int64_t *shape, int ndim) {
  return (smx_tensor){.data = data, .ndim = ndim, .dtype = t, .shape = shape};
}

/* All rows read the same p and q: strides of 0. */
static void verify(const char *name, const char *method, double seed, const round_of *w) {
  const smx_op *op = smx_op_find(name);
  const int many = w->position == NULL;
  smx_params params;
  int64_t full[2] = {(int64_t)w->rows, (int64_t)w->n}, row[1] = {full[0]}, few[2] = {full[0], (int64_t)w->k},
          same[2] = {0, 1};
  smx_tensor p = matrix((void *)(uintptr_t)w->p, SMX_F64, full, 2),
             q = matrix((void *)(uintptr_t)w->q, SMX_F64, full, 2);
  smx_tensor draft = many ? matrix(w->draft, SMX_I64, few, 2) : matrix(w->draft, SMX_I64, row, 1);
  smx_tensor stream = matrix(w->stream, SMX_I64, row, 1), position = matrix(w->position, SMX_I64, row, 1);
  smx_tensor index = matrix(w->index, SMX_I64, row, 1), accepted = matrix(w->accepted, SMX_I64, row, 1);
  const smx_tensor *in[] = {&p, &q, &draft, &stream, &position}, *out[] = {&index, &accepted};
  p.strides = q.strides = same;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "seed", seed);
  if (method) assert_int_equal(smx_params_parse(op, &params, "method", method), SMX_OK);
  if (smx_forward(op, NULL, &params, many ? 4 : 5, in, 2, out)) fail_msg("%s: %s", name, smx_last_error());
}

static int64_t draft[TRIALS * MOST], stream[TRIALS], position[TRIALS], index_of[TRIALS], accepted[TRIALS];

/* Drafts from q: by the inverse of the distribution function, or k without replacement. */
static void make_drafts(const char *name, const double *q, size_t n, size_t k, double seed) {
  const smx_op *op = smx_op_find(name);
  static double z[MOST], key[TRIALS * MOST];
  smx_params params;
  int64_t full[2] = {TRIALS, (int64_t)n}, row[1] = {TRIALS}, few[2] = {TRIALS, (int64_t)k}, same[2] = {0, 1};
  const int one = !strcmp(name, "categorical_sample");
  for (size_t i = 0; i < n; i++) z[i] = log(q[i]);
  for (int64_t i = 0; i < TRIALS; i++) stream[i] = i, position[i] = 0;
  smx_tensor x = matrix(z, SMX_F64, full, 2), s = matrix(stream, SMX_I64, row, 1),
             d = matrix(draft, SMX_I64, one ? row : few, one ? 1 : 2);
  smx_tensor keys = matrix(key, SMX_F64, few, 2);
  const smx_tensor *in[] = {&x, &s}, *out[] = {&d, &keys};
  x.strides = same;
  smx_params_init(op, &params);
  smx_params_set(op, &params, "seed", seed);
  if (one) smx_params_parse(op, &params, "method", "cdf");
  else smx_params_set(op, &params, "k", (double)k);
  if (smx_forward(op, NULL, &params, 2, in, strcmp(name, "gumbel_topk") ? 1 : 2, out))
    fail_msg("%s: %s", name, smx_last_error());
}

static double chi_square(const double *p, size_t n, int64_t *counts) {
  double chi = 0;
  memset(counts, 0, n * sizeof *counts);
  for (int64_t i = 0; i < TRIALS; i++) {
    assert_true(index_of[i] >= 0 && index_of[i] < (int64_t)n);
    counts[index_of[i]]++;
  }
  for (size_t i = 0; i < n; i++)
    chi += ((double)counts[i] - TRIALS * p[i]) * ((double)counts[i] - TRIALS * p[i]) / (TRIALS * p[i]);
  return chi;
}

static int64_t accepted_count(int64_t least) {
  int64_t count = 0;
  for (int64_t i = 0; i < TRIALS; i++) count += accepted[i] >= least;
  return count;
}

static void one_draft_keeps_the_distribution(void **state) {
  static const double p[] = {0.5, 0.3, 0.2}, q[] = {0.2, 0.3, 0.5};
  static const int64_t want[] = {50128, 29832, 20040};
  int64_t counts[3];
  make_drafts("categorical_sample", q, 3, 1, 7);
  verify("speculative_verify", NULL, 7,
         &(round_of){3, 1, TRIALS, p, q, draft, stream, position, index_of, accepted});
  assert_true(chi_square(p, 3, counts) < 27.63);
  assert_memory_equal(counts, want, sizeof want);
  assert_int_equal(accepted_count(1), 70038);
  /* the same model */
  verify("speculative_verify", NULL, 7,
         &(round_of){3, 1, TRIALS, q, q, draft, stream, position, index_of, accepted});
  assert_int_equal(accepted_count(1), TRIALS);
}

/* Acceptance as the formulas have it, for two drafts of three tokens; is2 tests two of the four of
 * eight, and reaches the optimum of both. A deviation is 0.0014. */
static void several_drafts_keep_the_distribution(void **state) {
  static const double p3[] = {0.5, 0.3, 0.2}, q3[] = {0.2, 0.3, 0.5};
  static const double p8[] = {0.3, 0.05, 0.05, 0.2, 0.1, 0.1, 0.15, 0.05},
                      q8[] = {0.1, 0.2, 0.15, 0.05, 0.1, 0.2, 0.1, 0.1};
  static const struct {
    const char *method, *drafts;
    double rate, of_eight; /* 0: not known */
  } methods[] = {{"rrs", "multi_token_sample", 0.76, 0},
                 {"rrs-distinct", "gumbel_topk", 0.82, 0},
                 {"kseq", "multi_token_sample", 0.7913553, 0},
                 {"is2", "multi_token_sample", 0.86, 0.7775}};
  int64_t counts[MOST];
  for (size_t m = 0; m < COUNT_OF(methods); m++) {
    make_drafts(methods[m].drafts, q3, 3, 2, 11);
    verify("multi_draft_verify", methods[m].method, 12,
           &(round_of){3, 2, TRIALS, p3, q3, draft, stream, NULL, index_of, accepted});
    double chi = chi_square(p3, 3, counts), rate = (double)accepted_count(0) / TRIALS;
    printf("%s: chi-square %.2f, accepted %.4f\n", methods[m].method, chi, rate);
    assert_true(chi < 27.63 && fabs(rate - methods[m].rate) < 0.007);
    make_drafts(methods[m].drafts, q8, 8, 4, 13);
    verify("multi_draft_verify", methods[m].method, 14,
           &(round_of){8, 4, TRIALS, p8, q8, draft, stream, NULL, index_of, accepted});
    chi = chi_square(p8, 8, counts), rate = (double)accepted_count(0) / TRIALS;
    printf("%s, 4 of 8: chi-square %.2f, accepted %.4f\n", methods[m].method, chi, rate);
    assert_true(chi < 40.52 && (methods[m].of_eight == 0 || fabs(rate - methods[m].of_eight) < 0.007));
  }
}

/* Whatever the inputs, the token has a probability, or there is none. */
static void any_input(void **state) {
  static const char *const methods[] = {"rrs", "rrs-distinct", "kseq", "is2"};
  rng r = {5};
  for (int round = 0; round < 3000; round++) {
    double p[MOST], q[MOST], sum = 0;
    int64_t d[4], s = round, index, which;
    const size_t n = 1 + (size_t)rng_below(&r, MOST);
    for (size_t i = 0; i < n; i++)
      p[i] = rng_below(&r, 3) ? rng_uniform(&r) : 0, q[i] = rng_below(&r, 3) ? rng_uniform(&r) : 0,
      sum += p[i];
    for (int j = 0; j < 4; j++) d[j] = rng_below(&r, (int64_t)n + 2) - 1;
    const int bad = round % 10 == 0;
    if (bad) (round % 20 ? p : q)[rng_below(&r, (int64_t)n)] = round % 30 ? NAN : -0.5;
    verify("multi_draft_verify", methods[round % 4], 1,
           &(round_of){n, 4, 1, p, q, d, &s, NULL, &index, &which});
    if (bad || sum == 0) assert_true(index == -1 && which == -1);
    else assert_true(index >= 0 && index < (int64_t)n && p[index] > 0 && (which == -1 || d[which] == index));
  }
}

/* ---- inputs of shape K ---- */

static void the_length_of_an_input(void **state) {
  float x[6] = {1, 2, 0.5F, 0, -1, 3}, y[3] = {0};
  int64_t ids[3] = {5, 0, 2}, full[1] = {6}, three[1] = {3}, two[1] = {2};
  smx_tensor tx = matrix(x, SMX_F32, full, 1), ti = matrix(ids, SMX_I64, three, 1),
             ty = matrix(y, SMX_F32, three, 1);
  const smx_tensor *in[] = {&tx, &ti}, *out[] = {&ty};
  const smx_op *op = smx_op_find("closed_set_softmax");
  smx_params params;
  smx_shape shape[2];
  smx_params_init(op, &params);
  assert_int_equal(smx_infer(op, &params, 2, in, 2, shape), SMX_OK);
  assert_int_equal(shape[0].dim[0], 3);
  assert_int_equal(smx_forward(op, NULL, &params, 2, in, 1, out), SMX_OK);
  assert_true(fabsf(y[0] + y[1] + y[2] - 1) < 1e-6F && y[0] > y[1] && y[1] > y[2]);
  smx_params_set(op, &params, "k", 2);
  assert_int_equal(smx_forward(op, NULL, &params, 2, in, 1, out), SMX_ERR_SHAPE);
  smx_params_set(op, &params, "k", 0);
  ty.shape = two;
  assert_int_equal(smx_forward(op, NULL, &params, 2, in, 1, out), SMX_ERR_SHAPE);
}

/* ---- beam search ---- */

static void a_step(void **state) {
  static const double p[2][3] = {{0.5, 0.3, 0.2}, {0.1, 0.6, 0.3}}, score[] = {-1, -1.2};
  float log_p[6];
  smx_beam next[2], finished[2];
  smx_beam_options o = {.size = sizeof o, .eos = -1, .penalty = 1};
  for (int i = 0; i < 6; i++) log_p[i] = (float)log(p[i / 3][i % 3]);
  assert_int_equal(smx_beam_step_f32(NULL, &o, 2, 3, score, log_p, next, finished), SMX_OK);
  assert_true(next[0].parent == 0 && next[0].token == 0 && fabs(next[0].score + 1.69315) < 1e-5);
  assert_true(next[1].parent == 1 && next[1].token == 1 && fabs(next[1].score + 1.71083) < 1e-5);
  assert_int_equal(finished[0].token, -1);
  o.eos = 0, o.penalty = 4; /* the best candidate ends: beam 0 goes on with token 1 */
  assert_int_equal(smx_beam_step_f32(NULL, &o, 2, 3, score, log_p, next, finished), SMX_OK);
  assert_true(finished[0].parent == 0 && finished[0].token == 0 &&
              fabs(finished[0].score + 1.69315 / 4) < 1e-5);
  assert_true(next[0].parent == 1 && next[0].token == 1 && next[1].parent == 0 && next[1].token == 1 &&
              finished[1].token == -1);
  log_p[4] = NAN; /* beam 1 has no candidates */
  assert_int_equal(smx_beam_step_f32(NULL, &o, 2, 3, score, log_p, next, finished), SMX_OK);
  assert_true(next[0].parent == 0 && next[0].token == 1 && next[1].parent == 0 && next[1].token == 2);
  o.eos = 3;
  assert_int_equal(smx_beam_step_f32(NULL, &o, 2, 3, score, log_p, next, finished), SMX_ERR_PARAM);
  o.eos = -1, o.penalty = 0;
  assert_int_equal(smx_beam_step_f32(NULL, &o, 2, 3, score, log_p, next, finished), SMX_ERR_PARAM);
}

/* Three tokens, length three, 27 beams: the search is exhaustive and finds the best of all
 * sequences. */
static void an_exhaustive_search(void **state) {
  enum { V = 3, B = 27 };
  float step[4][V][V]; /* log-probability of a token after another, by position */
  double best = -INFINITY, score[B];
  int64_t last[B];
  smx_beam_options o = {.size = sizeof o, .eos = -1, .penalty = 1};
  rng r = {3};
  for (int t = 0; t < 3; t++)
    for (int i = 0; i < V * V; i++) step[t][i / V][i % V] = (float)log(rng_uniform(&r));
  for (int s = 0; s < B; s++)
    best = fmax(best, (double)step[0][0][s / 9] + (double)step[1][s / 9][s / 3 % 3] +
                          (double)step[2][s / 3 % 3][s % 3]);
  for (int b = 0; b < B; b++) score[b] = b ? -INFINITY : 0, last[b] = 0;
  for (int t = 0; t < 3; t++) {
    float log_p[B][V];
    smx_beam next[B], finished[B];
    for (int b = 0; b < B; b++) memcpy(log_p[b], step[t][last[b]], sizeof log_p[b]);
    assert_int_equal(smx_beam_step_f32(NULL, &o, B, V, score, log_p[0], next, finished), SMX_OK);
    for (int b = 0; b < B; b++) score[b] = next[b].score, last[b] = next[b].token < 0 ? 0 : next[b].token;
    assert_true(next[0].token >= 0 && next[0].score >= next[1].score);
  }
  assert_true(fabs(score[0] - best) < 1e-12);
}

/* ---- mixtures ---- */

static void mixtures(void **state) {
  enum { N = 5, WIDTH = 300, K = 3 };
  static float table[N][WIDTH], out[2][WIDTH], dout[2][WIDTH];
  int64_t index[2][K] = {{4, 0, -1}, {2, 2, 1}};
  float weight[2][K] = {{0.75F, 0.25F, 9}, {0.5F, 0.25F, 0.25F}}, dweight[2][K];
  for (int i = 0; i < N * WIDTH; i++)
    table[i / WIDTH][i % WIDTH] = (float)(i / WIDTH + 1) * 0.5F + (float)(i % WIDTH);
  for (int i = 0; i < 2 * WIDTH; i++) dout[i / WIDTH][i % WIDTH] = i % WIDTH < 2;
  assert_int_equal(smx_mix_embeddings_f32(NULL, 2, K, index[0], weight[0], N, WIDTH, SMX_F32, table, out[0]),
                   SMX_OK);
  for (int i = 0; i < WIDTH; i++) {
    assert_true(out[0][i] == 0.75F * table[4][i] + 0.25F * table[0][i]);
    assert_true(out[1][i] == 0.75F * table[2][i] + 0.25F * table[1][i]);
  }
  assert_int_equal(
      smx_mix_embeddings_backward_f32(NULL, 2, K, index[0], N, WIDTH, SMX_F32, table, dout[0], dweight[0]),
      SMX_OK);
  assert_true(dweight[0][0] == table[4][0] + table[4][1] && dweight[0][2] == 0 &&
              dweight[1][2] == table[1][0] + table[1][1]);
  assert_int_equal(smx_mix_embeddings_f32(NULL, 1, 2, index[1] + 1, NULL, N, WIDTH, SMX_F32, table, out[0]),
                   SMX_OK);
  assert_true(out[0][7] == 0.5F * table[2][7] + 0.5F * table[1][7]);
  index[1][2] = N;
  assert_int_equal(smx_mix_embeddings_f32(NULL, 2, K, index[0], weight[0], N, WIDTH, SMX_F32, table, out[0]),
                   SMX_ERR_TARGET);
  assert_non_null(strstr(smx_last_error(), "row 1"));
  assert_int_equal(smx_mix_embeddings_f32(NULL, 1, K, index[0], weight[0], N, WIDTH, SMX_F64, table, out[0]),
                   SMX_ERR_DTYPE);
}

/* ---- CadLLM ---- */

static void plans(void **state) {
  static const double falling[] = {0.9, 0.85, 0.7}, three_quarters[] = {0.75, 0.75};
  smx_cad plan;
  assert_int_equal(smx_cad_plan(NULL, 0, NULL, 0.1, 0, 1000, &plan), SMX_OK);
  assert_true(plan.vocabulary == 800 && plan.block == 8);
  assert_int_equal(smx_cad_plan(NULL, 3, falling, 0.5, 0, 1000, &plan), SMX_OK);
  assert_int_equal(plan.vocabulary, 72);
  assert_int_equal(smx_cad_plan(NULL, 2, three_quarters, 0.5, 0, 1000, &plan), SMX_OK);
  assert_true(plan.block == 50 && plan.steps == 83);
  assert_int_equal(smx_cad_plan(NULL, 2, three_quarters, 0.9, 0, 3, &plan), SMX_OK);
  assert_true(plan.block == 3 && plan.steps == 5);
  assert_int_equal(smx_cad_plan(NULL, 2, three_quarters, 1.5, 0, 3, &plan), SMX_ERR_PARAM);
  assert_int_equal(smx_cad_plan(NULL, 1, NULL, 0.5, 0, 3, &plan), SMX_ERR_NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_draft_keeps_the_distribution),
      cmocka_unit_test(several_drafts_keep_the_distribution),
      cmocka_unit_test(any_input),
      cmocka_unit_test(the_length_of_an_input),
      cmocka_unit_test(a_step),
      cmocka_unit_test(an_exhaustive_search),
      cmocka_unit_test(mixtures),
      cmocka_unit_test(plans),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
