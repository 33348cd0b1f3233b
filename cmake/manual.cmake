# The man page and the completions are printed by the command itself, out of the operator table.
if(NOT TARGET softmax_command)
  return()
endif()

function(smx_generate option file destination)
  add_custom_command(OUTPUT ${file} COMMAND softmax_command ${option} > ${file} DEPENDS softmax_command VERBATIM)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file} DESTINATION ${destination} ${ARGN})
endfunction()

smx_generate(--man softmax.1 ${CMAKE_INSTALL_MANDIR}/man1)
smx_generate(--bash-completion softmax.bash ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME softmax)
smx_generate(--zsh-completion softmax.zsh ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _softmax)
smx_generate(--fish-completion softmax.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
add_custom_target(manual ALL DEPENDS softmax.1 softmax.bash softmax.zsh softmax.fish)
