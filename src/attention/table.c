/* attention/table.c - facts of the room's operators, in the order of smx_attention_weights: what can be asked of each. */
#include "attention.h"

#define ANY -0x1p127, 0x1p127
#define NORM \
  { 0, 3, true }
const attn_facts attention_table[SMX_ATTENTION_KINDS] = {
    [SMX_ATTENTION_SOFTMAX] = {.sinks = true, .backward = true, .states = true},
    [SMX_ATTENTION_SOFTMAX_N] = {.sinks = true, .backward = true, .states = true, .param = {{0, 0x1p127, false}}},
    [SMX_ATTENTION_SSMAX] = {.sinks = true, .backward = true, .param = {{ANY, false}, {ANY, false}}},
    [SMX_ATTENTION_SIGMOID] = {.backward = true, .states = true, .param = {{ANY, false}}},
    [SMX_ATTENTION_SOFTPICK] = {.backward = true, .states = true},
    [SMX_ATTENTION_SELF_ADJUST] = {.sinks = true, .backward = true, .states = true},
    [SMX_ATTENTION_SELF_ADJUST_RANGE] = {.states = true},
    [SMX_ATTENTION_RELU] = {.states = true, .param = {NORM, {0, 0x1p127, false}}},
    [SMX_ATTENTION_ELU] = {.states = true, .param = {NORM, {0, 0x1p127, false}}},
    [SMX_ATTENTION_IDENTITY] = {.states = true, .param = {NORM, {0, 0x1p127, false}}},
    [SMX_ATTENTION_SOFTPLUS] = {.states = true, .param = {NORM, {0, 0x1p127, false}}},
    [SMX_ATTENTION_TAYLOR] = {.states = true, .param = {NORM, {1, 64, true}}},
    [SMX_ATTENTION_CLIPPED] = {.param = {{-0x1p127, 0, false}, {1, 0x1p127, false}}},
    [SMX_ATTENTION_EXP] = {.states = true, .param = {NORM, {0, 0x1p127, false}, {ANY, false}}},
    [SMX_ATTENTION_CREDAL] = {.backward = true, .states = true, .param = {{0, 0x1p127, false}}},
    [SMX_ATTENTION_SHAPED] = {.param = {{ANY, false}, {ANY, false}, {ANY, false}}},
    [SMX_ATTENTION_LSSA] = {.param = {NORM, {0, 0x1p127, false}}},
    [SMX_ATTENTION_LSSAR] = {.param = {{1, 0x1p10, false}, {0, 0x1p127, false}, {0, 0x1p127, true}}},
    [SMX_ATTENTION_CENTRED] = {.param = {{ANY, false}, {ANY, false}, {0, 0x1p127, false}}},
};
