# Files that installed commands use: examples, board files, firmware, and digits where they were fetched. Programs find
# them relative to themselves (cli/own_files.hpp), so that an installed tree can be moved.
set(share ${CMAKE_INSTALL_DATADIR}/tpuboard)
install(DIRECTORY examples DESTINATION ${share} COMPONENT share PATTERN "__pycache__" EXCLUDE)
install(FILES docs/tutorials/how_a_tpu_trains.ipynb DESTINATION ${share}/examples/tutorials COMPONENT share)
install(FILES spec/board/v2_8.toml spec/board/v3_8.toml DESTINATION ${share}/boards COMPONENT share)
install(FILES ${CMAKE_BINARY_DIR}/firmware/image/firmware.elf DESTINATION ${share}/firmware COMPONENT share OPTIONAL)
install(FILES sim_scripts/fetch_mnist.py DESTINATION ${share} COMPONENT share)
install(FILES out/data/mnist/images.npy out/data/mnist/labels.npy DESTINATION ${share}/digits COMPONENT share OPTIONAL)
