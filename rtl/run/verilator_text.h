// Where Verilator's runtime prints (VL_PRINTF); included before each of its files.
#pragma once

void tpu_verilator_text(const char* format, ...) __attribute__((format(printf, 1, 2)));
