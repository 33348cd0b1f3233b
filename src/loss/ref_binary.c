/* loss/ref_binary.c - more sums over the classes, each on its own. See ref.c. */
#include "ref.h"

/* Whether a NaN of x or t makes the row NaN; then its outputs are written. */
static int spoiled(const row_ref_call *c) {
  for (size_t j = 0; j < c->n; j++)
    if (isnan(c->in[0][j]) || isnan(c->in[1][j])) {
      give(c, (double)NAN);
      return 1;
    }
  return 0;
}

void sigmoid_focal_loss_ref(const row_ref_call *c) {
  real sum = 0, gamma = c->q[0], alpha = c->q[1];
  if (spoiled(c)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], t = c->in[1][j], yes = (alpha < 0 ? 1 : alpha) * t,
         no = (alpha < 0 ? 1 : 1 - alpha) * (1 - t), s = sigmoid(x), o = sigmoid(-x);
    sum += part(yes * powl(o, gamma), softplus(-x)) + part(no * powl(s, gamma), softplus(x));
    c->out[DX][j] = (double)(part(no * powl(s, gamma), s + part(gamma * o, softplus(x))) -
                             part(yes * powl(o, gamma), o + part(gamma * s, softplus(-x))));
  }
  c->out[LOSS][0] = (double)sum;
}

void binary_cross_entropy_ref(const row_ref_call *c) {
  real sum = 0, scale = c->q[0] == 1 ? 1 / (real)c->n : 1;
  if (spoiled(c)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], t = c->in[1][j], w = c->in[3] ? c->in[3][j] : 1;
    real yes = w * (c->in[2] ? c->in[2][j] : 1);
    sum += part(yes * t, softplus(-x)) + part(w * (1 - t), softplus(x));
    c->out[DX][j] = (double)(scale * (part(w * (1 - t), sigmoid(x)) - part(yes * t, sigmoid(-x))));
  }
  c->out[LOSS][0] = (double)(scale * sum);
}

void quality_focal_loss_ref(const row_ref_call *c) {
  real sum = 0, gamma = c->q[1] == 2 ? 0 : c->q[0];
  if (spoiled(c)) return;
  for (size_t j = 0; j < c->n; j++) {
    real x = c->in[0][j], t = c->in[1][j], d = sigmoid(x) - t, slope = sigmoid(x) * sigmoid(-x),
         size = fabsl(d);
    real entropy = part(t, softplus(-x)) + part(1 - t, softplus(x)), g = 2 * d * slope;
    if (c->q[1] != 1) {
      g = powl(size, gamma) * d;
      if (c->q[2] == 0 && gamma > 0 && d != 0)
        g += part(gamma * powl(size, gamma - 1) * (d > 0 ? 1 : -1) * slope, entropy);
    }
    sum += c->q[1] == 1 ? d * d : part(powl(size, gamma), entropy);
    c->out[DX][j] = (double)g;
  }
  c->out[LOSS][0] = (double)sum;
}

void fidelity_loss_ref(const row_ref_call *c) {
  real sum = 0, e = c->q[0], v = c->in[2] ? c->in[2][0] : 2, pi = acosl(-1);
  int bad = spoiled(c) || !(v > 0);
  for (size_t j = 0; j < c->n; j++) bad |= c->in[1][j] < 0 || c->in[1][j] > 1;
  if (bad) {
    give(c, c->n > 0 ? (double)NAN : 0);
    return;
  }
  for (size_t j = 0; j < c->n; j++) {
    real z = (real)c->in[0][j] / sqrtl(v), p = erfcl(-z / sqrtl(2)) / 2, q = erfcl(z / sqrtl(2)) / 2,
         g = c->in[1][j];
    real first = sqrtl(p * g + e), second = sqrtl(q * (1 - g) + e);
    sum += 1 - first - second;
    c->out[DX][j] = (double)(((1 - g) / second - g / first) / 2 * expl(-z * z / 2) / sqrtl(2 * pi * v));
  }
  c->out[LOSS][0] = (double)sum;
}

void relu_classifier_ref(const row_ref_call *c) {
  size_t y;
  real e = c->q[2], sum = 0;
  if (!open_terms(c, c->in[1], 1, &y)) return;
  for (size_t j = 0; j < c->n; j++) sum += fmaxl(0, c->in[0][j]) + e;
  real own = fmaxl(0, c->in[0][y]) + e;
  c->out[LOSS][0] = (double)(own == 0 ? (real)INFINITY : c->q[1] == 1 ? logl(sum / own) : -logl(own));
  for (size_t j = 0; j < c->n; j++) {
    real g = c->q[1] == 1 ? (j == y ? -(sum - own) / own / sum : 1 / sum) : j == y ? -1 / own : 0;
    c->out[DX][j] = c->in[0][j] > 0 ? (double)g : 0;
  }
}

void group_entropy_ref(const row_ref_call *c) {
  real loss = 0, w = c->q[1], mass[2] = {0, 0}, inner[2] = {0, 0}, count[2] = {0, 0};
  for (size_t j = 0; j < c->n; j++) {
    int g = (double)j >= c->q[0];
    mass[g] += c->in[0][j];
    count[g] += 1;
    if (c->in[0][j] >= 0 && c->in[0][j] < (double)INFINITY) continue;
    give(c, (double)NAN);
    return;
  }
  for (size_t j = 0; j < c->n; j++) {
    int g = (double)j >= c->q[0];
    real r = c->in[0][j] / mass[g];
    if (r > 0 && count[g] > 1) inner[g] += r * logl(r);
  }
  for (int g = 0; g < 2; g++) {
    if (mass[g] > 0) loss += w * mass[g] * logl(mass[g]);
    if (mass[g] > 0 && count[g] > 1) loss += (real)c->q[2 + g] * (inner[g] + logl(count[g]));
  }
  if (count[0] > 0 && count[1] > 0) loss += w * logl(2);
  for (size_t j = 0; j < c->n; j++) {
    int g = (double)j >= c->q[0];
    real r = c->in[0][j] / mass[g], slope = w * (logl(mass[g]) + 1);
    if (count[g] > 1) slope += (real)c->q[2 + g] * (logl(r) - inner[g]) / mass[g];
    c->out[DX][j] = c->in[0][j] > 0 ? (double)slope : 0;
  }
  c->out[LOSS][0] = (double)loss;
}
