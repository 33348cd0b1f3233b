/* base/status.c - status texts, the last error of a thread, the version. */
#include "base.h"
#include "fpenv.h"
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[SMX_ERROR_BYTES];

static const struct {
  smx_status status;
  const char *text;
} texts[] = {
    {SMX_OK, "success"},
    {SMX_ERR_NULL, "a required pointer is NULL"},
    {SMX_ERR_SHAPE, "wrong shape"},
    {SMX_ERR_DTYPE, "wrong dtype"},
    {SMX_ERR_PARAM, "wrong parameter"},
    {SMX_ERR_ALIAS, "buffers overlap"},
    {SMX_ERR_EMPTY, "a row has nothing valid"},
    {SMX_ERR_NO_BACKWARD, "no gradient"},
    {SMX_ERR_NO_OP, "no such operator"},
    {SMX_ERR_NOMEM, "out of memory"},
    {SMX_ERR_DEVICE, "not in CPU memory"},
    {SMX_ERR_STRUCT, "unknown struct size"},
    {SMX_ERR_THREAD, "a thread could not be started"},
    {SMX_ERR_TARGET, "a target is no class"},
    {SMX_ERR_BACKEND, "a message of another kind, or none"},
};

const char *smx_strerror(smx_status status) {
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    if (texts[i].status == status) return texts[i].text;
  return "unknown status";
}

const char *smx_last_error(void) { return last_error; }
char *smx_error_text(void) { return last_error; }

smx_status smx_fail(smx_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const uint16_t env = smx_fpenv_text_enter();
  vsnprintf(last_error, sizeof last_error, format, args);
  smx_fpenv_text_leave(env);
  va_end(args);
  return status;
}

smx_status smx_set_error(smx_status status, const char *text) {
  return smx_fail(status, "%s", text ? text : smx_strerror(status));
}

#define TEXT(x) #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)
const char *smx_version(void) { return VERSION(SMX_VERSION_MAJOR, SMX_VERSION_MINOR, SMX_VERSION_PATCH); }
