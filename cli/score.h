/* score.h - the verb `score`: how sure rows of logits are. */
#ifndef CLI_SCORE_H
#define CLI_SCORE_H

#include "options.h"

extern const setting score_settings[];

int work_score(const options *o);

/* A score of every row of the logits of a file, NAME or NAME:PARAMETER=VALUE. To be freed. */
int score_rows(const options *o, const char *score, const char *path, double **values, int64_t *rows);

#endif
