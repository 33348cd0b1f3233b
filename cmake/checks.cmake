# Which instruction sets there are to build for, and what the contract of docs/numerics.md cannot live with.
include(CheckSymbolExists)
include(${CMAKE_CURRENT_LIST_DIR}/arithmetic.cmake)

check_symbol_exists(__i386__ stddef.h SMX_IS_I386)
check_symbol_exists(__x86_64__ stddef.h SMX_IS_X86_64)
check_symbol_exists(__aarch64__ stddef.h SMX_IS_AARCH64)

if(SMX_IS_I386)
  message(FATAL_ERROR "libsoftmax does not build for 32-bit x86: its floating point keeps extra bits, so results could not be the same "
                      "everywhere. Build for x86_64.")
endif()

get_directory_property(SMX_DIRECTORY_FLAGS COMPILE_OPTIONS) # of a project around this one: add_compile_options
string(TOUPPER "${CMAKE_CONFIGURATION_TYPES};${CMAKE_BUILD_TYPE}" configs)
list(TRANSFORM configs PREPEND CMAKE_C_FLAGS_)
foreach(variable CMAKE_C_COMPILER_ARG1 CMAKE_C_FLAGS ${configs} SMX_DIRECTORY_FLAGS SMX_KERNEL_OPTIMISE)
  smx_refuse_unsafe(${variable})
endforeach()

if(SMX_IS_X86_64)
  set(SMX_ARCH x86_64)
elseif(SMX_IS_AARCH64)
  set(SMX_ARCH aarch64)
else()
  set(SMX_ARCH other)
  message(STATUS "No vector kernels for ${CMAKE_SYSTEM_PROCESSOR}: portable C only")
endif()

# native: the best instruction set of this machine alone, in place of portable C.
if("${SMX_ISAS}" STREQUAL "native")
  set(SMX_ISAS none)
  set(has)
  if(EXISTS /proc/cpuinfo AND NOT CMAKE_CROSSCOMPILING)
    file(READ /proc/cpuinfo has)
  endif()
  if(SMX_ARCH STREQUAL "aarch64" AND NOT CMAKE_CROSSCOMPILING)
    set(SMX_ISAS neon)
  elseif(has MATCHES " avx2 " AND has MATCHES " fma " AND has MATCHES " f16c ")
    set(SMX_ISAS avx2)
    if(has MATCHES " avx512f " AND has MATCHES " avx512dq " AND has MATCHES " avx512bw " AND has MATCHES " avx512vl ")
      set(SMX_ISAS avx512)
    endif()
  endif()
  if(NOT SMX_ISAS STREQUAL "none")
    set(SMX_PORTABLE OFF)
  endif()
endif()
