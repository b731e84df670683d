"""Loads the library, declares the functions of weir.h, turns failures into exceptions."""

import ctypes
import os
from ctypes import (CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_float,
                    c_int, c_int32, c_int64, c_size_t, c_void_p)

VERSION = "0.1"  # major and minor version of a compatible library

STATUS = ["OK", "EINVAL", "ENOMEM", "EIO", "EFORMAT", "EMISMATCH", "EUNSUPPORTED", "EDEVICE",
          "EFULL", "ECANCELED", "ENOTFOUND", "ECONFIG"]
ECANCELED = STATUS.index("ECANCELED")


class Error(RuntimeError):
    """A call failed. code: the weir_status; name: as in weir.h, without "WEIR_"."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code
        self.name = STATUS[code] if 0 <= code < len(STATUS) else str(code)


class CError(Structure):
    _fields_ = [("code", c_int), ("text", c_char * 1000)]


class CInfo(Structure):
    _fields_ = [("size", c_size_t), ("model", c_char_p), ("architecture", c_char_p),
                ("parameters", c_int64), ("context_length", c_int32), ("vocab_size", c_int32),
                ("max_sequences", c_int32), ("kv_bytes_per_token", c_int64),
                ("state_bytes", c_int64)]


class CParams(Structure):
    _fields_ = [("size", c_size_t), ("max_tokens", c_int32), ("min_tokens", c_int32),
                ("ignore_eos", c_int32), ("top_k", c_int32), ("temperature", c_float),
                ("top_p", c_float), ("min_p", c_float), ("repetition_penalty", c_float),
                ("presence_penalty", c_float), ("frequency_penalty", c_float), ("seed", c_int64)]


class CUsage(Structure):
    _fields_ = [("size", c_size_t), ("prompt_tokens", c_int64), ("cached_tokens", c_int64),
                ("computed_tokens", c_int64), ("answer_tokens", c_int64), ("kept_rows", c_int64),
                ("evicted_rows", c_int64), ("kv_bytes", c_int64), ("prefill_seconds", c_double),
                ("decode_seconds", c_double), ("reuse", c_char_p), ("numerics", c_char_p)]


LOG = CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)
TOKEN = CFUNCTYPE(c_int, c_void_p, c_int32, c_void_p, c_size_t)

_ERROR = POINTER(CError)
_TOKENS = POINTER(c_int32)
_FUNCTIONS = {  # name: (result, arguments)
    "weir_version": (c_char_p, []),
    "weir_free": (None, [c_void_p]),
    "weir_log_to": (None, [LOG, c_void_p]),
    "weir_config_new": (c_void_p, []),
    "weir_config_free": (None, [c_void_p]),
    "weir_config_set": (c_int, [c_void_p, c_char_p, c_char_p, _ERROR]),
    "weir_config_read": (c_int, [c_void_p, c_char_p, _ERROR]),
    "weir_engine_open": (c_int, [POINTER(c_void_p), c_void_p, _ERROR]),
    "weir_engine_close": (None, [c_void_p]),
    "weir_engine_get_info": (None, [c_void_p, POINTER(CInfo)]),
    "weir_memory_json": (c_int, [c_void_p, POINTER(c_void_p), _ERROR]),
    "weir_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_int, POINTER(_TOKENS),
                              POINTER(c_size_t), _ERROR]),
    "weir_detokenize": (c_int, [c_void_p, _TOKENS, c_size_t, POINTER(c_void_p), POINTER(c_size_t),
                                _ERROR]),
    "weir_render_chat": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(_TOKENS), POINTER(c_size_t),
                                 POINTER(c_void_p), _ERROR]),
    "weir_token_is_eog": (c_int, [c_void_p, c_int32]),
    "weir_sequence_new": (c_int, [POINTER(c_void_p), c_void_p, _ERROR]),
    "weir_sequence_free": (None, [c_void_p]),
    "weir_sequence_sync": (c_int, [c_void_p, _TOKENS, c_size_t, _ERROR]),
    "weir_sequence_tokens": (_TOKENS, [c_void_p, POINTER(c_size_t)]),
    "weir_sequence_logits": (c_int, [c_void_p, POINTER(POINTER(c_float)), POINTER(c_size_t),
                                     _ERROR]),
    "weir_sampling_params_init": (None, [POINTER(CParams), c_size_t, c_void_p]),
    "weir_generate": (c_int, [c_void_p, POINTER(CParams), TOKEN, c_void_p, _ERROR]),
    "weir_finish_reason": (c_char_p, [c_void_p]),
    "weir_sequence_cancel": (None, [c_void_p]),
    "weir_sequence_save": (c_int, [c_void_p, c_char_p, _ERROR]),
    "weir_sequence_restore": (c_int, [c_void_p, c_char_p, _ERROR]),
    "weir_sequence_usage": (None, [c_void_p, POINTER(CUsage)]),
}


def _candidates():
    named = os.environ.get("WEIR_LIBRARY")
    if named:
        return [named]
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(folder, name) for name in ("libweir.so.0", "libweir.so")]
    return [path for path in paths if os.path.exists(path)] + ["libweir.so.0"]


def _load():
    reasons = []
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            reasons.append(str(error))
    else:
        raise ImportError("libweir.so cannot be loaded (" + "; ".join(reasons) + "); install it "
                          "with `bazel run //:install -- --prefix DIR` and set WEIR_LIBRARY to its "
                          "path")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    found = library.weir_version().decode()
    if found.split(".")[:2] != VERSION.split("."):
        raise ImportError(f"libweir.so is version {found}, this package is for {VERSION}")
    return library


lib = _load()


def check(function, *arguments):
    """Calls a function that returns a status and takes an error last. Raises Error on failure."""
    error = CError()
    code = function(*arguments, byref(error))
    if code != 0:
        raise Error(code, error.text.decode("utf-8", "replace"))


def take_text(pointer, length=None):
    """Copies and frees a string returned by the library."""
    try:
        data = ctypes.string_at(pointer) if length is None else ctypes.string_at(pointer, length)
    finally:
        lib.weir_free(pointer)
    return data.decode("utf-8", "replace")


def take_tokens(pointer, n):
    """Copies and frees tokens returned by the library."""
    try:
        return pointer[:n]
    finally:
        lib.weir_free(pointer)


def version():
    """Returns the version of the loaded library."""
    return lib.weir_version().decode()


_log = LOG()  # keeps the callback alive


def set_log(function):
    """Sends log lines to function(level, text) instead of stderr; None: back to stderr."""
    global _log
    before = _log
    if function is None:
        _log = LOG()
    else:
        _log = LOG(lambda user, level, text: function(level.decode(),
                                                      text.decode("utf-8", "replace")))
    lib.weir_log_to(_log, None)
    del before
