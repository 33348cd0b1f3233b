/* cpu/cpu.h - which kernels run here. Dispatch is a matter of speed only: every instruction set
 * computes the same bits. */
#ifndef SMX_CPU_H
#define SMX_CPU_H
#include "engine/program.h"
#include <stdatomic.h>

/* The families whose operators are row programs: FAMILY(name, a, b) for each. */
#define SMX_FAMILIES(FAMILY, a, b) FAMILY(row, a, b) FAMILY(loss, a, b) FAMILY(sample, a, b)

#define SMX_FAMILY_NUMBER(family, a, b) SMX_FAMILY_##family,
enum { SMX_FAMILIES(SMX_FAMILY_NUMBER, , ) SMX_FAMILY_COUNT };

/* The kernels of one instruction set and one real type, in the order of each family's list.h. */
typedef struct smx_kernels {
  const row_pair *const *family[SMX_FAMILY_COUNT];
  const dtype_io *io;
  const struct attention_kernels *attention;
  const struct head_kernels *head;
  const struct gate_kernels *gate;
  const struct score_kernels *score;
  const struct linear_attention_kernels *linear_attention;
  const struct pool_kernels *pool;
  void (*sampler)(sampler_row *row);
} smx_kernels;

typedef struct smx_isa {
  const char *name;
  bool (*usable)(void);
  smx_kernels f32, f64;
} smx_isa;

/* The instruction set in use: the best that this machine has, or the one that SMX_ISA names. NULL:
 * not chosen yet. */
extern const smx_isa *_Atomic smx_isa_chosen __attribute__((visibility("hidden")));
const smx_isa *smx_isa_choose(void);
static inline const smx_isa *smx_isa_current(void) {
  const smx_isa *isa = atomic_load_explicit(&smx_isa_chosen, memory_order_relaxed);
  return isa ? isa : smx_isa_choose();
}

/* For tests: those usable on this machine, fastest first, and a choice among them
 * (0 on success). */
int smx_isa_count(void);
const char *smx_isa_at(int i);
int smx_isa_set(const char *name);

#endif
