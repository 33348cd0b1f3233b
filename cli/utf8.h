/* utf8.h - the characters of text that somebody else wrote: names of files, of arrays, of
 * classes. */
#ifndef CLI_UTF8_H
#define CLI_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A character of UTF-8 at `at`: its code point and length in bytes. Bytes that are none count as
 * '?', one by one. */
uint32_t utf8_next(const unsigned char *at, size_t left, size_t *length);

/* Control characters (C0, DEL, C1), and those that end a line or turn the direction of writing. */
bool utf8_moves_cursor(uint32_t c);

/* Puts a '?' in the place of each such character, and of each byte that is no UTF-8: it stays one
 * line, and a terminal only shows it. */
void utf8_tame(char *text);

#endif
