/* pool/functions_planes.h - maxima and means of whole windows, by kernels. */
#ifndef SMX_POOL_FUNCTIONS_PLANES_H
#define SMX_POOL_FUNCTIONS_PLANES_H
#include "functions_window.h"

/* Whether pool_planes() does this forward call of an operator that is a maximum (mix 1) or a mean
 * (mix 0); by_channel: with the planes of x by channel. */
bool pool_planes_can(const tensor_call *c, double mix, bool by_channel);
void pool_planes(const tensor_call *c, double mix);

#endif
