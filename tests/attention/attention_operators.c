/* attention_operators.c - proves the operators of the family attention on the worked examples of
 * the catalogue of papers, against the operators that they are made of, over several blocks of
 * sheets, and where keys are hidden, depend on each other, or are not numbers. */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "op_call.h"

static void normals(rng *r, double *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = rng_normal(r);
}
static double unit[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};

/* ---- matrices ---- */

/* Scores are the rows of q, since keys and values are those of the unit matrix. */
static void sinkhorn_steps(void **state) {
  double z[] = {1, 0, -1, .5, .5, 0, -1, 0, 2}, y[9], w[9];
  op_call c = {.op = "sinkhorn_attention",
               .in = {REALS(z, 3, 3), REALS(unit, 3, 3), REALS(unit, 3, 3)},
               .out = {REALS(y, 3, 3), REALS(w, 3, 3)},
               .setting = {{"scale", "1"}, {"steps", "1"}}};
  good(call(&c));
  near(y, (double[]){.665240955775, .244728471055, .0900305731704}, 3, 1e-11);
  c.setting[1][1] = "3";
  good(call(&c));
  near(y, (double[]){.599877640593, .324200493605, .0759218658017}, 3, 1e-11);
  c.setting[1][1] = "201";
  good(call(&c));
  near(w, (double[]){.610635233603, .322934840759, .0664299256378}, 3, 1e-11);
  assert_memory_equal(y, w, sizeof y);
}

/* The catalogue's gradient of the limit, of scores, through both ways. */
static void gradients_of_the_limit(void **state) {
  double z[] = {1, 2, 3, 0, 1, 0, 2, 0, 1}, dy[] = {1, -2, .5, 0, 1, 2, -1, 3, .25}, y[9], dq[9], dv[9];
  static const double want[] = {.234815134641,   -.363127745499, .128312610858,
                                -.0618944385723, .0521921862065, .00970225236573,
                                -.172920696069,  .310935559293,  -.138014863224};
  op_call c = {.op = "sinkhorn_attention",
               .in = {REALS(z, 3, 3), REALS(unit, 3, 3), REALS(unit, 3, 3)},
               .out = {REALS(y, 3, 3)},
               .dout = {dy},
               .din = {dq, NULL, dv},
               .setting = {{"scale", "1"}, {"steps", "201"}, {"gradient", "steps"}}};
  for (int limit = 0; limit < 2; limit++) {
    c.setting[2][1] = limit ? "limit" : "steps";
    good(call(&c));
    near(dq, want, 9, 1e-10);
    for (int j = 0; j < 3; j++)
      for (int i = 0; i < 3; i++)
        near(dv + 3 * j + i, (double[]){y[j] * dy[i] + y[3 + j] * dy[3 + i] + y[6 + j] * dy[6 + i]}, 1,
             1e-15);
  }
}

static void squares_of_q(void **state) {
  double z[] = {1, 0, -1, .5, .5, 0, -1, 0, 2}, cost[] = {1, 2, 3, 0, 1, 0, 2, 0, 1}, y[9], dq[9],
         dy[] = {1, -2, .5, 0, 1, 2, -1, 3, .25};
  op_call c = {.op = "orthostochastic_attention",
               .in = {REALS(z, 3, 3), REALS(unit, 3, 3), REALS(unit, 3, 3)},
               .out = {REALS(y, 3, 3)},
               .setting = {{"scale", "1"}, {"noise", "0"}}};
  good(call(&c));
  near(y, (double[]){4 / 9., 1 / 18., .5, 1 / 9., 8 / 9., 0, 4 / 9., 1 / 18., .5}, 9, 1e-15);
  c.in[0].data = cost, c.dout[0] = dy, c.din[0] = dq;
  good(call(&c));
  for (int i = 0; i < 3; i++)
    near(dq + 3 * i, (double[]){(double[]){1.87265306122449, .73469387755102, -.936326530612245}[i]}, 1,
         1e-13);
}

