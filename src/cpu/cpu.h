/* cpu/cpu.h - which kernels run here. Dispatch is a matter of speed only: every instruction set computes the same bits. */
#ifndef SMX_CPU_H
#define SMX_CPU_H
#include "engine/program.h"

/* The rooms whose operators are row programs. ROOM(name, a, b) for each. */
#define SMX_ROOMS(ROOM, a, b) ROOM(row, a, b) ROOM(loss, a, b) ROOM(sample, a, b)

#define SMX_ROOM_NUMBER(room, a, b) SMX_ROOM_##room,
enum { SMX_ROOMS(SMX_ROOM_NUMBER, , ) SMX_ROOM_COUNT };

/* The kernels of one instruction set and one real type, in the order of each room's list. */
typedef struct smx_kernels {
  const row_pair *const *room[SMX_ROOM_COUNT];
  const row_moves *moves;
  const struct attention_kernels *attention;
  void (*chain)(chain_row *row);
} smx_kernels;

typedef struct smx_isa {
  const char *name;
  bool (*usable)(void);
  smx_kernels f32, f64;
} smx_isa;

/* The one in use: the best that this machine has, or what SMX_ISA names. */
const smx_isa *smx_isa_current(void);

/* For tests: those usable on this machine, fastest first, and a choice among them (0 on success). */
int smx_isa_count(void);
const char *smx_isa_at(int i);
int smx_isa_set(const char *name);

#endif
