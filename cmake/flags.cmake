# The flags of everything in this repository.

include(CheckCCompilerFlag)

set(SMX_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith -Wcast-qual -Wmissing-prototypes -Wno-psabi
    -Wno-missing-field-initializers # tables leave out what is 0
    -Wno-unused-parameter) # functions of a table share a type, whatever each of them needs
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

# Where the compiler has them: no wider type for float (in C11, s390x computes it in double), marks
# for indirect calls and returns (CET, PAC, BTI), which only hold when every object has them, and
# plain stores where GCC would clear a small struct with `rep stos`, which is slow to start.
set(SMX_C_FLAGS)
set(marks -fexcess-precision=fast)
if(SMX_ARCH STREQUAL "x86_64")
  list(APPEND marks -fcf-protection -mmemset-strategy=libcall:-1:noalign)
elseif(SMX_ARCH STREQUAL "aarch64")
  list(APPEND marks -mbranch-protection=standard)
endif()
foreach(flag IN LISTS marks)
  string(MAKE_C_IDENTIFIER "SMX_HAVE${flag}" have)
  set(CMAKE_REQUIRED_FLAGS -Werror) # clang only warns of a flag that it does not use
  check_c_compiler_flag(${flag} ${have})
  unset(CMAKE_REQUIRED_FLAGS)
  if(${have})
    list(APPEND SMX_C_FLAGS ${flag})
  endif()
endforeach()

# C11, no fused multiply-add that the source does not ask for, no errno from arithmetic.
function(smx_options target)
  set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:${SMX_WARNINGS};${SMX_C_FLAGS}> -ffp-contract=off -fno-math-errno)
endfunction()

# What checks arguments or reads files looks after its stack too; kernels have no buffers that a
# caller could overrun.
function(smx_protect_stack target)
  target_compile_options(${target} PRIVATE -fstack-protector-strong)
endfunction()

# Addresses of functions of other libraries are looked up at the start, and cannot be written after.
set(SMX_LINK_FLAGS -Wl,-z,relro,-z,now)

# The instruction sets of an architecture besides portable C, and what their kernels are compiled with.
set(SMX_ISAS_KNOWN)
if(SMX_ARCH STREQUAL "x86_64")
  set(SMX_ISAS_KNOWN avx512 avx2)
  set(SMX_INTRINSICS immintrin.h)
elseif(SMX_ARCH STREQUAL "aarch64")
  set(SMX_ISAS_KNOWN neon)
  set(SMX_INTRINSICS arm_neon.h)
endif()
set(SMX_HEADER_avx512 vec_avx512.h)
set(SMX_FLAGS_avx512 -mavx512f -mavx512dq -mavx512bw -mavx512vl -mavx2 -mfma -mf16c)
set(SMX_HEADER_avx2 vec_avx2.h)
set(SMX_FLAGS_avx2 -mavx2 -mfma -mf16c)
# Portable kernels are built for size: two thirds of the code of -O2, whose speed emulated FMA decides
# anyway; their many functions would take an eighth of that again for tables of unwinding. (gcc 12
# then takes arrays that are filled in counted loops for uninitialised.)
set(SMX_FLAGS_portable $<$<NOT:$<CONFIG:Debug>>:-Os;-fno-asynchronous-unwind-tables>
                       $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
if(SMX_ARCH STREQUAL "x86_64" AND SMX_PORTABLE STREQUAL "FMA")
  list(APPEND SMX_FLAGS_portable ${SMX_FLAGS_avx2})
endif()
set(SMX_HEADER_neon vec_neon.h)
set(SMX_FLAGS_neon)
