/* engine/long_steps.h - included before any other header of an engine, by files whose steps are so
 * long that a second copy of them for whole vectors gains nothing (loops.h). */
#ifndef SMX_ENGINE_LONG_STEPS_H
#define SMX_ENGINE_LONG_STEPS_H
#include "loops.h"
#undef COMPACT_LANES
#undef NEXT_LANES_OF
#undef WHOLE_LANES
#define COMPACT_LANES(u) (u)
#define NEXT_LANES_OF(a, at) \
  {}
#define WHOLE_LANES false
#endif
