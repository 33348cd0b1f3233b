/* plot.h - the verb `plot`: how operators weigh the same scores. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include "options.h"

extern const setting plot_settings[];

int work_plot(const options *o);

#endif
