# What `cmake --install` puts where. Everything is found relative to where it lies, so an installed tree may be moved.
include(CMakePackageConfigHelpers)

set(targets)
foreach(target softmax_shared softmax_static softmax_mpi)
  if(TARGET ${target})
    list(APPEND targets ${target})
  endif()
endforeach()
install(TARGETS ${targets} EXPORT softmaxTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(left_out)
if(NOT SMX_MPI)
  set(left_out PATTERN mpi.h EXCLUDE)
endif()
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${left_out})

# The installed command finds the library beside itself, except in /usr, where the system knows.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set(CMAKE_INSTALL_RPATH "$ORIGIN/${up}")
endif()

# CMake package: find_package(softmax) gives softmax::softmax and softmax::static.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/softmax)
install(EXPORT softmaxTargets NAMESPACE softmax:: DESTINATION ${package_dir})
configure_package_config_file(cmake/softmaxConfig.cmake.in softmaxConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(softmaxConfigVersion.cmake COMPATIBILITY ${SMX_COMPATIBILITY})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/softmaxConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/softmaxConfigVersion.cmake
        DESTINATION ${package_dir})

# pkg-config. A folder given as an absolute path stays one; the others hang on the prefix, and that on where softmax.pc lies.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_includedir ${CMAKE_INSTALL_INCLUDEDIR})
endif()
set(pc_private "-lm")
if(SMX_THREADS)
  string(APPEND pc_private " ${CMAKE_THREAD_LIBS_INIT}")
endif()
string(STRIP "${pc_private}" pc_private)
set(pc_static)
if(NOT SMX_SHARED) # whoever links gets the static library, whatever he asks for
  set(pc_static " ${pc_private}")
endif()
set(pc_files softmax.pc)
if(SMX_MPI) # whoever compiles with mpicc has MPI's flags already
  list(APPEND pc_files softmax-mpi.pc)
endif()
foreach(pc IN LISTS pc_files)
  configure_file(cmake/${pc}.in ${pc} @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${pc} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# `cmake --build DIR --target uninstall` removes what was installed last from that build folder.
if(top)
  configure_file(cmake/uninstall.cmake.in uninstall.cmake @ONLY)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${CMAKE_CURRENT_BINARY_DIR}/uninstall.cmake)
endif()
