/* npz.c - NumPy's .npz: a zip of .npy files, stored or deflated. Read and built in memory through
 * libzip. */
#include "../fault.h"
#include "io.h"
#include "members.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <zip.h>

#define SUFFIX ".npy"
enum {
  NAME_SIZE = 512,
  FIRST_ROOM = 1 << 17,
  COPY_SIZE = 1 << 16,
  HEADER_SIZE = 512,
  DOS_EPOCH = 1 << 5 | 1
};

static int malformed(const io_source *s, zip_error_t *e) {
  int code = fault(EXIT_UNREADABLE, "%s: not a readable npz file: %s", s->name, zip_error_strerror(e));
  zip_error_fini(e);
  return code;
}

static int open_archive(const io_source *s, zip_t **archive) {
  zip_error_t e;
  zip_error_init(&e);
  zip_source_t *bytes = zip_source_buffer_create(s->data, s->size, 0, &e);
  *archive = bytes ? zip_open_from_source(bytes, ZIP_RDONLY, &e) : NULL;
  if (*archive) return EXIT_OK;
  zip_source_free(bytes);
  return malformed(s, &e);
}

static int find_member(zip_t *archive, const io_source *s, const char *wanted, zip_uint64_t *index) {
  member_search m;
  char name[NAME_SIZE];
  zip_int64_t count = zip_get_num_entries(archive, 0);
  member_begin(&m, wanted);
  for (zip_int64_t i = 0; i < count; i++) {
    const char *entry = zip_get_name(archive, (zip_uint64_t)i, ZIP_FL_ENC_RAW);
    size_t n = entry ? strlen(entry) : 0, suffix = strlen(SUFFIX);
    if (n < suffix || n - suffix >= sizeof name || strcmp(entry + n - suffix, SUFFIX) != 0) continue;
    memcpy(name, entry, n - suffix);
    name[n - suffix] = 0;
    member_see(&m, name, i);
  }
  *index = (zip_uint64_t)m.found;
  return member_check(&m, s);
}

/* Reads more of a member, until there are `end` bytes of it. Memory grows with what really
 * arrives. */
static int inflate(zip_file_t *file, const io_source *s, io_array *array, size_t *size, size_t end) {
  size_t room = *size;
  zip_int64_t n = 0;
  for (; *size < end; *size += (size_t)n) {
    if (*size == room) {
      room = room < FIRST_ROOM ? FIRST_ROOM : room > end / 2 ? end : 2 * room;
      void *larger = realloc(array->owned, room);
      if (!larger) return fault_memory(room);
      array->owned = larger;
    }
    n = zip_fread(file, (char *)array->owned + *size, (room < end ? room : end) - *size);
    if (n < 0) return fault(EXIT_UNREADABLE, "%s: an array is damaged: %s", s->name, zip_file_strerror(file));
    if (n == 0) return fault(EXIT_UNREADABLE, "%s: an array is shorter than the npz directory says", s->name);
  }
  return EXIT_OK;
}

/* Whether nothing follows; libzip checks the sum there. */
static int inflate_end(zip_file_t *file, const io_source *s) {
  char more;
  zip_int64_t n = zip_fread(file, &more, 1);
  if (n < 0) return fault(EXIT_UNREADABLE, "%s: an array is damaged: %s", s->name, zip_file_strerror(file));
  return n ? fault(EXIT_UNREADABLE, "%s: an array is larger than the npz directory says", s->name) : EXIT_OK;
}

/* The header is read before anything else is inflated: what it does not account for is refused. */
static int inflate_array(zip_file_t *file, const io_source *s, zip_uint64_t claimed, io_array *array) {
  size_t size = 0;
  int code = inflate(file, s, array, &size, claimed < NPY_START ? (size_t)claimed : NPY_START);
  if (code) return code;
  const io_source start = {.name = s->name, .data = array->owned, .size = size};
  code = npy_read_start(&start, (size_t)claimed, array);
  if (code) return code;
  size_t header = (size_t)(array->data - start.data);
  code = inflate(file, s, array, &size, (size_t)claimed);
  array->data = (const unsigned char *)array->owned + header;
  return code ? code : inflate_end(file, s);
}

static int read_member(zip_t *archive, const io_source *s, zip_uint64_t index, io_array *array) {
  zip_stat_t st;
  const zip_uint64_t known = ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD;
  if (zip_stat_index(archive, index, 0, &st) != 0 || (st.valid & known) != known)
    return fault(EXIT_UNREADABLE, "%s: an array has no size in the npz directory", s->name);
  if (st.comp_method != ZIP_CM_STORE && st.comp_method != ZIP_CM_DEFLATE)
    return fault(EXIT_UNREADABLE, "%s: compression method %u: only stored and deflated arrays can be read",
                 s->name, st.comp_method);
  zip_file_t *file = zip_fopen_index(archive, index, 0);
  if (!file)
    return fault(EXIT_UNREADABLE, "%s: an array cannot be opened: %s", s->name, zip_strerror(archive));
  int code = inflate_array(file, s, st.size, array);
  zip_fclose(file);
  return code;
}

