/* sweep.c - see sweep.h. */
#include "sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const int64_t lengths[] = {0, 1, 2, 3, 7, 16, 17, 64, 100, 128, 1000, 1024, 1025, 4097, 8193, 20000};
static const char *const direction_names[] = {"forward", "backward"}, *const later_names[] = {"forward+",
                                                                                              "backward+"};

static int has(const smx_op *op, direction d) { return d == FORWARD || op->flags & SMX_OP_BACKWARD; }

static uint64_t hash_results(uint64_t hash, const problem *p, smx_dtype t, direction d) {
  const smx_port *ports = d == FORWARD ? p->op->outputs : p->op->inputs;
  for (int i = 0; i < (d == FORWARD ? p->op->output_count : p->op->input_count); i++) {
    const unsigned char *bytes = d == FORWARD ? p->out[i] : p->din[i];
    if (bytes)
      hash = fnv1a(hash, bytes, (size_t)port_count(p, &ports[i]) * dtype_size(port_dtype(&ports[i], t)));
  }
  return hash;
}

/* The hashes of both directions of the variants from one on, up to another; 0 after a failure. */
static void hash_variants(const smx_op *op, int from, int to, uint64_t *hash) {
  static const kind kinds[] = {KIND_NORMAL,  KIND_HOLES, KIND_TIES, KIND_WIDE, KIND_RISING,
                               KIND_SHIFTED, KIND_HUGE,  KIND_NAN,  KIND_INF,  KIND_EMPTY};
  hash[FORWARD] = hash[BACKWARD] = FNV1A_START;
  for (size_t l = 0; l < COUNT_OF(lengths); l++)
    for (int variant = from; variant < to && problem_possible(op, lengths[l]); variant++) {
      int which = (int)(l + (size_t)variant) % FLOAT_DTYPES, many = lengths[l] <= 1025;
      smx_dtype t = float_dtypes[which];
      problem p;
      problem_make(&p, op, many ? KINDS : 1, lengths[l], variant, l * VARIANTS + (size_t)variant + 1,
                   kinds + (many ? 0 : variant % VARIANTS), KINDS);
      config how = {NULL, t, t, LAYOUT_C, PLACE_END, APART};
      for (int d = FORWARD; d <= BACKWARD && has(op, (direction)d); d++)
        hash[d] = problem_run(&p, &how, (direction)d) ? 0
                  : hash[d]                           ? hash_results(hash[d], &p, t, (direction)d)
                                                      : 0;
      problem_free(&p);
    }
}

static int find_hash(FILE *file, const char *operator, const char * direction_name, uint64_t *hash) {
  char line[256], name[64], way[16];
  rewind(file);
  while (fgets(line, sizeof line, file))
    if (line[0] != '#' && sscanf(line, "%63s %15s %" SCNx64, name, way, hash) == 3 &&
        !strcmp(name, operator) && !strcmp(way, direction_name))
      return 1;
  return 0;
}

static int differs(FILE *file, const smx_op *op, const char *way, uint64_t got) {
  uint64_t want = 0;
  int known = find_hash(file, op->name, way, &want);
  if (known && got == want && got) return 0;
  printf("%s %s: %016" PRIx64 ", %s %016" PRIx64 "%s\n", op->name, way, got, known ? "golden is" : "no line;",
         want, got ? "" : smx_last_error());
  return 1;
}

/* Calls a function for each line of an operator: its direction, + for later variants, the hash. */
static int for_each_line(const smx_op *op, FILE *file,
                         int (*line)(FILE *, const smx_op *, const char *, uint64_t)) {
  uint64_t first[2], later[2];
  int result = 0, more = variants_of(op) > VARIANTS;
  hash_variants(op, 0, VARIANTS, first);
  if (more) hash_variants(op, VARIANTS, variants_of(op), later);
  for (int d = FORWARD; d <= BACKWARD && has(op, (direction)d); d++) {
    result += line(file, op, direction_names[d], first[d]);
    if (more) result += line(file, op, later_names[d], later[d]);
  }
  return result;
}

int sweep_compare(const char *path, size_t part, size_t parts) {
  FILE *file = fopen(path, "r");
  if (!file) return -1;
  int differences = 0;
  for (size_t i = part; i < row_op_count(); i += parts)
    differences += for_each_line(smx_op_at(i), file, differs);
  fclose(file);
  return differences;
}

static int put(FILE *file, const smx_op *op, const char *way, uint64_t hash) {
  return fprintf(file, "%s %s %016" PRIx64 "\n", op->name, way, hash) < 0;
}

int sweep_write(const char *path) {
  FILE *file = fopen(path, "w");
  if (!file) return -1;
  fprintf(file, "# One 64-bit FNV-1a hash of the results of an operator over the sweep of "
                "tests/support/sweep.c. A change here is a change "
                "of results.\n");
  int failed = 0;
  for (size_t i = 0; i < row_op_count(); i++) failed += for_each_line(smx_op_at(i), file, put);
  return fclose(file) || failed;
}
