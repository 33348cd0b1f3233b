# The peers of the benchmark: one that does not compile and link here is left out, with a line that
# says so.
include(CheckCXXSourceCompiles)

# smx_peer(TARGET NAME MACRO PACKAGES LIBRARIES CODE): no find_package, whose configuration files
# may stop CMake for what the benchmark does not use.
function(smx_peer target name macro packages libraries code)
  set(found)
  foreach(library IN LISTS libraries)
    find_library(SMX_LIBRARY_${library} ${library})
    if(NOT SMX_LIBRARY_${library})
      message(STATUS "Benchmark: ${name} is left out: no library ${library} (${packages})")
      return()
    endif()
    list(APPEND found ${SMX_LIBRARY_${library}})
  endforeach()
  set(CMAKE_REQUIRED_LIBRARIES ${found})
  set(CMAKE_REQUIRED_QUIET ON)
  check_cxx_source_compiles("${code}" SMX_${macro})
  if(SMX_${macro})
    target_compile_definitions(${target} PRIVATE ${macro})
    target_link_libraries(${target} PRIVATE ${found})
  else()
    message(STATUS "Benchmark: ${name} is left out: a program that uses it does not build (${packages})")
  endif()
endfunction()

function(smx_peers target)
  smx_peer(${target} XNNPACK WITH_XNNPACK "libxnnpack-dev and libpthreadpool-dev as Debian 12 has them" "XNNPACK;pthreadpool" "
  #include <xnnpack.h>
  int main() { return xnn_initialize(nullptr) + xnn_setup_softmax_nc_f32(nullptr, 1, nullptr, nullptr, nullptr); }")
  smx_peer(${target} oneDNN WITH_ONEDNN "libdnnl-dev" "dnnl" "
  #include <oneapi/dnnl/dnnl.hpp>
  int main() { return dnnl::engine(dnnl::engine::kind::cpu, 0).get_kind() != dnnl::engine::kind::cpu; }")
endfunction()
