# Which instruction sets there are to build for, and what the contract of docs/numerics.md cannot live with.
include(CheckSymbolExists)

check_symbol_exists(__i386__ stddef.h SMX_IS_I386)
check_symbol_exists(__x86_64__ stddef.h SMX_IS_X86_64)
check_symbol_exists(__aarch64__ stddef.h SMX_IS_AARCH64)
check_symbol_exists(__FAST_MATH__ stddef.h SMX_IS_FAST_MATH)

if(SMX_IS_I386)
  message(FATAL_ERROR "libsoftmax does not build for 32-bit x86: its floating point keeps extra bits, so results could not be the same "
                      "everywhere. Build for x86_64.")
endif()
if(SMX_IS_FAST_MATH)
  message(FATAL_ERROR "libsoftmax does not build with -ffast-math or -Ofast: the compiler may then change results. "
                      "Take it out of CFLAGS; the library is fast without it.")
endif()

if(SMX_IS_X86_64)
  set(SMX_ARCH x86_64)
elseif(SMX_IS_AARCH64)
  set(SMX_ARCH aarch64)
else()
  set(SMX_ARCH other)
  message(STATUS "No vector kernels for ${CMAKE_SYSTEM_PROCESSOR}: portable C only")
endif()
