# embed.cmake - files as bytes of a C source: cmake -DOUT=FILE -DFILES=DIR/a.html,DIR/b.css -P embed.cmake. The bytes of a.html are
# page_html, with a 0 after them.
string(REPLACE "," ";" FILES "${FILES}")
set(text "/* Written by embed.cmake. */\n#include \"page.h\"\n")
foreach(file ${FILES})
  get_filename_component(name ${file} EXT)
  string(REPLACE "." "page_" name ${name})
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND text "const unsigned char ${name}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE ${OUT} "${text}")
