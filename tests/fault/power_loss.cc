#include "tests/fault/power_loss.h"

#include <sys/stat.h>

#include <climits>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "tests/fault/events.h"

namespace fault {
namespace {

struct File {
    std::string now, synced;
};
using Names = std::map<std::string, std::shared_ptr<File>>;

struct Disk {
    std::string folder;
    Names now;
    std::vector<Names> unsynced; // the names synced last, then each change
    std::map<int, std::shared_ptr<File>> open;
    std::set<int> folders; // descriptors of the folder
    std::vector<Files> after_calls, at_end;
};
std::unique_ptr<Disk> disk; // of the recording

enum Bytes { kSynced, kWritten, kTorn };

std::string bytes_of(const File &file, Bytes which)
{
    if (which == kSynced || file.now == file.synced) return file.synced;
    if (which == kWritten) return file.now;
    size_t same = 0; /* bytes that the sync and the writes after it agree about */
    while (same < file.now.size() && same < file.synced.size() &&
           file.now[same] == file.synced[same])
        same++;
    return file.now.substr(0, same + (file.now.size() - same) / 2);
}

std::vector<Files> possible()
{
    std::vector<Files> all;
    for (const Names &names : disk->unsynced)
        for (const Bytes which : { kSynced, kWritten, kTorn }) {
            Files files;
            for (const auto &[name, file] : names) files[name] = bytes_of(*file, which);
            all.push_back(files);
        }
    return all;
}

void note()
{
    for (const Files &files : possible())
        if (disk->after_calls.empty() || disk->after_calls.back() != files)
            disk->after_calls.push_back(files);
}

void names_changed()
{
    disk->unsynced.push_back(disk->now);
    note();
}

/* The name in the folder, or "". */
std::string name_of(const char *path)
{
    const std::filesystem::path whole(path);
    return whole.parent_path() == disk->folder ? whole.filename().string() : "";
}

File *file_at(int fd)
{
    if (disk == nullptr || disk->open.count(fd) == 0) return nullptr;
    return disk->open[fd].get();
}

} // namespace

Files files_of(const std::string &folder)
{
    Files files;
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
        std::ifstream in(entry.path(), std::ios::binary);
        files[entry.path().filename()] = std::string((std::istreambuf_iterator<char>(in)), {});
    }
    return files;
}

void make_folder(const std::string &folder, const Files &files)
{
    std::filesystem::remove_all(folder);
    std::filesystem::create_directory(folder);
    for (const auto &[name, bytes] : files)
        std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
}

size_t every_power_loss(
    const std::string &folder, const std::function<void()> &operation,
    const std::function<void(const Files &, bool is_over)> &check
)
{
    const Files before = files_of(folder);
    disk = std::make_unique<Disk>();
    disk->folder = folder;
    for (const auto &[name, bytes] : before)
        disk->now[name] = std::make_shared<File>(File{ bytes, bytes });
    disk->unsynced = { disk->now };
    operation();
    disk->at_end = possible();
    const std::unique_ptr<Disk> recorded = std::move(disk);
    std::set<std::pair<Files, bool>> seen;
    for (const Files &files : recorded->after_calls) seen.insert({ files, false });
    for (const Files &files : recorded->at_end) seen.insert({ files, true });
    for (const auto &[files, is_over] : seen) check(files, is_over);
    return seen.size();
}

} // namespace fault

using namespace fault;

void events_open(int fd, const char *path, bool truncates)
{
    if (disk == nullptr) return;
    struct stat st;
    if (path == disk->folder) {
        disk->folders.insert(fd);
        return;
    }
    const std::string name = name_of(path);
    if (name.empty() || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return;
    const bool is_new = disk->now.count(name) == 0;
    if (is_new) disk->now[name] = std::make_shared<File>();
    disk->open[fd] = disk->now[name];
    if (truncates && !is_new) disk->now[name]->now.clear();
    if (is_new) names_changed();
}

void events_close(int fd)
{
    if (disk == nullptr) return;
    disk->open.erase(fd);
    disk->folders.erase(fd);
}

void events_write(int fd, const void *bytes, size_t n, off_t at)
{
    File *const file = file_at(fd);
    if (file == nullptr) return;
    if (file->now.size() < static_cast<size_t>(at) + n)
        file->now.resize(static_cast<size_t>(at) + n);
    file->now.replace(static_cast<size_t>(at), n, static_cast<const char *>(bytes), n);
    note();
}

void events_truncate(int fd, off_t n)
{
    File *const file = file_at(fd);
    if (file == nullptr) return;
    file->now.resize(static_cast<size_t>(n));
    note();
}

void events_sync(int fd)
{
    if (disk == nullptr) return;
    if (disk->folders.count(fd) > 0) disk->unsynced = { disk->now };
    if (File *const file = file_at(fd)) file->synced = file->now;
    note();
}

void events_rename(const char *from, const char *to)
{
    if (disk == nullptr || name_of(from).empty() || name_of(to).empty()) return;
    disk->now[name_of(to)] = disk->now[name_of(from)];
    disk->now.erase(name_of(from));
    names_changed();
}

void events_link(const char *from, const char *to)
{
    if (disk == nullptr || name_of(to).empty()) return;
    std::ifstream in(from, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), {});
    disk->now[name_of(to)] = std::make_shared<File>(File{ bytes, bytes });
    names_changed();
}

void events_unlink(const char *path)
{
    if (disk == nullptr || disk->now.erase(name_of(path)) == 0) return;
    names_changed();
}
