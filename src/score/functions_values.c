/* score/functions_values.c - scores and their derivatives from the sums of a row, in double. */
#include "functions.h"

#define INF __builtin_inf()

uint32_t score_needs(int which) {
  static const uint32_t needs[SCORE_ROWS] = {
      [SCORE_renyi_entropy] = SCORE_POWER,
      [SCORE_tsallis_entropy] = SCORE_POWER,
      [SCORE_logit_variance] = SCORE_VARIANCE,
      [SCORE_label_non_uniformity] = SCORE_ABSOLUTE,
  };
  return needs[which];
}

static double at_least_0(double x) { return x < 0 ? 0 : x; }

/* (z - max) / temperature, and 0 where both are +inf. */
static double distance(const score_row *r, const score_sums *s, double z) {
  return z == s->max ? 0 : (z - s->max) / r->temperature;
}
static double entropy_of(const score_sums *s) { return at_least_0(s->log_sum - s->moment / (s->rest + 1)); }
/* sum p^2 is `same` / s^2, and 1 minus it `other` / s^2, without cancelling. */
static double same_of(const score_sums *s) { return s->squares + s->ties; }
static double other_of(const score_sums *s) {
  return s->ties * s->rest + (s->rest + 1) * s->below - s->squares;
}

/* What an entropy or a small confidence is divided by. */
static double most_of(const score_item *item, const score_sums *s) {
  if (!item->normalise) return 1;
  if (item->which == SCORE_least_confidence) return (s->valid - 1) / s->valid;
  return s->log_valid;
}
/* x / most, and 0 where there is one class. */
static double of_most(const score_item *item, const score_sums *s, double x) {
  return s->valid == 1 ? 0 : x / most_of(item, s);
}

/* sum (p_i - o_i)^2 with e of the target and s: ((s - e)^2 + sum of the other e^2) / s^2. */
static double brier_of(const score_kernels *k, const score_row *r, const score_sums *s, double z_target) {
  const double whole = s->rest + 1, e = k->exp(distance(r, s, z_target)), less = e == 1 ? s->rest : whole - e;
  const double others = e == 1 ? s->squares + (s->ties - 1) : same_of(s) - e * e;
  return less / whole * (less / whole) + others / whole / whole;
}

double score_value(const score_kernels *k, const score_row *r, const score_item *item, const score_sums *s,
                   double z_target) {
  const double whole = s->rest + 1;
  if (s->nan) return __builtin_nan("");
  if (s->valid == 0)
    return item->which == SCORE_max_logit || item->which == SCORE_energy ? -INF : __builtin_nan("");
  switch (item->which) {
    case SCORE_msp: return 1 / whole;
    case SCORE_least_confidence: return of_most(item, s, s->rest / whole);
    case SCORE_margin: return -k->expm1(distance(r, s, s->second)) / whole;
    case SCORE_ratio: return k->exp(distance(r, s, s->second));
    case SCORE_max_logit: return s->max;
    case SCORE_logit_margin: return s->second == s->max ? 0 : s->max - s->second;
    case SCORE_energy: return s->max + r->temperature * s->log_sum;
    case SCORE_entropy: return of_most(item, s, entropy_of(s));
    case SCORE_renyi_entropy: return r->order == 1 ? entropy_of(s) : at_least_0(s->power / (1 - r->order));
    case SCORE_tsallis_entropy:
      if (r->order == 2) return other_of(s) / whole / whole;
      return r->order == 1 ? entropy_of(s) : at_least_0(-k->expm1(s->power) / (r->order - 1));
    case SCORE_gini: return other_of(s) / whole / whole;
    case SCORE_kl_to_uniform: return at_least_0(s->log_valid - entropy_of(s));
    case SCORE_kl_from_uniform: return at_least_0(s->log_sum - s->mean - s->log_valid);
    case SCORE_logit_variance: return s->variance;
    case SCORE_label_non_uniformity: return item->normalise ? s->absolute / 2 : s->absolute;
    case SCORE_doctor_alpha: return other_of(s) / same_of(s);
    case SCORE_doctor_beta: return s->rest;
    case SCORE_brier_score: return brier_of(k, r, s, z_target);
    default: return k->exp(distance(r, s, z_target)) / (item->normalise ? 1 : whole);
  }
}