/* More tokens than elements: numbers with the noise of the paper, NaN without. */
static void keys_that_depend_on_each_other(void **state) {
  enum { N = 7, D = 2 };
  double q[N * D], k[N * D], y[N * D], w[N * N], dy[N * D], dq[N * D], dk[N * D], values[N * D];
  rng r = {3};
  normals(&r, values, N * D), normals(&r, q, N * D), normals(&r, k, N * D), normals(&r, dy, N * D);
  op_call c = {.op = "orthostochastic_attention",
               .in = {REALS(q, N, D), REALS(k, N, D), REALS(values, N, D)},
               .out = {REALS(y, N, D), REALS(w, N, N)},
               .dout = {dy},
               .din = {dq, dk}};
  good(call(&c));
  for (int i = 0; i < N; i++) {
    double row = 0, column = 0;
    for (int j = 0; j < N; j++) row += w[i * N + j], column += w[j * N + i];
    near((double[]){row, column}, (double[]){1, 1}, 2, 1e-12);
  }
  for (int i = 0; i < 2 * N * D; i++) {
    double *x = i < N * D ? q + i : k + (i - N * D), at = *x, want = 0, moved[N * D];
    op_call there = c;
    there.out[0].data = moved, there.din[0] = there.din[1] = NULL;
    for (int side = -1; side <= 1; side += 2) {
      *x = at + side * 1e-3;
      good(call(&there));
      for (int j = 0; j < N * D; j++) want += side * dy[j] * moved[j] / 2e-3;
    }
    *x = at;
    near(i < N * D ? dq + i : dk + (i - N * D), &want, 1, 1e-4);
  }
  c.setting[0][0] = "noise", c.setting[0][1] = "0";
  good(call(&c));
  for (int i = 0; i < N * D; i++) assert_true(isnan(dq[i]) && isfinite(y[i]));
}

/* Sheets of several blocks have the bits of one alone, for every instruction set and threads. */
static void sheets_are_apart(void **state) {
  enum { SHEETS = 3, L = 300, T = 400, D = 2 };
  static double q[SHEETS * L * D], k[SHEETS * T * D], y[SHEETS * L * D], dq[SHEETS * L * D],
      dk[SHEETS * T * D], one[L * D], done[L * D], dkey[T * D], first[SHEETS * L * D];
  rng r = {4};
  normals(&r, q, SHEETS * L * D), normals(&r, k, SHEETS * T * D);
  op_call c = {.op = "sinkhorn_attention",
               .in = {REALS(q, SHEETS, L, D), REALS(k, SHEETS, T, D), REALS(k, SHEETS, T, D)},
               .out = {REALS(y, SHEETS, L, D)},
               .dout = {q},
               .din = {dq, dk},
               .setting = {{"steps", "2"}}};
  for (way w = {0}; next_way(&w);) {
    c.ctx = w.ctx;
    good(call(&c));
    if (w.number == 1) memcpy(first, y, sizeof y);
    assert_memory_equal(first, y, sizeof y);
  }
  c.ctx = NULL;
  for (int i = 0; i < SHEETS; i++) {
    op_call alone = {
        .op = c.op,
        .in = {REALS(q + i * L * D, L, D), REALS(k + i * T * D, T, D), REALS(k + i * T * D, T, D)},
        .out = {REALS(one, L, D)},
        .dout = {q + i * L * D},
        .din = {done, dkey},
        .setting = {{"steps", "2"}}};
    good(call(&alone));
    assert_memory_equal(one, y + i * L * D, sizeof one);
    assert_memory_equal(done, dq + i * L * D, sizeof done);
    assert_memory_equal(dkey, dk + i * T * D, sizeof dkey);
  }
}

/* A hidden key may be anything; a row without keys follows the policy of empty rows. */
static void hidden_keys(void **state) {
  double q[] = {1, 2, 3}, k[] = {.5, NAN, 1}, v[] = {1, INFINITY, 3}, y[3], w[9], dy[] = {1, 1, 1}, dq[3],
         dk[3], dv[3];
  unsigned char mask[] = {1, 0, 1, 1, 0, 1, 0, 0, 0};
  op_call c = {.op = "sinkhorn_attention",
               .in = {REALS(q, 3, 1), REALS(k, 3, 1), REALS(v, 3, 1), BYTES(mask, 3, 3)},
               .out = {REALS(y, 3, 1), REALS(w, 3, 3)},
               .dout = {dy},
               .din = {dq, dk, dv}};
  good(call(&c));
  near((double[]){w[0] + w[2], w[3] + w[5], w[1], w[4], y[2], dq[2], dk[1], dv[1]},
       (double[]){1, 1, 0, 0, 0, 0, 0, 0}, 8, 1e-15);
  assert_true(y[0] > 1 && y[0] < 3);
  smx_context_options options = {.size = sizeof options, .on_empty = SMX_EMPTY_ERROR};
  good(smx_context_create(&options, &c.ctx));
  y[0] = -7;
  assert_true(call(&c) != SMX_OK && y[0] == -7);
  smx_context_destroy(c.ctx);
}

