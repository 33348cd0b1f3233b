/* route.h - the verb `route`: which experts take each token, and how the load spreads. */
#ifndef CLI_ROUTE_H
#define CLI_ROUTE_H

#include "options.h"

#define ROUTE_OPERATOR "gate_topk"

extern const setting route_settings[];

int work_route(const options *o);

#endif
