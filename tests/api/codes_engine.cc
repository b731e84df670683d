#include <cstddef>

#include "engine/base/error.h"
#include "tests/api/codes.h"

std::string codes_of_engine()
{
    std::string text;
#define X(name, code, meaning) text += std::string(#name) + std::to_string(code) + " ";
    WEIR_STATUS_MAP(X)
#undef X
    return text;
}

std::string error_of_engine()
{
    return std::to_string(sizeof(weir_error)) + " " + std::to_string(offsetof(weir_error, text)) +
           " " + std::to_string(sizeof(weir_status));
}