/* ---- neighbours ---- */

/* The catalogue's three queries; scores are those of unit keys. */
static void neighbours_of_scores(void **state) {
  double z[] = {1, 0, 0, .5, -.5, 0, 0, 1, 2}, theta[] = {0, .1, 0, .2, 1, .3}, one[] = {0, 0, 0, 0, 1, 0},
         y[9], w[9], plain[9];
  op_call c = {
      .op = "multi_token_attention",
      .in = {REALS(z, 1, 3, 3), REALS(unit, 1, 3, 3), REALS(unit, 1, 3, 3), REALS(theta, 1, 2, 3), {0}},
      .out = {REALS(y, 1, 3, 3), REALS(w, 1, 3, 3)},
      .setting = {{"scale", "1"}, {"causal", "yes"}}};
  good(call(&c));
  near(y, (double[]){1, 0, 0, .700567142474, .299432857526, 0, .0936335159969, .310874220996, .595492263007},
       9, 1e-11);
  assert_memory_equal(y, w, sizeof y);
  c.in[3].data = one, c.setting[1][1] = "no";
  good(call(&c));
  op_call softmax = {.op = "sinkhorn_attention",
                     .in = {REALS(z, 3, 3), REALS(unit, 3, 3), REALS(unit, 3, 3)},
                     .out = {REALS(plain, 3, 3)},
                     .setting = {{"scale", "1"}, {"steps", "1"}}};
  good(call(&softmax));
  assert_memory_equal(y, plain, sizeof y);
}

/* Nothing of the future comes in, not even a NaN, through kernels before and after the softmax. */
static void nothing_of_the_future(void **state) {
  enum { H = 2, L = 6, D = 2 };
  double q[H * L * D], k[H * L * D], theta[H * 2 * 3], mix[] = {.5, 1, -1, .5}, y[2][H * L * D];
  rng r = {9};
  normals(&r, q, H * L * D), normals(&r, k, H * L * D), normals(&r, theta, H * 2 * 3);
  op_call c = {.op = "multi_token_attention",
               .in = {REALS(q, H, L, D),
                      REALS(k, H, L, D),
                      REALS(k, H, L, D),
                      REALS(theta, H, 2, 3),
                      {0},
                      REALS(mix, H, H),
                      REALS(theta, H, 2, 3),
                      REALS(mix, H, H)},
               .out = {REALS(y[0], H, L, D)}};
  good(call(&c));
  for (int h = 0; h < H; h++) k[h * L * D + 4 * D] = NAN, q[h * L * D + 5 * D] = INFINITY;
  c.out[0].data = y[1];
  good(call(&c));
  for (int h = 0; h < H; h++) assert_memory_equal(y[0] + h * L * D, y[1] + h * L * D, 4 * D * sizeof(double));
  assert_true(isnan(y[1][4 * D]));
}

