/* base/fpenv.h - the floating-point environment a kernel runs in: round to nearest, no flush to
 * zero, no traps. Costs some 20 ns a call when it must change anything, a few when not.
 *
 * smx_fpenv_text: the same for what libc makes of numbers and text. On x86-64 its printf and strtod
 * round as the control word of the x87 says, which no kernel uses. */
#ifndef SMX_FPENV_H
#define SMX_FPENV_H
#include <stdint.h>

#if defined(__x86_64__)
typedef unsigned smx_fpenv;
enum { SMX_FP_FLAGS = 0x3f, SMX_FP_DEFAULT = 0x1f80 };
static inline smx_fpenv smx_fpenv_enter(void) {
  smx_fpenv old = __builtin_ia32_stmxcsr();
  if ((old & ~(unsigned)SMX_FP_FLAGS) != SMX_FP_DEFAULT) __builtin_ia32_ldmxcsr(SMX_FP_DEFAULT);
  return old;
}
static inline void smx_fpenv_leave(smx_fpenv old) {
  if ((old & ~(unsigned)SMX_FP_FLAGS) != SMX_FP_DEFAULT) __builtin_ia32_ldmxcsr(old);
}
static inline uint16_t smx_fpenv_text_enter(void) {
  const uint16_t own = 0x37f;
  uint16_t old;
  __asm__ volatile("fnstcw %0" : "=m"(old));
  if (old != own) __asm__ volatile("fldcw %0" : : "m"(own));
  return old;
}
static inline void smx_fpenv_text_leave(uint16_t old) { __asm__ volatile("fldcw %0" : : "m"(old)); }
#elif defined(__aarch64__)
typedef uint64_t smx_fpenv;
static inline smx_fpenv smx_fpenv_enter(void) {
  smx_fpenv old;
  __asm__ volatile("mrs %0, fpcr" : "=r"(old));
  if (old) __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
  return old;
}
static inline void smx_fpenv_leave(smx_fpenv old) {
  if (old) __asm__ volatile("msr fpcr, %0" : : "r"(old));
}
#else
#include <fenv.h>
typedef fenv_t smx_fpenv;
static inline smx_fpenv smx_fpenv_enter(void) {
  fenv_t old;
  fegetenv(&old);
  fesetenv(FE_DFL_ENV);
  return old;
}
static inline void smx_fpenv_leave(smx_fpenv old) { fesetenv(&old); }
#endif

#if !defined(__x86_64__)
static inline uint16_t smx_fpenv_text_enter(void) { return 0; }
static inline void smx_fpenv_text_leave(uint16_t old) { (void)old; }
#endif

#endif
