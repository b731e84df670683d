/* tests/golden/module_golden.cc - single operations (modules.json): which group of tensors is which
 * operation, and the groups that have no counterpart in the engine. */
#include "tests/golden/module_golden.h"

#include <cstring>
#include <filesystem>

namespace golden {
namespace {

struct Operation {
    const char *group; /* "G8" takes "G8" and "G8_dv" */
    /* NULL: the engine has no such operation, `absent` says which */
    void (*run)(Modules *, const std::string &);
    const char *absent;
};

const Operation operations[] = {
    { "G1", run_norm, nullptr },
    { "G2", run_gated_norm, nullptr },
    { "G3", run_rotation, nullptr },
    { "G4", run_three_positions, nullptr },
    { "G5", run_convolution, nullptr },
    { "G6", run_gates, nullptr },
    { "G7", run_unit_length, nullptr },
    { "G8", run_recurrence, nullptr },
    { "G9", run_long_recurrence, nullptr },
    { "G12", run_feed_forward, nullptr },
    { "G16", run_head_order, nullptr },
    { "G19", run_llama3_scaling, nullptr },
    { "G21", run_yarn, nullptr },
    { "G22", run_latents, nullptr },
    { "G23", run_router, nullptr },
    { "G25", run_eight_bit, nullptr },
};

const Operation *operation_of(const std::string &group)
{
    const std::string number = group.substr(0, group.find('_'));
    for (const Operation &operation : operations)
        if (number == operation.group) return &operation;
    return nullptr;
}

void run_group(Modules *m, const std::string &group)
{
    const Operation *const operation = operation_of(group);
    if (operation == nullptr) return m->skip(group + ".", "no operation of this name is known");
    if (operation->run == nullptr) return m->skip(group + ".", operation->absent);
    try {
        operation->run(m, group);
    } catch (const std::exception &error) { /* while looking for cases, before any began */
        m->counts->fail("modules/" + group, error.what());
    }
}

/* Tensors that the JSON promises and the file does not hold, and values that no case compared. */
void account(Modules *m)
{
    const char *name;
    const json_t *ignored;
    json_object_foreach(
        const_cast<json_t *>(m->values.info), name, ignored
    ) if (!m->values.tensors.has(name))
        m->counts->fail(std::string("modules/") + name, "is in the JSON and not in the file");
    if (!m->counts->filter.empty()) return;
    for (const std::string &left : m->values.left())
        m->counts->skip("modules/" + left, "no case compares these values");
}

void run_file(const std::string &path, Counts *counts)
{
    const Document document(path);
    const std::string data = std::filesystem::path(path).replace_extension(".safetensors").string();
    Modules m = { {}, document["dims"], counts };
    std::string why;
    if (!m.values.tensors.open(data, &why)) throw Broken(why);
    m.values.info = document["tensors"];
    if (!json_is_object(m.values.info)) throw Broken(path + ": there is no object \"tensors\"");
    std::set<std::string> groups;
    for (const std::string &name : m.values.tensors.names())
        groups.insert(name.substr(0, name.find('.')));
    for (const std::string &group : groups) run_group(&m, group);
    account(&m);
}

} // namespace

void Modules::skip(const std::string &prefix, const std::string &why)
{
    for (const std::string &name : values.tensors.names(prefix)) values.mark(name);
    const std::string name =
        "modules/" + (prefix.back() == '.' ? prefix.substr(0, prefix.size() - 1) : prefix);
    if (counts->wants(name)) counts->skip(name, why);
}

void run_modules(const std::string &folder, Counts *counts)
{
    for (const std::string &path : find_files(folder, "modules.json")) {
        counts->known.insert(path);
        counts->known.insert(std::filesystem::path(path).replace_extension(".safetensors").string()
        );
        try {
            run_file(path, counts);
        } catch (const std::exception &error) {
            counts->fail("modules", error.what());
        }
    }
}

} // namespace golden
