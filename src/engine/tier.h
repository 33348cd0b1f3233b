/* engine/tier.h - which kernels of an operator a kernel set uses: its own, or those of the set
 * below it (SMX_BELOW, where CMakeLists.txt leaves files out). Both give the same bits. row/list.h
 * explains the tiers. */
#ifndef SMX_ENGINE_TIER_H
#define SMX_ENGINE_TIER_H
#include "vec/vec.h"

#ifdef SMX_BELOW
#define SMX_FN_AVX2(name) SMX_CAT(name, SMX_BELOW, SMX_REAL)
#else
#define SMX_FN_AVX2(name) SMX_FN(name)
#endif
#if SMX_REAL == 32
#define SMX_FN_F32(name) SMX_FN(name)
#else
#define SMX_FN_F32(name) SMX_FN_AVX2(name)
#endif

#endif
