# Flags with which a compiler may change results. Most have a macro, which src/base/arithmetic.h
# refuses, but clang defines few of them: so they are looked for by name, wherever a flag can come
# from. Without commands of a project: tests run it alone.
set(SMX_UNSAFE_FLAGS -Ofast -ffast-math -ffinite-math-only -fassociative-math -freciprocal-math -fno-signed-zeros
    -funsafe-math-optimizations -frounding-math -fno-honor-nans -fno-honor-infinities -fapprox-func
    -ffp-model=fast -ffp-model=aggressive -fsingle-precision-constant -mfpmath=387 -mrecip)
set(SMX_UNSAFE_PATTERNS "-mrecip=.*" "-fdenormal-fp-math.*=(preserve-sign|positive-zero).*" "-mfpmath=.*387.*")

# Stops when a variable holds such a flag; the message says which, and where.
function(smx_refuse_unsafe variable)
  string(REGEX REPLACE "[$]<[^ ;]*:|[>;]" " " text "${${variable}}") # $<$<CONFIG:Release>:-O2>
  separate_arguments(flags UNIX_COMMAND "${text}")
  foreach(flag IN LISTS flags)
    set(unsafe OFF)
    if(flag IN_LIST SMX_UNSAFE_FLAGS)
      set(unsafe ON)
    endif()
    foreach(pattern IN LISTS SMX_UNSAFE_PATTERNS)
      if(flag MATCHES "^${pattern}$")
        set(unsafe ON)
      endif()
    endforeach()
    if(unsafe)
      message(FATAL_ERROR "libsoftmax does not build with ${flag}: the compiler may then change results. "
                          "Take it out of ${variable} (or CFLAGS); the library is fast without it.")
    endif()
  endforeach()
endfunction()
