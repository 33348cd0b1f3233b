/* base/arithmetic.h - refuses compiler options that would break the contract of docs/numerics.md.
 * The build includes it before every source of the library (-include); cmake/checks.cmake refuses
 * the same options when it configures.
 *
 * Not here, because they change no result: -fno-math-errno, -fno-trapping-math,
 * -fsignaling-nans. */
#ifndef SMX_ARITHMETIC_H
#define SMX_ARITHMETIC_H

#if defined(__FAST_MATH__)
#error "libsoftmax does not build with -ffast-math or -Ofast: the compiler may then change results"
#endif
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "libsoftmax does not build with -ffinite-math-only: rows have infinities and NaN"
#endif
#if defined(__ASSOCIATIVE_MATH__)
#error "libsoftmax does not build with -fassociative-math: sums have an order"
#endif
#if defined(__RECIPROCAL_MATH__)
#error "libsoftmax does not build with -freciprocal-math: a quotient is rounded once"
#endif
#if defined(__NO_SIGNED_ZEROS__)
#error "libsoftmax does not build with -fno-signed-zeros: a zero has a sign"
#endif
#if defined(__ROUNDING_MATH__)
#error "libsoftmax does not build with -frounding-math: its arithmetic is in round-to-nearest"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16
#error \
    "libsoftmax does not build with -mfpmath=387 or -fexcess-precision=standard: float would be a wider type"
#endif

#endif
