/* driver/dims.c - see dims.h. */
#include "dims.h"
#include <stdio.h>

/* ---- words ---- */

static bool ends(char c) { return c == 0 || c == ' ' || c == '|'; }

/* The word at *text, which moves behind it. */
static dims_word next_word(const dims *d, const char **text) {
  const char *at = *text;
  dims_word w = {.repeats = 1};
  while (*at == ' ') at++;
  w.name = at;
  if (*at == 0 || *at == '|') return w;
  while (!ends(*at)) at++;
  w.length = (size_t)(at - w.name);
  *text = at;
  w.kind = DIMS_NAME;
  if (w.name[0] == '.') w.kind = DIMS_LEAD;
  else if (w.name[0] >= '0' && w.name[0] <= '9') {
    w.kind = DIMS_NUMBER;
    for (size_t i = 0; i < w.length; i++) w.number = 10 * w.number + (w.name[i] - '0');
  } else if (at[-1] == '*') w.length--, w.repeats = d->spatial;
  else if (w.length > 2 && at[-2] == '+') w.length -= 2, w.number = at[-1] - '0';
  return w;
}

/* ---- names ---- */

static struct dims_named *find(const dims *d, const char *name, size_t length, int32_t number) {
  for (int32_t i = 0; i < d->count; i++) {
    const struct dims_named *n = d->named + i;
    if (n->number == number && n->length == length && !memcmp(n->name, name, length))
      return (struct dims_named *)(uintptr_t)n;
  }
  return NULL;
}

static void add(dims *d, const char *name, size_t length, int32_t number, int64_t value) {
  if (d->count < DIMS_NAMES)
    d->named[d->count++] =
        (struct dims_named){.name = name, .length = length, .number = number, .value = value};
}

static double param_of(const dims *d, const char *name, size_t length, double otherwise) {
  for (int32_t i = 0; i < d->op->param_count; i++)
    if (strlen(d->op->params[i].name) == length && !memcmp(d->op->params[i].name, name, length))
      return d->param[i];
  return otherwise;
}

double dims_param(const dims *d, const char *name, double otherwise) {
  return param_of(d, name, strlen(name), otherwise);
}

/* A name without a value is a parameter that is not 0, or unknown. */
static int64_t value_of(const dims *d, const char *name, size_t length, int32_t number) {
  const struct dims_named *n = find(d, name, length, number);
  const double param = n ? 0 : param_of(d, name, length, 0);
  return n ? n->value : param > 0 ? (int64_t)param : DIMS_UNKNOWN;
}

int64_t dims_value(const dims *d, const char *name, int32_t number) {
  return value_of(d, name, strlen(name), number);
}

void dims_set(dims *d, const char *name, int32_t number, int64_t value) {
  struct dims_named *n = find(d, name, strlen(name), number);
  if (n) d->changed |= n->value != value, n->value = value;
  else add(d, name, strlen(name), number, value);
}

void dims_begin(dims *d, const smx_op *op, const double *param) {
  *d = (dims){.op = op, .param = param, .lead = DIMS_UNKNOWN, .lead_count = 1};
  d->spatial = (int32_t)dims_param(d, "spatial", 1);
}

/* ---- shapes ---- */

/* The dimensions, without what bounds the values: "t k | < experts". */
static int shown(const smx_port *port) {
  const char *bound = strstr(port->dims, " |");
  return bound ? (int)(bound - port->dims) : (int)strlen(port->dims);
}

static smx_status fail_size(const dims *d, const smx_port *port, const char *prefix, int32_t at, int64_t size,
                            int64_t wanted, const dims_word *w) {
  const smx_label what = {d->op->name, prefix, port->name};
  char name[64] = "";
  if (w->kind == DIMS_NAME)
    snprintf(name, sizeof name, ", which is %.*s%s", (int)w->length, w->name, w->number ? "+1" : "");
  return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": shape[%d] is %lld, not %lld%s; its dimensions are %.*s",
                  SMX_LABEL_ARGS(what), (int)at, (long long)size, (long long)wanted, name, shown(port),
                  port->dims);
}

/* How many dimensions the words name, "..." aside; *lead: whether that is there. */
static int32_t count_words(const dims *d, const smx_port *port, bool *lead) {
  const char *text = port->dims;
  int32_t count = 0;
  *lead = false;
  for (dims_word w = next_word(d, &text); w.kind; w = next_word(d, &text)) {
    if (w.kind == DIMS_LEAD) *lead = true;
    else count += w.repeats;
  }
  return count;
}

