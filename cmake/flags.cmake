# The flags of everything in this repository.

set(SMX_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wpointer-arith -Wcast-qual -Wmissing-prototypes -Wno-psabi)
if(SMX_WERROR)
  list(APPEND SMX_WARNINGS -Werror)
endif()

# Kernels say themselves what to unroll; -O3 only makes them slow to compile.
set(SMX_KERNEL_OPTIMISE $<$<NOT:$<CONFIG:Debug>>:-O2>)

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
