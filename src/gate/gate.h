/* gate/gate.h - the table of the operators that route: which experts take a token, where it goes
 * and how it comes back, and what keeps experts busy alike. */
#ifndef SMX_GATE_H
#define SMX_GATE_H
#include <softmax.h>

enum {
  GATE_gate_topk,
  GATE_gate_expert_choice,
  GATE_gate_relu,
  GATE_moe_permutation,
  GATE_moe_dispatch,
  GATE_moe_combine,
  GATE_load_balancing_loss,
  GATE_router_z_loss,
  GATE_expert_bias_update,
  GATE_COUNT
};
extern const smx_op gate_table[GATE_COUNT];

#endif
