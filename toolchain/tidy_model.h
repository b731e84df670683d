/* toolchain/tidy_model.h - what the analyser cannot see across files: weir_error_set returns the
 * code that it is given, never WEIR_OK. Included before each file by tidy.sh, and by nothing
 * else. */
#include "engine/base/error.h"

#define weir_error_set(error, code, ...) ((void)weir_error_set(error, code, __VA_ARGS__), (code))
