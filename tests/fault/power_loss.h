// What a folder may look like after a loss of power at each call of an operation.
//
// A file that was not synced since it was written has its bytes of the last sync, or all that was
// written, or the first half of what differs. A name that was made, changed or removed since the
// folder was synced may be as it was: names change in the order of the calls, so any first part of
// the changes may have reached the disk. This is what ext4 and XFS allow, not more.
#pragma once
#include <functional>
#include <map>
#include <string>

namespace fault {

using Files = std::map<std::string, std::string>; // names in the folder and bytes

Files files_of(const std::string &folder);
void make_folder(const std::string &folder, const Files &files); // with these files only

// Runs `operation` on `folder`, which has no folders inside, then calls `check` for every state
// that a loss of power could have left. `is_over`: the operation had returned. Returns how many
// states were checked.
size_t every_power_loss(
    const std::string &folder, const std::function<void()> &operation,
    const std::function<void(const Files &, bool is_over)> &check
);

} // namespace fault