/* Every element's share of a change of log p of one of them, p_i (g - ...): what a spike of `at`
 * costs all. */
static void softmax_spike(score_slope *slope, double *spike, double at) { slope->a -= at, *spike += at; }

static void entropy_slope(const score_sums *s, double g, score_slope *slope) {
  slope->a -= g * (s->moment / -(s->rest + 1)), slope->b -= g; /* -p (log p + H) = -p (d - moment / s) */
}
/* Of H_order = log sum p^order / (1 - order); near 1 by p expm1((order - 1)(log p + H_order)). */
static void renyi_slope(const score_row *r, const score_sums *s, double g, score_slope *slope) {
  if (r->order == 1) return entropy_slope(s, g, slope);
  slope->power = g * r->order / (1 - r->order), slope->near = score_is_near(r->order);
  slope->at = -s->power / (1 - r->order);
}

static void derivative(const score_kernels *k, const score_row *r, const score_item *item,
                       const score_sums *s, double z_target, double g, score_slope *slope,
                       score_spikes *spikes) {
  const double whole = s->rest + 1, p = 1 / whole, second = k->exp(distance(r, s, s->second));
  const double q = same_of(s) / whole / whole, target = k->exp(distance(r, s, z_target));
  switch (item->which) {
    case SCORE_msp: softmax_spike(slope, &spikes->largest, g * p); break;
    case SCORE_least_confidence: softmax_spike(slope, &spikes->largest, -g * p / most_of(item, s)); break;
    case SCORE_margin:
      softmax_spike(slope, &spikes->largest, g * p);
      softmax_spike(slope, &spikes->second, -g * p * second);
      break;
    case SCORE_ratio: spikes->largest -= g * second, spikes->second += g * second; break;
    case SCORE_max_logit: spikes->largest += g * r->temperature; break;
    case SCORE_logit_margin:
      spikes->largest += g * r->temperature, spikes->second -= g * r->temperature;
      break;
    case SCORE_energy: slope->a += g * r->temperature; break;
    case SCORE_entropy: entropy_slope(s, g / most_of(item, s), slope); break;
    case SCORE_renyi_entropy: renyi_slope(r, s, g, slope); break;
    case SCORE_tsallis_entropy: renyi_slope(r, s, g * (k->expm1(s->power) + 1), slope); break;
    case SCORE_gini: slope->a += 2 * g * q, slope->c -= 2 * g; break;
    case SCORE_kl_to_uniform: entropy_slope(s, -g, slope); break;
    case SCORE_kl_from_uniform: slope->a += g, slope->level -= g / s->valid; break;
    case SCORE_logit_variance:
      slope->slope += 2 * g / (s->valid - 1), slope->level -= 2 * g * s->mean / (s->valid - 1);
      break;
    case SCORE_label_non_uniformity:
      slope->sign += item->normalise ? g / 2 : g, slope->a -= (item->normalise ? g / 2 : g) * s->sign;
      break;
    case SCORE_doctor_alpha: slope->a += 2 * g / q, slope->c -= 2 * g / q / q; break;
    case SCORE_doctor_beta: softmax_spike(slope, &spikes->largest, -g * whole); break;
    case SCORE_brier_score: /* 2 p_i (p_i - q - [i = target] + p_target) */
      slope->c += 2 * g, slope->a += 2 * g * (p * target - q), spikes->target -= 2 * g * p * target;
      break;
    default:
      if (!item->normalise) softmax_spike(slope, &spikes->target, g * p * target);
      else spikes->target += g * target, spikes->largest -= g * target;
  }
}

void score_derivative(const score_kernels *k, const score_row *r, const score_item *item, const score_sums *s,
                      double z_target, double g, score_slope *slope, score_spikes *spikes) {
  *slope = (score_slope){0}, *spikes = (score_spikes){0};
  if (s->nan || s->valid <= 1) return;
  derivative(k, r, item, s, z_target, g / r->temperature, slope, spikes);
}
