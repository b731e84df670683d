// Runs an operation with each of its calls failing in turn.
#pragma once
#include <functional>

#include "engine/base/error.h"
#include "tests/fault/calls.h"

namespace fault {

struct Operation {
    // Opens, works and closes: of a run nothing is left in memory. The error may be empty after OK.
    std::function<weir_status(weir_error *)> run;
    // After each run, without faults: what is on disk is whole, and the result of a run that
    // returned OK is that of a run without faults.
    std::function<void(weir_status)> check = [](weir_status) {};
    // Before each run, without faults.
    std::function<void()> prepare = [] {};
    // It works on an object that goes on living and may have grown: blocks are not counted.
    bool keeps_memory = false;
};

// Each call fails once, then it and all after it; then the operation runs without faults and must
// return OK. After a fault: OK or an error with a text, no block, mapping or descriptor left. Of
// long operations a spread of calls fails, with WEIR_FAULT_DEEP set every one.
void every_allocation(const Operation &operation);
void every_charge(const Operation &operation);
// Also: each read and write is interrupted, and moves half of its bytes; both must go unnoticed.
void every_file_call(const Operation &operation);

} // namespace fault
