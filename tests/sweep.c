/* sweep.c - see sweep.h. */
#include "sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const int64_t lengths[] = {0, 1, 2, 3, 7, 16, 17, 64, 100, 128, 1000, 1024, 1025, 4097, 8193, 20000};
static const char *const direction_names[] = {"forward", "backward"}, *const later_names[] = {"forward+", "backward+"};

static uint64_t hash_results(uint64_t hash, const problem *p, smx_dtype t, direction d) {
  const smx_port *ports = d == FORWARD ? p->op->outputs : p->op->inputs;
  for (int i = 0; i < (d == FORWARD ? p->op->output_count : p->op->input_count); i++) {
    const unsigned char *bytes = d == FORWARD ? p->out[i] : p->din[i];
    if (bytes) hash = fnv1a(hash, bytes, (size_t)port_count(p, &ports[i]) * dtype_size(port_dtype(&ports[i], t)));
  }
  return hash;
}

/* Of the variants from one on, up to another. */
static uint64_t hash_variants(const smx_op *op, direction d, int from, int to) {
  static const kind kinds[] = {KIND_NORMAL,  KIND_HOLES, KIND_TIES, KIND_WIDE, KIND_RISING,
                               KIND_SHIFTED, KIND_HUGE,  KIND_NAN,  KIND_INF,  KIND_EMPTY};
  uint64_t hash = FNV1A_START;
  for (size_t l = 0; l < COUNT_OF(lengths); l++)
    for (int variant = from; variant < to && problem_possible(op, lengths[l]); variant++) {
      int which = (int)(l + (size_t)variant) % FLOAT_DTYPES, many = lengths[l] <= 1025;
      smx_dtype t = float_dtypes[which];
      problem p;
      problem_make(&p, op, many ? KINDS : 1, lengths[l], variant, l * VARIANTS + (size_t)variant + 1,
                   kinds + (many ? 0 : variant % VARIANTS), KINDS);
      config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
      int status = problem_run(&p, &how, FORWARD);
      if (!status && d == BACKWARD) status = problem_run(&p, &how, BACKWARD);
      hash = hash_results(hash, &p, t, d);
      problem_free(&p);
      if (status) return 0;
    }
  return hash;
}

uint64_t sweep_hash(const smx_op *op, direction d) { return hash_variants(op, d, 0, VARIANTS); }
static uint64_t later_hash(const smx_op *op, direction d) { return hash_variants(op, d, VARIANTS, variants_of(op)); }

static int has(const smx_op *op, direction d) { return d == FORWARD || op->flags & SMX_OP_BACKWARD; }
static int has_later(const smx_op *op, direction d) { return has(op, d) && variants_of(op) > VARIANTS; }

static int find_hash(FILE *file, const char *operator, const char * direction_name, uint64_t *hash) {
  char line[256], name[64], way[16];
  rewind(file);
  while (fgets(line, sizeof line, file))
    if (line[0] != '#' && sscanf(line, "%63s %15s %" SCNx64, name, way, hash) == 3 && !strcmp(name, operator) &&
        !strcmp(way, direction_name))
      return 1;
  return 0;
}

static int differs(FILE *file, const smx_op *op, const char *way, uint64_t got) {
  uint64_t want = 0;
  int known = find_hash(file, op->name, way, &want);
  if (known && got == want && got) return 0;
  printf("%s %s: %016" PRIx64 ", %s %016" PRIx64 "%s\n", op->name, way, got, known ? "golden is" : "no line;", want,
         got ? "" : smx_last_error());
  return 1;
}

int sweep_compare(const char *path, size_t part, size_t parts) {
  FILE *file = fopen(path, "r");
  if (!file) return -1;
  int differences = 0;
  for (size_t i = part; i < row_op_count(); i += parts)
    for (int d = FORWARD; d <= BACKWARD; d++) {
      const smx_op *op = smx_op_at(i);
      if (has(op, (direction)d)) differences += differs(file, op, direction_names[d], sweep_hash(op, (direction)d));
      if (has_later(op, (direction)d)) differences += differs(file, op, later_names[d], later_hash(op, (direction)d));
    }
  fclose(file);
  return differences;
}

int sweep_write(const char *path) {
  FILE *file = fopen(path, "w");
  if (!file) return -1;
  fprintf(
      file,
      "# One 64-bit FNV-1a hash of the results of an operator over the sweep of tests/sweep.c. A change here is a change of results.\n");
  for (size_t i = 0; i < row_op_count(); i++)
    for (int d = FORWARD; d <= BACKWARD; d++) {
      const smx_op *op = smx_op_at(i);
      if (has(op, (direction)d)) fprintf(file, "%s %s %016" PRIx64 "\n", op->name, direction_names[d], sweep_hash(op, (direction)d));
      if (has_later(op, (direction)d)) fprintf(file, "%s %s %016" PRIx64 "\n", op->name, later_names[d], later_hash(op, (direction)d));
    }
  return fclose(file);
}
