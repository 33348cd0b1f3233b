/* vectors.c - proves that the references and the library, forward and backward, in f64 and f32,
 * give the known answers of every vectors.txt. The format is described at the top of those files.
 * An operator without a line is an error. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu.h"
#include "reference.h"
#include "unit.h"

enum { PARAMS, INPUTS, OUTPUTS, UPSTREAM, GRADIENTS, FIELDS };
#define VECTORS(family, a, b) SMX_SOURCE_DIR "/src/" #family "/vectors.txt",
static const char *const files[] = {SMX_FAMILIES(VECTORS, , )};
static char where[512];
static int lines_of[256];

static int find_port(const smx_port *ports, int32_t count, const char *name) {
  for (int32_t i = 0; i < count; i++)
    if (!strcmp(ports[i].name, name)) return i;
  fail_msg("%s: no port %s", where, name);
  return -1;
}

/* Reads "port=1 2 3 ; port=..." into values by port; counts the numbers of each. */
static void read_field(char *field, const smx_port *ports, int32_t port_total, double **values,
                       int64_t *counts) {
  for (char *save = NULL, *item = strtok_r(field, ";", &save); item; item = strtok_r(NULL, ";", &save)) {
    char *equals = strchr(item, '='), *name = strtok(item, " =");
    int i = find_port(ports, port_total, name);
    values[i] = calloc(strlen(equals + 1) + 1, sizeof(double));
    char *next = equals + 1;
    for (char *end;; next = end) {
      double v = strtod(next, &end);
      if (end == next) break;
      values[i][counts[i]++] = v;
    }
    if (strspn(next, " \n") != strlen(next)) fail_msg("%s: not a number: %s", where, next);
  }
}

static void read_params(char *field, problem *p) {
  char *save = NULL, *name = strtok_r(field, " ", &save);
  p->op = smx_op_find(name);
  if (!p->op) fail_msg("%s: no operator %s", where, name);
  smx_params_init(p->op, &p->params);
  for (char *item = strtok_r(NULL, " ", &save); item; item = strtok_r(NULL, " ", &save)) {
    char *equals = strchr(item, '=');
    *equals = 0;
    if (smx_params_set(p->op, &p->params, item, strtod(equals + 1, NULL)))
      fail_msg("%s: %s", where, smx_last_error());
  }
}

/* What a line says: the problem, and what must come out. */
typedef struct known {
  problem p;
  double *out[SMX_MAX_PORTS], *din[SMX_MAX_PORTS];
} known;

static void read_line(char *line, known *k) {
  char *fields[FIELDS] = {NULL}, *save = NULL;
  int count = 0;
  for (char *f = strtok_r(line, "|\n", &save); f && count < FIELDS; f = strtok_r(NULL, "|\n", &save))
    fields[count++] = f;
  if (count != UPSTREAM && count != FIELDS) fail_msg("%s: %d fields", where, count);
  *k = (known){0};
  read_params(fields[PARAMS], &k->p);
  const smx_op *op = k->p.op;
  int64_t in[SMX_MAX_PORTS] = {0}, out[SMX_MAX_PORTS] = {0}, dout[SMX_MAX_PORTS] = {0},
          din[SMX_MAX_PORTS] = {0};
  read_field(fields[INPUTS], op->inputs, op->input_count, k->p.in, in);
  read_field(fields[OUTPUTS], op->outputs, op->output_count, k->out, out);
  if (count == FIELDS) {
    read_field(fields[UPSTREAM], op->outputs, op->output_count, k->p.dout, dout);
    read_field(fields[GRADIENTS], op->inputs, op->input_count, k->din, din);
  }
  k->p.rows = 1;
  k->p.n = in[0];
  for (int i = 0; i < op->input_count; i++)
    if (op->inputs[i].shape == SMX_SHAPE_OFFSETS) k->p.segments = in[i] - 1;
  for (int i = 0; i < op->input_count; i++)
    if (k->p.in[i] && in[i] != port_count(&k->p, &op->inputs[i]))
      fail_msg("%s: %s has the wrong length", where, op->inputs[i].name);
  for (int i = 0; i < op->input_count; i++)
    if (k->din[i] && din[i] != port_count(&k->p, &op->inputs[i]))
      fail_msg("%s: gradient %s has the wrong length", where, op->inputs[i].name);
  for (int i = 0; i < op->output_count; i++) {
    int64_t length = port_count(&k->p, &op->outputs[i]),
            optional = !k->out[i] && op->outputs[i].flags & SMX_PORT_OPTIONAL;
    if ((out[i] != length && !optional) || (k->p.dout[i] && dout[i] != length))
      fail_msg("%s: %s has the wrong length", where, op->outputs[i].name);
    if (count == FIELDS && !k->p.dout[i]) k->p.dout[i] = calloc((size_t)length + 1, sizeof(double));
  }
}

