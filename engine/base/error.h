/* engine/base/error.h - error messages in memory of the caller. A message is written once, where
 * the fact is known; callers pass the code on. */
#pragma once
#include "kernels/abi/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_error {
    weir_status code;
    char text[1000]; /* says what, where and what to do; UTF-8, no newline at the end */
} weir_error;

/* Formats the message into `error` (may be NULL) and returns `code`, so a failing function ends in
 * one line. Long messages are truncated. */
WEIR_MUST_CHECK weir_status
weir_error_set(weir_error *error, weir_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Prepends "prefix: " to a message that a callee wrote. Returns error->code. */
WEIR_MUST_CHECK weir_status
weir_error_prefix(weir_error *error, weir_status code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const char *weir_status_text(weir_status status);

/* Checks an internal invariant: prints file, line and text, then aborts. Never used to reject bad
 * input. */
#define WEIR_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : weir_assert_failed(#condition, __FILE__, __LINE__))
#ifdef __cplusplus
[[noreturn]]
#else
_Noreturn
#endif
void weir_assert_failed(const char *condition, const char *file, int line);
/* Checks an invariant in a hot loop, in debug builds only. */
#ifdef NDEBUG
#define WEIR_DASSERT(condition) ((void)sizeof(!(condition)))
#else
#define WEIR_DASSERT(condition) WEIR_ASSERT(condition)
#endif

#ifdef __cplusplus
}
#endif
