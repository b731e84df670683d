/* tests/golden/kv_golden.cc - KV folders: index.json, and which of its files have something that
 * runs them. A pack runner is hooked in by a function in `groups`. */
#include "tests/golden/kv_golden.h"

#include <filesystem>

namespace golden {
namespace {

struct Group {
    const char *stem; /* "pack" takes pack.safetensors and pack_*.safetensors */
    void (*run)(KvFile *); /* NULL: nothing runs these cases yet, `absent` says what is missing */
    const char *absent;
};

const Group groups[] = {
    { "attn", run_attention, nullptr },        { "codec", run_codec, nullptr },
    { "policy", run_policy, nullptr },         { "coda", run_coda, nullptr },
    { "pack", nullptr, "no pack runner yet" },
};

/* The cases of the file that the filter lets through. */
std::vector<std::string> wanted_cases(const KvFile &file)
{
    std::vector<std::string> labels;
    const char *name;
    const json_t *ignored;
    json_object_foreach(
        json_object_get(const_cast<json_t *>(file.entry), "cases"), name, ignored
    ) if (file.counts->wants(file.label(name))) labels.push_back(file.label(name));
    return labels;
}

void run_file(KvFile *file, const std::string &data)
{
    const std::string stem = file->name.substr(0, file->name.find('_'));
    const Group *group = nullptr;
    for (const Group &one : groups)
        if (stem == one.stem) group = &one;
    if (!json_is_object(json_object_get(file->entry, "cases")) ||
        !json_is_object(json_object_get(file->entry, "tensors")))
        throw Broken("index.json has no cases and tensors for it");
    const std::vector<std::string> labels = wanted_cases(*file);
    if (group == nullptr || group->run == nullptr) {
        for (const std::string &label : labels)
            file->counts->skip(
                label, group == nullptr ? "no group of cases of this name is known" : group->absent
            );
        return;
    }
    std::string why;
    if (file->tensors.open(data, &why))
        group->run(file);
    else if (!labels.empty() || file->counts->filter.find(file->label("")) != std::string::npos)
        throw Broken(why); /* else the filter asks for nothing that this file is known to have */
}

void run_index(const std::string &path, Counts *counts)
{
    const Document index(path);
    const json_t *const files = index["files"];
    if (!json_is_object(files))
        return counts->skip(path, "no index of reference values: there is no object \"files\"");
    const char *name;
    const json_t *entry;
    json_object_foreach(const_cast<json_t *>(files), name, entry)
    {
        const std::string data = folder_of(path) + "/" + name;
        KvFile file = { std::filesystem::path(name).stem().string(), {}, entry, counts };
        counts->known.insert(data);
        try {
            run_file(&file, data);
        } catch (const std::exception &error) {
            counts->fail(std::string("kv/") + name, error.what());
        }
    }
}

} // namespace

Tolerance KvFile::tolerance(const std::string &tensor) const
{
    const json_t *const tol = json_object_get(fields(tensor), "tol");
    if (json_is_object(tol))
        return { number_at(tol, "rel", 0), number_at(tol, "abs", 0),
                 number_at(tol, "rel_to_max", 0) };
    if (string_at(fields(tensor), "tol") != "exact")
        throw Broken("index.json has no tolerance for " + tensor);
    return {};
}

void run_kv(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "index.json")) {
        counts->known.insert(path);
        try {
            run_index(path, counts);
        } catch (const std::exception &error) {
            counts->fail("kv", error.what());
        }
    }
}

} // namespace golden
