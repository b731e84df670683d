/* .ci/tidy.h - what the analyzer cannot see in another file: an error's code is the one that was
 * given, never OK. Included before each file that .ci/tidy reads. */
#pragma once
#include "engine/base/error.h"

#define weir_error_set(error, code, ...) ((void)(error), (code))
#define weir_error_prefix(error, code, ...) ((void)(error), (code))
