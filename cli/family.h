/* family.h - the verbs `head` and `pairs`, losses from features, `pool` and `nms`. */
#ifndef CLI_FAMILY_H
#define CLI_FAMILY_H

#include "options.h"

#define NMS_OPERATOR "nms"

extern const setting family_settings[], nms_settings[], pool_settings[];

int work_head(const options *o);
int work_pairs(const options *o);
int work_pool(const options *o);
int work_nms(const options *o);

#endif
