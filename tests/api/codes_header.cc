#include <cstddef>

#include "include/weir.h"
#include "tests/api/codes.h"

std::string codes_of_header()
{
    static const struct {
        const char *name;
        int code;
    } codes[] = { { "OK", WEIR_OK },
                  { "EINVAL", WEIR_EINVAL },
                  { "ENOMEM", WEIR_ENOMEM },
                  { "EIO", WEIR_EIO },
                  { "EFORMAT", WEIR_EFORMAT },
                  { "EMISMATCH", WEIR_EMISMATCH },
                  { "EUNSUPPORTED", WEIR_EUNSUPPORTED },
                  { "EDEVICE", WEIR_EDEVICE },
                  { "EFULL", WEIR_EFULL },
                  { "ECANCELED", WEIR_ECANCELED },
                  { "ENOTFOUND", WEIR_ENOTFOUND },
                  { "ECONFIG", WEIR_ECONFIG } };
    std::string text;
    for (const auto &[name, code] : codes) text += std::string(name) + std::to_string(code) + " ";
    return text;
}

std::string error_of_header()
{
    return std::to_string(sizeof(weir_error)) + " " + std::to_string(offsetof(weir_error, text)) +
           " " + std::to_string(sizeof(weir_status));
}
