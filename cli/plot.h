/* plot.h - the verb `plot`: how operators weigh the same scores; how many tokens experts have. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include "options.h"

extern const setting plot_settings[];

int work_plot(const options *o);
int plot_load(const options *o); /* with --load */

/* Of a panel, in pixels. */
enum { PLOT_LEFT = 70, PLOT_WIDTH = 620, PLOT_HEIGHT = 300 };

#endif