/* Gradients of kernels are sums over batches in order, whatever the blocks, threads and sets. */
static void kernels_learn_from_all_blocks(void **state) {
  enum { N = 3, H = 2, L = 280, D = 2, ROW = H * L * D, K = H * 2 * 3 };
  static double q[N * ROW], y[N * ROW], dq[N * ROW], theta[K],
      mix[] = {1, .5, -.5, 1}, dtheta[K], dmix[4], dafter[K], first[2 * K + 4], sum[K], part[K], lost[K];
  rng r = {6};
  normals(&r, q, N * ROW), normals(&r, theta, K);
  op_call c = {.op = "multi_token_attention",
               .in = {REALS(q, N, H, L, D),
                      REALS(q, N, H, L, D),
                      REALS(q, N, H, L, D),
                      REALS(theta, H, 2, 3),
                      {0},
                      REALS(mix, H, H),
                      REALS(theta, H, 2, 3)},
               .out = {REALS(y, N, H, L, D)},
               .dout = {q},
               .din = {dq, NULL, NULL, dtheta, NULL, dmix, dafter}};
  for (way w = {0}; next_way(&w);) {
    c.ctx = w.ctx;
    good(call(&c));
    double *const now[] = {dtheta, dafter, dmix};
    for (int i = 0; i < 3; i++) {
      if (w.number == 1) memcpy(first + i * K, now[i], (i < 2 ? K : 4) * sizeof(double));
      assert_memory_equal(first + i * K, now[i], (i < 2 ? K : 4) * sizeof(double));
    }
  }
  for (int i = 0; i < N; i++) {
    op_call alone = c;
    alone.ctx = NULL, alone.dout[0] = q + i * ROW, alone.out[0] = (port)REALS(y, H, L, D);
    for (int j = 0; j < 3; j++) alone.in[j] = (port)REALS(q + i * ROW, H, L, D);
    alone.din[3] = part, alone.din[6] = lost;
    good(call(&alone));
    for (int j = 0; j < K; j++) sum[j] += part[j];
  }
  assert_memory_equal(sum, first, sizeof sum);
}

/* ---- landmarks ---- */

/* The catalogue's three landmarks, which are apart by 1 and sqrt 2, and their inverse after so many
 * steps; tokens that are the landmarks. */
static void inverse_of_landmarks(void **state) {
  double x[] = {0, 0, 1, 0, 0, 1}, y[9], far[] = {100, 0, 0, 100, -100, 0};
  op_call c = {.op = "soft_attention",
               .in = {REALS(x, 3, 2), REALS(x, 3, 2), REALS(unit, 3, 3)},
               .out = {REALS(y, 3, 3)},
               .setting = {{"scale", "1"}, {"ridge", "0"}}};
  good(call(&c)); /* A A^-1 A */
  near(y, (double[]){1, .606530659713, .606530659713, .606530659713, 1, .367879441171}, 6, 1e-12);
  c.setting[2][0] = "normalise", c.setting[2][1] = "yes";
  good(call(&c)); /* A D A^-1 D A, as the authors' SoftmaxFreeNormAttention has it */
  near(y, (double[]){.45367578, .29220429, .29220429, .29220429, .50772039, .18756372}, 6, 1e-8);
  c.in[0].data = far, c.setting[1][1] = "0.01", c.setting[2][0] = "steps", c.setting[2][1] = "40";
  c.in[1].data = far;
  good(call(&c));
  near(y, (double[]){1 / 1.01, 0, 0, 0, 1 / 1.01}, 5, 1e-14);
  c.in[0].data = x, c.in[1].data = x, c.setting[2][1] = "0";
  good(call(&c)); /* A (alpha P) A: of the first element */
  const double a = .606530659712633, b = .367879441171442, top = 1.01 + 2 * a, alpha = 1.8 / (top * top);
  near(y, (double[]){alpha * (1.01 * (1 + 2 * a * a) + 4 * a * a + 2 * a * a * b)}, 1, 1e-14);
}

/* ---- Galerkin, Fourier ---- */

/* The catalogue's query and keys, and norms that are known: of (1, 0) and (0, 1) they are (1, -1)
 * and (-1, 1), of (-1, 1) too but for eps. */
static void galerkin_and_fourier(void **state) {
  double q[] = {1, .5}, k[] = {1, 0, 0, 1, -1, 1}, v[] = {1, 0, 0, 1, 1, 1}, y[2], shift[] = {.5, .5},
         half[] = {.5, .5};
  op_call c = {.op = "galerkin_attention",
               .in = {REALS(q, 1, 1, 2),
                      REALS(k, 1, 3, 2),
                      REALS(v, 1, 3, 2),
                      {0},
                      {0},
                      REALS(half, 1, 2),
                      REALS(shift, 1, 2)},
               .out = {REALS(y, 1, 1, 2)},
               .setting = {{"eps", "1e-15"}}};
  good(call(&c)); /* values (1, 0), (0, 1), (.5, .5) */
  double m[4] = {0}, keys[] = {1, -1, -1, 1, -1, 1}, values[] = {1, 0, 0, 1, .5, .5};
  for (int j = 0; j < 3; j++)
    for (int i = 0; i < 4; i++) m[i] += keys[2 * j + i / 2] * values[2 * j + i % 2] / 3;
  near(y, (double[]){m[0] + .5 * m[2], m[1] + .5 * m[3]}, 2, 1e-12);
  c.op = "fourier_attention", c.in[5].data = c.in[6].data = NULL;
  good(call(&c));
  near(y,
       (double[]){sqrt(.5) * (2 * v[0] - 2 * v[2] - 2 * v[4]) / 3,
                  sqrt(.5) * (2 * v[1] - 2 * v[3] - 2 * v[5]) / 3},
       2, 1e-12);
}

