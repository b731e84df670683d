/* kernels/abi/status.h - the error code of every layer. 0 is success everywhere; the text is in
 * weir_error (engine/base/error.h). */
#pragma once

#define WEIR_STATUS_MAP(X)                                                                         \
    X(OK, 0, "ok")                                                                                 \
    X(EINVAL, 1, "bad argument")                                                                   \
    X(ENOMEM, 2, "out of memory")                                                                  \
    X(EIO, 3, "input or output failed")                                                            \
    X(EFORMAT, 4, "malformed input")                                                               \
    X(EMISMATCH, 5, "does not fit this model")                                                     \
    X(EUNSUPPORTED, 6, "not supported")                                                            \
    X(EDEVICE, 7, "device failed")                                                                 \
    X(EFULL, 8, "no room left in the budget")                                                      \
    X(ECANCELED, 9, "cancelled by the caller")                                                     \
    X(ENOTFOUND, 10, "not found")                                                                  \
    X(ECONFIG, 11, "bad configuration")

typedef enum weir_status {
#define X(name, code, text) WEIR_##name = (code),
    WEIR_STATUS_MAP(X)
#undef X
} weir_status;

#define WEIR_MUST_CHECK __attribute__((warn_unused_result))

/* Returns a failure to the caller; for functions that own nothing. Others use `goto done`. */
#define WEIR_TRY(call)                                                                             \
    do {                                                                                           \
        const weir_status try_status_ = (call);                                                    \
        if (try_status_ != WEIR_OK) return try_status_;                                            \
    } while (0)
