# The flags of everything in this repository.

set(SMX_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith -Wcast-qual -Wmissing-prototypes -Wno-psabi)
if(CMAKE_C_COMPILER_ID MATCHES "Clang")
  list(APPEND SMX_WARNINGS -Wno-pass-failed) # a loop that clang does not unroll as asked is slower, not wrong
endif()
if(SMX_WERROR)
  list(APPEND SMX_WARNINGS -Werror)
endif()

# Kernels say themselves what to unroll; -O3 only makes them slow to compile.
set(SMX_KERNEL_OPTIMISE $<$<NOT:$<CONFIG:Debug>>:-O2> CACHE STRING "how kernels are optimised; speed depends on it, no bit does")

if(SMX_SANITIZE)
  set(sanitize -fsanitize=${SMX_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${sanitize})
  add_link_options(${sanitize})
endif()

# C11, no fused multiply-add that the source does not ask for, no errno from arithmetic.
function(smx_options target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${SMX_WARNINGS}> -ffp-contract=off -fno-math-errno)
endfunction()

# The instruction sets of an architecture besides portable C, and what their kernels are compiled with.
set(SMX_ISAS_KNOWN)
if(SMX_ARCH STREQUAL "x86_64")
  set(SMX_ISAS_KNOWN avx512 avx2)
elseif(SMX_ARCH STREQUAL "aarch64")
  set(SMX_ISAS_KNOWN neon)
endif()
set(SMX_HEADER_avx512 vec_avx512.h)
set(SMX_FLAGS_avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mf16c)
set(SMX_HEADER_avx2 vec_avx2.h)
set(SMX_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(SMX_FLAGS_portable $<$<NOT:$<CONFIG:Debug>>:-O1>) # a third of the time to compile; a tenth slower, nearly all of it emulated FMA
if(SMX_ARCH STREQUAL "x86_64" AND SMX_PORTABLE STREQUAL "FMA")
  list(APPEND SMX_FLAGS_portable ${SMX_FLAGS_avx2})
endif()
set(SMX_HEADER_neon vec_neon.h)
set(SMX_FLAGS_neon)
