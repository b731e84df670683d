// The seeds of session_fuzz reach every section: a seed that is refused early leaves the rest of
// the reader to chance.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/fuzz/session_probe.h"

namespace {

const std::filesystem::path corpus = "tests/fuzz/corpus/session";

std::string bytes_of(const std::filesystem::path &path)
{
    std::ifstream file(path, std::ios::binary);
    return { std::istreambuf_iterator<char>(file), {} };
}

/* The reader takes no links, and those of a test's runfiles are. */
weir_status read_copy(const std::string &bytes, int *n_sections, weir_error *error)
{
    const std::string path = testing::TempDir() + "copy.session";
    std::ofstream(path, std::ios::binary) << bytes;
    const weir_status status = session_probe_read(path.c_str(), bytes.size(), n_sections, error);
    std::filesystem::remove(path);
    return status;
}

TEST(SessionSeeds, AreReadToTheirEnds)
{
    std::set<std::string> whole;
    for (const auto &entry : std::filesystem::directory_iterator(corpus)) {
        weir_error error = {};
        int n_sections = 0;
        const weir_status status = read_copy(bytes_of(entry.path()), &n_sections, &error);
        if (entry.path().stem() == "foreign") {
            EXPECT_EQ(status, WEIR_EMISMATCH) << error.text;
            EXPECT_EQ(n_sections, SESSION_PROBE_SECTIONS - 3)
                << "all but the layers and the pages, which are of another size, and what follows";
            continue;
        }
        EXPECT_EQ(status, WEIR_OK) << entry.path() << ": " << error.text;
        const bool is_cut = entry.path().stem() == "cut";
        EXPECT_EQ(n_sections, is_cut ? SESSION_PROBE_CUT_SECTIONS : SESSION_PROBE_SECTIONS)
            << entry.path();
        whole.insert(entry.path().stem());
    }
    EXPECT_EQ(
        whole, (std::set<std::string>{ "automatic", "cut", "dense", "hybrid", "state", "window" })
    );
}

/* A flipped bit in any section stops the reading there and not before: each of them is really
 * read. */
void flip(const char *name, const std::vector<int> &sections)
{
    const std::string bytes = bytes_of(corpus / name);
    for (size_t i = 0; i < sections.size(); i++) { /* in the order of reading */
        const size_t at = 280 + 40 * (size_t)sections[i];
        uint64_t offset = 0, size = 0;
        for (size_t b = 8; b-- > 0;) {
            offset = offset << 8 | (unsigned char)bytes[at + 8 + b];
            size = size << 8 | (unsigned char)bytes[at + 16 + b];
        }
        if (size == 0) continue;
        ASSERT_LT(offset, bytes.size());
        std::string changed = bytes;
        changed[offset] = (char)(changed[offset] ^ 1);
        weir_error error = {};
        int n_sections = 0;
        EXPECT_EQ(read_copy(changed, &n_sections, &error), WEIR_EFORMAT) << error.text;
        EXPECT_EQ(n_sections, (int)i);
    }
}
TEST(SessionSeeds, HaveBytesInEverySection)
{
    flip("hybrid.session", { 0, 1, 2, 3, 4, 5 });
    flip("window.session", { 0, 1, 2, 3, 4, 5, 6 });
    flip("cut.session", { 0, 1, 2, 3, 4, 7, 8, 9, 5, 6 });
}

} // namespace