static smx_status check_ndim(const dims *d, const smx_port *port, const char *prefix, const smx_view *v) {
  const smx_label what = {d->op->name, prefix, port->name};
  bool lead;
  const int32_t count = count_words(d, port, &lead), rest = lead && d->lead >= 0 ? d->lead : 0;
  const bool more = lead && d->lead < 0;
  if (v->ndim == count + rest || (more && v->ndim > count)) return SMX_OK;
  return smx_fail(SMX_ERR_SHAPE, SMX_LABEL ": has %d dimensions, not %d%s; they are %.*s",
                  SMX_LABEL_ARGS(what), (int)v->ndim, (int)(count + rest), more ? " or more" : "",
                  *port->dims ? shown(port) : 4, *port->dims ? port->dims : "none");
}

static smx_status take_lead(dims *d, const smx_port *port, const char *prefix, const smx_view *v,
                            int32_t *at) {
  const dims_word w = {.kind = DIMS_LEAD};
  bool lead;
  if (d->lead < 0) {
    d->lead = v->ndim - count_words(d, port, &lead);
    for (int32_t i = 0; i < d->lead; i++) {
      d->lead_shape[i] = v->shape[i];
      /* no more than there are elements, unless some other dimension is 0 */
      if (!smx_multiply(d->lead_count, v->shape[i], &d->lead_count)) d->lead_count = 0;
    }
  }
  for (int32_t i = 0; i < d->lead; i++)
    if (v->shape[i] != d->lead_shape[i])
      return fail_size(d, port, prefix, i, v->shape[i], d->lead_shape[i], &w);
  *at = d->lead;
  return SMX_OK;
}

smx_status dims_take(dims *d, const smx_port *port, const char *prefix, const smx_view *v) {
  const char *text = port->dims;
  int32_t at = 0;
  smx_status status = check_ndim(d, port, prefix, v);
  for (dims_word w; status == SMX_OK && (w = next_word(d, &text)).kind;) {
    if (w.kind == DIMS_LEAD) status = take_lead(d, port, prefix, v, &at);
    for (int32_t r = 0; w.kind != DIMS_LEAD && r < w.repeats && status == SMX_OK; r++, at++) {
      const int64_t size = v->shape[at];
      const int64_t known = w.kind == DIMS_NUMBER ? w.number : value_of(d, w.name, w.length, r);
      const int64_t wanted = w.kind == DIMS_NUMBER || known < 0 ? known : known + w.number;
      if (known >= 0 && size != wanted) status = fail_size(d, port, prefix, at, size, wanted, &w);
      else if (known < 0 && size < w.number) status = fail_size(d, port, prefix, at, size, w.number, &w);
      else if (w.kind == DIMS_NAME && !find(d, w.name, w.length, r))
        add(d, w.name, w.length, r, size - w.number);
    }
  }
  return status;
}

bool dims_shape(const dims *d, const smx_port *port, int32_t *ndim, int64_t *shape) {
  const char *text = port->dims;
  *ndim = 0;
  for (dims_word w; (w = next_word(d, &text)).kind;) {
    const int32_t repeats = w.kind == DIMS_LEAD ? d->lead : w.repeats;
    if (repeats < 0 || *ndim + repeats > SMX_MAX_DIMS) return false;
    for (int32_t r = 0; r < repeats; r++) {
      int64_t size = w.number;
      if (w.kind == DIMS_LEAD) size = d->lead_shape[r];
      else if (w.kind == DIMS_NAME) {
        size = value_of(d, w.name, w.length, r);
        if (size < 0) return false;
        size += w.number;
      }
      shape[(*ndim)++] = size;
    }
  }
  return true;
}

char dims_bound(const dims *d, const smx_port *port, int64_t *bound) {
  const char *bar = port->dims ? strchr(port->dims, '|') : NULL;
  if (!bar) return 0;
  const char *text = bar + 2;
  const bool offsets = text[1] == '=';
  text += offsets ? 2 : 1;
  const dims_word w = next_word(d, &text);
  *bound = w.kind == DIMS_NUMBER ? w.number : value_of(d, w.name, w.length, 0);
  return offsets ? 'o' : '<';
}
