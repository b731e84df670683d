/* Copies of golden models that a test damages. */
#pragma once
#include "tests/unit/model/support.h"

namespace hostile {

using support::Engine;
using support::Folder;
using support::golden;
using support::read_file;
using support::Settings;
using support::write_file;

inline const Settings small = { "memory.host=256MiB", "kernels.threads=1", "batch.max_sequences=1",
                                "batch.chunk=64" };

inline void copy_to(const Folder &folder, const char *from, const char *to)
{
    write_file(folder / to, read_file(golden(from)));
}

} // namespace hostile
