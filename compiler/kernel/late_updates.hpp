// Kernel pass `late_updates`: what reads an array before its update goes in front of the update.
//
//   while:                                     while:
//     dynamic_update c1 = c, x                   dynamic_update ys1 = ys, c
//     dynamic_update ys1 = ys, c         =>      dynamic_update c1 = c, x
//     yield c1, ys1                              yield c1, ys1
//
// In a loop the update is then made in place: the other way round it needs a copy of the array in
// each iteration. A reader that needs the update's result stays, and so does one with effects.
#pragma once

#include "kernel/kernels.hpp"

namespace tpu::compiler {

// Of the kernels of `program`, not of its regions.
void order_updates_late(KernelProgram& program);

}  // namespace tpu::compiler
