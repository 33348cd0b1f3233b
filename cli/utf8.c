/* utf8.c - UTF-8, and what of it a terminal would obey. */
#include "utf8.h"

#include <string.h>

uint32_t utf8_next(const unsigned char *at, size_t left, size_t *length) {
  uint32_t c = at[0];
  size_t n = c < 0x80                ? 1
             : c >= 0xc2 && c < 0xe0 ? 2
             : c >= 0xe0 && c < 0xf0 ? 3
             : c >= 0xf0 && c < 0xf5 ? 4
                                     : 0;
  *length = 1;
  if (!n || n > left) return '?';
  if (n > 1) c &= 0x7fU >> n;
  for (size_t i = 1; i < n; i++) {
    if ((at[i] & 0xc0) != 0x80) return '?';
    c = c << 6 | (at[i] & 0x3fU);
  }
  if ((n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) || (n == 4 && (c < 0x10000 || c > 0x10ffff)))
    return '?';
  *length = n;
  return c;
}

bool utf8_moves_cursor(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

void utf8_tame(char *text) {
  const unsigned char *at = (const unsigned char *)text;
  char *to = text;
  for (size_t left = strlen(text), n; left; at += n, left -= n) {
    uint32_t c = utf8_next(at, left, &n);
    if (utf8_moves_cursor(c) || (c == '?' && *at != '?')) *to++ = '?';
    else to = (char *)memmove(to, at, n) + n;
  }
  *to = 0;
}