static void compare(const known *k, const smx_port *port, const double *got, const double *want, scale s,
                    double unit, const char *what) {
  for (int64_t i = 0; i < port_count(&k->p, port); i++) {
    double d = distance(s, got[i], want[i], unit);
    if (!(d <= k->p.op->tolerance))
      fail_msg("%s: %s %s[%d] is %.17g, want %.17g (%g)", where, what, port->name, (int)i, got[i], want[i],
               d);
  }
}

/* Gradients are sums of terms as large as the largest upstream value times the largest gradient:
 * the scale is that of the field. */
static scale scale_of_gradients(const known *k, smx_dtype t) {
  scale s = {.growth = 1, .row = 1, .type = t};
  for (int i = 0; i < k->p.op->output_count; i++)
    for (int64_t j = 0; k->p.dout[i] && j < port_count(&k->p, &k->p.op->outputs[i]); j++)
      s.row = fmax(s.row, fabs(k->p.dout[i][j]));
  return s;
}

static void check_reference(known *k) {
  double *values[SMX_MAX_PORTS] = {NULL};
  reference_run(&k->p, values);
  for (int i = 0; i < k->p.op->output_count; i++) {
    const smx_port *port = &k->p.op->outputs[i];
    scale s = scale_of_row(&k->p, port, 0, SMX_F64, values[i]);
    for (int64_t j = 0; k->out[i] && j < port_count(&k->p, port); j++)
      if (distance(s, values[i][j], k->out[i][j], 2e-14) > 1)
        fail_msg("%s: reference %s[%d] is %.17g, want %.17g", where, port->name, (int)j, values[i][j],
                 k->out[i][j]);
    free(values[i]);
  }
}

static void check_library(known *k, smx_dtype t, double unit) {
  problem *p = &k->p;
  config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
  if (problem_run(p, &how, FORWARD)) fail_msg("%s: %s", where, smx_last_error());
  for (int i = 0; i < p->op->output_count; i++) {
    if (!k->out[i]) continue;
    double *got = problem_values(p, &p->op->outputs[i], p->out[i], t);
    compare(k, &p->op->outputs[i], got, k->out[i], scale_of_row(p, &p->op->outputs[i], 0, t, k->out[i]), unit,
            "library");
    free(got);
  }
  if (!p->dout[0]) return;
  if (problem_run(p, &how, BACKWARD)) fail_msg("%s: %s", where, smx_last_error());
  for (int i = 0; i < p->op->input_count; i++) {
    if (!k->din[i]) continue;
    double *got = problem_values(p, &p->op->inputs[i], p->din[i], t);
    compare(k, &p->op->inputs[i], got, k->din[i], scale_of_gradients(k, t), unit, "gradient of");
    free(got);
  }
}

static void for_each_line(void (*check)(known *k)) {
  for (size_t f = 0; f < COUNT_OF(files); f++) {
    FILE *file = fopen(files[f], "r");
    if (!file) fail_msg("%s cannot be read", files[f]);
    char line[2048];
    for (int number = 1; fgets(line, sizeof line, file); number++) {
      snprintf(where, sizeof where, "%s:%d", files[f], number);
      if (strspn(line, " \n") == strlen(line) || line[0] == '#') continue;
      known k;
      read_line(line, &k);
      check(&k);
      for (int i = 0; i < SMX_MAX_PORTS; i++) free(k.out[i]), free(k.din[i]);
      problem_free(&k.p);
    }
    fclose(file);
  }
}

static void count_line(known *k) {
  for (size_t i = 0; i < row_op_count(); i++) lines_of[i] += smx_op_at(i) == k->p.op;
}

/* Known answers have 15 digits: 2e-14 rather than an ULP of a double. */
static void check_f64(known *k) { check_library(k, SMX_F64, 2e-14); }
static void check_f32(known *k) { check_library(k, SMX_F32, UNIT_F32); }

static void references(void **state) { for_each_line(check_reference); }

static void library(void **state) {
  for_each_line(check_f64);
  for_each_line(check_f32);
}

static void every_operator_has_one(void **state) {
  for_each_line(count_line);
  for (size_t i = 0; i < row_op_count(); i++)
    if (!lines_of[i]) fail_msg("%s has no known answer", smx_op_at(i)->name);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(references), cmocka_unit_test(library),
                                     cmocka_unit_test(every_operator_has_one)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
