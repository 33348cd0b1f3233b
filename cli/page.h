/* page.h - the verb `report`: the metrics of rows as one page that a browser shows, without a
 * network. */
#ifndef CLI_PAGE_H
#define CLI_PAGE_H

#include "options.h"

extern const setting page_settings[];

int work_report(const options *o);

/* The files of page/, each with a 0 at its end. */
extern const unsigned char page_html[], page_css[], page_js[];

#endif
