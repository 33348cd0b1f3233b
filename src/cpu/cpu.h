/* cpu/cpu.h - which kernels run here. Dispatch is a matter of speed only: every instruction set
 * computes the same bits. */
#ifndef SMX_CPU_H
#define SMX_CPU_H
#include "engine/program.h"
#include <stdatomic.h>

/* The rooms whose operators are row programs. ROOM(name, a, b) for each. */
#define SMX_ROOMS(ROOM, a, b) ROOM(row, a, b) ROOM(loss, a, b) ROOM(sample, a, b)

#define SMX_ROOM_NUMBER(room, a, b) SMX_ROOM_##room,
enum { SMX_ROOMS(SMX_ROOM_NUMBER, , ) SMX_ROOM_COUNT };

/* The kernels of one instruction set and one real type, in the order of each room's list. */
typedef struct smx_kernels {
  const row_pair *const *room[SMX_ROOM_COUNT];
  const dtype_io *io;
  const struct attention_kernels *attention;
  void (*sampler)(sampler_row *row);
} smx_kernels;

typedef struct smx_isa {
  const char *name;
  bool (*usable)(void);
  smx_kernels f32, f64;
} smx_isa;

/* The one in use: the best that this machine has, or what SMX_ISA names. NULL: not chosen yet. */
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
