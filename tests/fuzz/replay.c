/* replay.c - runs a fuzz target over the files named, and over everything that they become when
 * they are cut short or one byte changes. */
#include "fuzz.h"

/* The input on the heap, at its exact size, so that a sanitizer sees the first byte read past
 * it. */
static void replay(const uint8_t *data, size_t size, size_t changed) {
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy) abort();
  memcpy(copy, data, size);
  if (changed < size) copy[changed] ^= (uint8_t)(1u << changed % 8);
  LLVMFuzzerTestOneInput(copy, size);
  free(copy);
}

static size_t read_all(const char *name, uint8_t *data, size_t room) {
  FILE *f = fopen(name, "rb");
  if (!f) return room;
  size_t n = fread(data, 1, room, f);
  fclose(f);
  return n;
}

int main(int argc, char **argv) {
  static uint8_t data[1 << 16];
  for (int i = 1; i < argc; i++) {
    size_t size = read_all(argv[i], data, sizeof data);
    if (size == sizeof data) {
      fprintf(stderr, "%s: cannot be read, or too large\n", argv[i]);
      return 1;
    }
    for (size_t n = 0; n <= size; n++) replay(data, n, size);
    for (size_t n = 0; n < size; n++) replay(data, size, n);
  }
  printf("%d files\n", argc - 1);
  return argc > 1 ? 0 : 1;
}
