/* engine/base/error.h - caller-owned error text, written once where the fact is known; callers
 * propagate the code. */
#pragma once
#include "kernels/abi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_error {
    weir_status code;
    char text[1000]; /* says what, where and what to do; UTF-8, no newline at the end */
} weir_error;

/* Fills `error` (may be NULL) and returns `code`, so that a failing function ends in one line. Long
 * texts are cut. */
WEIR_MUST_CHECK weir_status
weir_error_set(weir_error *error, weir_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before a text that a callee wrote. Returns error->code. */
WEIR_MUST_CHECK weir_status
weir_error_prefix(weir_error *error, weir_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *weir_status_text(weir_status status);

/* A broken contract of our own code: prints file, line and text, then aborts. Bad input is never an
 * assert. */
#define WEIR_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : weir_assert_failed(#condition, __FILE__, __LINE__))
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void weir_assert_failed(const char *condition, const char *file, int line);
/* Contracts in hot loops: checked in debug builds. */
#ifdef NDEBUG
#define WEIR_DASSERT(condition) ((void)sizeof(!(condition)))
#else
#define WEIR_DASSERT(condition) WEIR_ASSERT(condition)
#endif

#ifdef __cplusplus
}
#endif