int npz_read(const io_source *source, const io_hints *hints, io_array *array) {
  zip_t *archive;
  zip_uint64_t index;
  int code = open_archive(source, &archive);
  if (code) return code;
  code = find_member(archive, source, hints->member, &index);
  if (!code) code = read_member(archive, source, index, array);
  zip_discard(archive);
  return code;
}

/* The arrays of an npz that is being made: header and elements of each. base[i] is how far array i
 * is filled. */
typedef struct npz_state {
  unsigned char *file[SMX_MAX_PORTS];
  size_t size[SMX_MAX_PORTS];
} npz_state;

int npz_begin(io_writer *w) {
  npz_state *state = w->state = calloc(1, sizeof *state);
  if (!state) return fault_memory(sizeof *state);
  for (int32_t i = 0; i < w->count; i++) {
    char header[HEADER_SIZE];
    uint64_t bytes = 0;
    size_t n = npy_header(&w->spec[i], header, sizeof header);
    if (!io_bytes(w->spec[i].type, w->spec[i].ndim, w->spec[i].shape, &bytes)) return fault_memory(SIZE_MAX);
    state->size[i] = n + (size_t)bytes;
    state->file[i] = malloc(state->size[i]);
    if (!state->file[i]) return fault_memory(state->size[i]);
    memcpy(state->file[i], header, n);
    w->base[i] = n;
  }
  return EXIT_OK;
}

int npz_put(io_writer *w, int32_t i, const void *data, size_t bytes) {
  npz_state *state = w->state;
  memcpy(state->file[i] + w->base[i], data, bytes);
  w->base[i] += bytes;
  return EXIT_OK;
}

static bool add_member(zip_t *archive, const char *name, const unsigned char *data, size_t size) {
  char entry[NAME_SIZE];
  snprintf(entry, sizeof entry, "%s" SUFFIX, name);
  zip_source_t *bytes = zip_source_buffer(archive, data, size, 0);
  zip_int64_t index = bytes ? zip_file_add(archive, entry, bytes, ZIP_FL_ENC_UTF_8) : -1;
  if (bytes && index < 0) zip_source_free(bytes);
  return index >= 0 && zip_set_file_compression(archive, (zip_uint64_t)index, ZIP_CM_STORE, 0) == 0 &&
         zip_file_set_dostime(archive, (zip_uint64_t)index, 0, DOS_EPOCH, 0) == 0;
}

/* Copies the finished archive into the output. */
static int copy_archive(io_writer *w, zip_source_t *archive) {
  unsigned char buffer[COPY_SIZE];
  uint64_t offset = 0;
  int code = EXIT_OK;
  zip_int64_t n = 0;
  if (zip_source_open(archive) != 0)
    return fault(EXIT_UNWRITABLE, "%s: the npz cannot be built", w->out->name);
  while (!code && (n = zip_source_read(archive, buffer, sizeof buffer)) > 0) {
    code = output_write(w->out, offset, buffer, (size_t)n);
    offset += (uint64_t)n;
  }
  zip_source_close(archive);
  return n < 0 ? fault(EXIT_UNWRITABLE, "%s: the npz cannot be built", w->out->name) : code;
}

int npz_end(io_writer *w) {
  npz_state *state = w->state;
  zip_error_t e;
  zip_error_init(&e);
  zip_source_t *target = zip_source_buffer_create(NULL, 0, 0, &e);
  zip_t *archive = target ? zip_open_from_source(target, ZIP_CREATE | ZIP_TRUNCATE, &e) : NULL;
  bool good = archive != NULL;
  if (!good) zip_source_free(target);
  zip_error_fini(&e);
  for (int32_t i = 0; good && i < w->count; i++)
    good = add_member(archive, w->spec[i].name, state->file[i], state->size[i]);
  if (archive) zip_source_keep(target);
  if (good) good = zip_close(archive) == 0;
  if (!good && archive) zip_discard(archive);
  int code =
      good ? copy_archive(w, target) : fault(EXIT_UNWRITABLE, "%s: the npz cannot be built", w->out->name);
  if (archive) zip_source_free(target);
  return code;
}

void npz_drop(io_writer *w) {
  npz_state *state = w->state;
  for (int32_t i = 0; state && i < w->count; i++) free(state->file[i]);
  free(state);
  w->state = NULL;
}
