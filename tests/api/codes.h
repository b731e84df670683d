/* Status codes with their texts, and the layout of weir_error: as include/weir.h has them, and as
 * the engine's own headers do. */
#pragma once
#include <string>

std::string codes_of_header(), codes_of_engine(), error_of_header(), error_of_engine();
