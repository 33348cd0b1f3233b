/* Turns three scores into weights: cc softmax.c $(pkg-config --cflags --libs softmax) */
#include <softmax.h>
#include <stdio.h>

int main(void) {
  float x[3] = {1, 2, 3}, y[3];
  if (smx_softmax_f32(1, 3, x, y) != SMX_OK) return fprintf(stderr, "%s\n", smx_last_error()), 1;
  printf("%.4f %.4f %.4f (%s)\n", y[0], y[1], y[2], smx_isa_name());
  return 0;
}