/* ---- ranges ---- */

static void ranges_of_keys(void **state) {
  double s[] = {0, log(2), log(5), NAN, 1, -INFINITY, 2, 3, 1, 1, 1, 1}, v[] = {1, 2, 3, 4}, y[3], log_p[3],
         lse[3], up[] = {1, 1, 1}, ds[12], dv[4], nothing[] = {0, 0, 0};
  int64_t begin[] = {-9, 1, 3}, end[] = {3, 2, 1}, position[] = {2, 0, 3};
  op_call c = {.op = "segment_attention",
               .in = {REALS(s, 3, 4), REALS(v, 4, 1), WHOLE(begin, 3), WHOLE(end, 3), WHOLE(position, 3)},
               .out = {REALS(y, 3, 1), REALS(log_p, 3), REALS(lse, 3)},
               .dout = {up, nothing, nothing},
               .din = {ds, dv},
               .setting = {{"hard", "no"}}};
  good(call(&c)); /* 1/8, 2/8, 5/8; one key, which is -inf; no keys */
  near((double[]){y[0], log_p[0], lse[0], y[1], y[2]}, (double[]){2.5, log(5 / 8.), log(8), 0, 0}, 5, 1e-15);
  assert_true(log_p[1] == -INFINITY && lse[1] == -INFINITY && log_p[2] == -INFINITY);
  near(ds, (double[]){-1.5 / 8, -1 / 8., 2.5 / 8, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 12, 1e-15);
  near(dv, (double[]){1 / 8., 2 / 8., 5 / 8., 0}, 4, 1e-15);
  c.setting[0][1] = "yes", c.dout[1] = up;
  good(call(&c));
  near((double[]){y[0], y[1], y[2]}, (double[]){3, 0, 0}, 3, 0);
  near(ds, (double[]){-1 / 8., -2 / 8., 3 / 8., 0, 0, 0, 0, 0, 0, 0, 0, 0}, 12, 1e-15);
  near(dv, (double[]){0, 0, 1, 0}, 4, 0);
  smx_context_options options = {.size = sizeof options, .on_empty = SMX_EMPTY_ERROR};
  good(smx_context_create(&options, &c.ctx));
  y[0] = -7;
  refused(call(&c), SMX_ERR_EMPTY, "query 1");
  assert_true(y[0] == -7);
  smx_context_destroy(c.ctx);
}

/* A position whose p is too small for a double is there, unlike one at -inf; scores of +inf share
 * the mass where the context says so. */
static void likely_or_not(void **state) {
  double s[] = {0, -1000, 2, 0, -INFINITY, 2, INFINITY, 1, INFINITY}, v[] = {1, 2, 4}, y[3], log_p[3], lse[3],
         up[] = {1, 1, 1}, ds[9], dv[3];
  int64_t begin[] = {0, 0, 0}, end[] = {3, 3, 3}, position[] = {1, 1, 2};
  op_call c = {.op = "segment_attention",
               .in = {REALS(s, 3, 3), REALS(v, 3, 1), WHOLE(begin, 3), WHOLE(end, 3), WHOLE(position, 3)},
               .out = {REALS(y, 3, 1), REALS(log_p, 3), REALS(lse, 3)},
               .dout = {up, up},
               .din = {ds, dv},
               .setting = {{"hard", "yes"}}};
  good(call(&c));
  near((double[]){y[0], log_p[0], y[1]}, (double[]){2, -1002 - log1p(exp(-2)), 0}, 3, 1e-12);
  assert_true(log_p[1] == -INFINITY && isnan(y[2]) && isnan(log_p[2]) && isnan(lse[2]));
  near(dv + 1, (double[]){1}, 1, 0);
  smx_context_options options = {.size = sizeof options, .on_inf = SMX_INF_LIMIT};
  good(smx_context_create(&options, &c.ctx));
  good(call(&c));
  near((double[]){y[2], log_p[2]}, (double[]){4, -log(2)}, 2, 1e-15);
  assert_true(lse[2] == INFINITY);
  near(dv, (double[]){0, 1, 1}, 3, 0);
  c.setting[0][1] = "no", position[2] = 1;
  good(call(&c));
  near(y + 2, (double[]){2.5}, 1, 0);
  near(ds + 6, (double[]){-.75 - .5, 1, .75 - .5}, 3, 1e-15);
  assert_true(log_p[2] == -INFINITY);
  smx_context_destroy(c.ctx);
}

/* ---- maxima and budgets ---- */

static void the_best_tokens(void **state) {
  double q[] = {1, 0, .6, .8}, document[] = {.8, .6, 0, 1, 1, 0, 1, 0}, score[3], g[] = {1, 2, 4}, dq[4],
         dd[8];
  int64_t offsets[] = {0, 3, 3, 4}, index[6];
  unsigned char mask[] = {1, 1, 1, 0};
  op_call c = {.op = "max_sim",
               .in = {REALS(q, 2, 2), REALS(document, 4, 2), WHOLE(offsets, 4)},
               .out = {REALS(score, 3), WHOLE(index, 3, 2)},
               .dout = {g},
               .din = {dq, dd},
               .setting = {{"tau", "0"}}};
  good(call(&c));
  near((double[]){score[0], score[2]}, (double[]){1.96, 1.6}, 2, 1e-15);
  assert_true(score[1] == -INFINITY);
  assert_memory_equal(index, ((int64_t[]){2, 0, -1, -1, 3, 3}), sizeof index);
  near(dq, (double[]){5, 0, 4.8, .6}, 4, 1e-15);
  near(dd, (double[]){.6, .8, 0, 0, 1, 0, 6.4, 3.2}, 8, 1e-15);
  op_call one = c; /* without offsets */
  one.in[2].data = NULL, one.in[1].shape[0] = 3, one.out[0].shape[0] = one.out[1].shape[0] = 1;
  good(call(&one));
  near(score, (double[]){1.96}, 1, 1e-15);
  assert_memory_equal(index, ((int64_t[]){2, 0}), 2 * sizeof *index);
  near(dq, (double[]){1, 0, .8, .6}, 4, 1e-15);
  document[4] = .8, document[5] = -7; /* a tie for the first row */
  c.in[4] = (port)BYTES(mask, 4);
  good(call(&c));
  assert_true(index[0] == 0 && score[2] == -INFINITY);
  near(dd, (double[]){1.6, .8, 0, 0, 0, 0, 0, 0}, 8, 1e-15);
  c.setting[0][1] = "1e-3";
  document[4] = 1, document[5] = 0;
  good(call(&c));
  near(score, (double[]){1.96}, 1, 1e-9);
  document[0] = NAN;
  good(call(&c));
  assert_true(isnan(score[0]) && index[0] == -1 && isnan(dq[0]) && isnan(dd[0]));
}

/* Softly: NaN, or the share of each where the context says so. */
static void endless_products(void **state) {
  double q[] = {1}, document[] = {INFINITY, 1, INFINITY, -INFINITY}, score[1], g[] = {4}, dq[1], dd[4];
  int64_t offsets[] = {0, 4}, index[1];
  op_call c = {.op = "max_sim",
               .in = {REALS(q, 1, 1), REALS(document, 4, 1), WHOLE(offsets, 2)},
               .out = {REALS(score, 1), WHOLE(index, 1, 1)},
               .dout = {g},
               .din = {dq, dd},
               .setting = {{"tau", "0.5"}}};
  good(call(&c));
  assert_true(isnan(score[0]) && index[0] == -1);
  smx_context_options options = {.size = sizeof options, .on_inf = SMX_INF_LIMIT};
  good(smx_context_create(&options, &c.ctx));
  good(call(&c));
  assert_true(score[0] == INFINITY && index[0] == 0);
  near(dd, (double[]){2, 0, 2, 0}, 4, 0);
  smx_context_destroy(c.ctx);
}

static void layers_lose_the_same_share(void **state) {
  double mass[] = {.7, .1, .05, .05, .05, .05, .2, .2, .2, .2, .1, .1};
  int64_t index[12], budget[2];
  op_call c = {.op = "kv_budget_prefix",
               .in = {REALS(mass, 2, 6)},
               .out = {WHOLE(index, 2, 6), WHOLE(budget, 2)},
               .setting = {{"keep", "7"}, {"first", "0"}, {"last", "0"}}};
  good(call(&c));
  assert_memory_equal(budget, ((int64_t[]){3, 4}), sizeof budget);
  assert_memory_equal(index, ((int64_t[]){0, 1, 2, -1, -1, -1, 0, 1, 2, 3, -1, -1}), sizeof index);
  c.setting[2][1] = "1", mass[4] = .5;
  good(call(&c));
  assert_memory_equal(index, ((int64_t[]){0, 4, 5, -1, -1, -1, 0, 1, 2, 5, -1, -1}), sizeof index);
  c.setting[0][1] = "13";
  refused(call(&c), SMX_ERR_PARAM, "keep is 13");
  c.setting[0][1] = "1";
  refused(call(&c), SMX_ERR_PARAM, "2 keys are kept anyway");
  c.setting[0][1] = "5", c.setting[2][1] = "0";
  for (int i = 0; i < 12; i++) mass[i] = i < 4 || i == 6 ? DBL_MAX : 0; /* sums beyond a double */
  good(call(&c));
  assert_memory_equal(budget, ((int64_t[]){4, 1}), sizeof budget);
  c.setting[0][1] = "7", c.setting[2][1] = "1", mass[0] = -1;
  good(call(&c));
  for (int i = 0; i < 12; i++) assert_true(index[i] == -1 && budget[i / 6] == -1);
}

/* Equal masses: the base each. By 10, 2 and 0 votes 6 seats are 5, 1, 0, and with a cap of 3 they
 * are 3, 3, 0; the last key is kept beside. */
static void layers_share_by_votes(void **state) {
  double mass[3 * 2 * 8];
  int64_t index[3 * 2 * 8], budget[3];
  op_call c = {.op = "kv_budget_dynamic",
               .in = {REALS(mass, 3, 2, 8)},
               .out = {WHOLE(index, 3, 2, 8), WHOLE(budget, 3)},
               .setting = {{"keep", "2"}, {"last", "1"}, {"most", "10"}}};
  static const int order[] = {1, 2, 0, 3, 5, 4, 6, 7};
  for (int i = 0; i < 48; i++) mass[i] = i % 8 == 7 ? 99 : order[i % 8] / 16.;
  good(call(&c));
  assert_memory_equal(budget, ((int64_t[]){3, 3, 3}), sizeof budget);
  assert_memory_equal(index, ((int64_t[]){4, 6, 7, -1, -1, -1, -1, -1}), 8 * sizeof *index);
  for (int i = 0; i < 16; i++) mass[i] = i % 8 < 5 ? 3 : 0; /* 10 of the 12 largest masses */
  good(call(&c));
  assert_memory_equal(budget, ((int64_t[]){6, 2, 1}), sizeof budget);
  c.setting[2][1] = "1.5";
  good(call(&c));
  assert_memory_equal(budget, ((int64_t[]){4, 4, 1}), sizeof budget);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sinkhorn_steps),
      cmocka_unit_test(gradients_of_the_limit),
      cmocka_unit_test(squares_of_q),
      cmocka_unit_test(keys_that_depend_on_each_other),
      cmocka_unit_test(sheets_are_apart),
      cmocka_unit_test(hidden_keys),
      cmocka_unit_test(neighbours_of_scores),
      cmocka_unit_test(nothing_of_the_future),
      cmocka_unit_test(kernels_learn_from_all_blocks),
      cmocka_unit_test(inverse_of_landmarks),
      cmocka_unit_test(galerkin_and_fourier),
      cmocka_unit_test(ranges_of_keys),
      cmocka_unit_test(likely_or_not),
      cmocka_unit_test(the_best_tokens),
      cmocka_unit_test(endless_products),
      cmocka_unit_test(layers_lose_the_same_share),
      cmocka_unit_test(layers_share_by_votes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
