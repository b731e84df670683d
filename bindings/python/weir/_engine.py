"""Engines and sequences."""

import array
import ctypes
import json
import os
import queue
import threading
import weakref
from collections import namedtuple
from ctypes import byref, c_int32, c_size_t, c_void_p

from ._library import (CError, CInfo, CParams, CUsage, ECANCELED, TOKEN, Error, check, lib,
                       take_text, take_tokens)

Info = namedtuple("Info", [name for name, _ in CInfo._fields_[1:]])
Piece = namedtuple("Piece", ["token", "text"])  # token None: an incomplete character

_BOS, _SPECIAL = 1, 2
_PARAMS = {name for name, _ in CParams._fields_[1:]}


class _Closing:
    """What has `close`: ends with a `with` statement, or when it is collected."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()


def _c_tokens(tokens):
    tokens = list(tokens)
    return (c_int32 * len(tokens))(*tokens), len(tokens)


def _text_of(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _fields(struct):
    """Returns the fields as a dict, without `size`."""
    values = {name: getattr(struct, name) for name, _ in struct._fields_[1:]}
    return {name: value.decode() if isinstance(value, bytes) else value
            for name, value in values.items()}


class Engine(_Closing):
    """One model under one memory budget.

    model: a GGUF or safetensors file, a checkpoint folder or the name of a model of `weir get`;
    None: the demo model, unless config_file or config names one. memory: "4GiB", the key
    memory.host. config: further keys.
    """

    def __init__(self, model=None, *, memory=None, config=None, config_file=None):
        self._handle = None
        self._sequences = weakref.WeakSet()
        keys = dict(config or {})
        if model is not None:
            keys["model.path"] = model
        if memory is not None:
            keys["memory.host"] = memory
        handle = c_void_p()
        made = lib.weir_config_new()
        if not made:
            raise MemoryError("no memory for a configuration")
        try:
            if config_file is not None:
                check(lib.weir_config_read, made, os.fsencode(config_file))
            for key, value in keys.items():
                check(lib.weir_config_set, made, key.encode(), os.fsencode(_text_of(value)))
            check(lib.weir_engine_open, byref(handle), made)
        finally:
            lib.weir_config_free(made)
        self._handle = handle

    def close(self):
        """Frees the engine's sequences and its memory. Idempotent."""
        for sequence in list(self._sequences):
            sequence.close()
        if self._handle is not None:
            lib.weir_engine_close(self._handle)
            self._handle = None

    @property
    def _open(self):
        if self._handle is None:
            raise ValueError("the engine is closed")
        return self._handle

    @property
    def info(self):
        """model, architecture, parameters, context_length, vocab_size and more."""
        info = CInfo(size=ctypes.sizeof(CInfo))
        lib.weir_engine_get_info(self._open, byref(info))
        return Info(**_fields(info))

    def memory(self):
        """{"host": {"limit", "used", "peak", "accounts": {...}}, "device": ..., "disk": ...}"""
        out = c_void_p()
        check(lib.weir_memory_json, self._open, byref(out))
        return json.loads(take_text(out))

    def tokenize(self, text, *, bos=True, special=False):
        """Returns token ids. bos: prepend the beginning-of-sequence token, if the model uses one.
        special: parse special tokens in the text; do not use it for user input."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        out, n = ctypes.POINTER(c_int32)(), c_size_t()
        flags = (_BOS if bos else 0) | (_SPECIAL if special else 0)
        check(lib.weir_tokenize, self._open, data, len(data), flags, byref(out), byref(n))
        return take_tokens(out, n.value)

    def detokenize(self, tokens):
        out, length = c_void_p(), c_size_t()
        check(lib.weir_detokenize, self._open, *_c_tokens(tokens), byref(out), byref(length))
        return take_text(out, length.value)

    def _render(self, messages, variables, with_tokens):
        chat = {"messages": messages, **variables} if isinstance(messages, list) else messages
        data = json.dumps(chat).encode()
        out, n, text = ctypes.POINTER(c_int32)(), c_size_t(), c_void_p()
        check(lib.weir_render_chat, self._open, data, len(data),
              byref(out) if with_tokens else None, byref(n), None if with_tokens else byref(text))
        return take_tokens(out, n.value) if with_tokens else take_text(text)

    def render_chat(self, messages, **variables):
        """Returns the prompt tokens of a chat. variables: tools=[...], enable_thinking=False ..."""
        return self._render(messages, variables, True)

    def render_chat_text(self, messages, **variables):
        return self._render(messages, variables, False)

    def is_eog(self, token):
        """Returns True if the token ends an answer."""
        return lib.weir_token_is_eog(self._open, token) != 0

    def sequence(self, tokens=None):
        """Returns a new sequence, synced to `tokens` if given."""
        made = Sequence(self)
        if tokens is not None:
            made.sync(tokens)
        return made


class Sequence(_Closing):
    """A list of tokens and its state; created by Engine.sequence()."""

    def __init__(self, engine):
        self._handle = None
        handle = c_void_p()
        check(lib.weir_sequence_new, byref(handle), engine._open)
        self._engine = engine
        self._handle = handle
        self._worker = None
        engine._sequences.add(self)

    def close(self):
        if self._handle is None:
            return
        self._stop()
        lib.weir_sequence_free(self._handle)
        self._handle = None

    @property
    def _open(self):
        if self._handle is None:
            raise ValueError("the sequence is closed")
        if self._worker is not None:
            raise RuntimeError("an answer is being streamed: exhaust the generator, or close it")
        return self._handle

    # ---- blocking calls, which Ctrl-C interrupts ----
    def _start(self, call, done):
        """Runs call() on a thread, which calls done(exception or None) at the end."""
        def work():
            failure = None
            try:
                call()
            except BaseException as error:  # for the waiting thread
                failure = error
            done(failure)
        self._worker = threading.Thread(target=work, daemon=True)
        self._worker.start()

    def _stop(self):
        worker = self._worker
        if worker is not None:
            while worker.is_alive():  # a call that has not begun ignores a cancellation
                self.cancel()
                worker.join(0.05)
            self._worker = None

    def _pieces(self, call, pieces):
        """Runs call() on a thread; yields what it puts into the queue, raises what it raised."""
        self._open  # nothing streams
        self._start(call, pieces.put)
        try:
            while isinstance(piece := pieces.get(), Piece):
                yield piece
            if piece is not None:
                raise piece
        finally:
            self._stop()

    def _wait(self, function, *arguments):
        handle = self._open
        for _ in self._pieces(lambda: check(function, handle, *arguments), queue.SimpleQueue()):
            pass

    def sync(self, tokens):
        """Makes the sequence hold exactly these tokens; computes what is not cached."""
        self._wait(lib.weir_sequence_sync, *_c_tokens(tokens))

    @property
    def tokens(self):
        n = c_size_t()
        tokens = lib.weir_sequence_tokens(self._open, byref(n))
        return tokens[:n.value] if n.value > 0 else []

    def __len__(self):
        return len(self.tokens)

    def logits(self):
        """Returns the logits of the next token, [vocab_size] floats: a numpy array if numpy is
        installed, else a memoryview. A copy."""
        row, n = ctypes.POINTER(ctypes.c_float)(), c_size_t()
        self._wait(lib.weir_sequence_logits, byref(row), byref(n))
        data = ctypes.string_at(row, n.value * ctypes.sizeof(ctypes.c_float))
        try:
            import numpy
        except ImportError:
            return memoryview(array.array("f", data))
        return numpy.frombuffer(data, dtype=numpy.float32).copy()

    def _params(self, given):
        params = CParams()
        lib.weir_sampling_params_init(byref(params), ctypes.sizeof(params), self._engine._open)
        for name, value in given.items():
            if name not in _PARAMS:
                raise TypeError(f"no parameter {name}; there are " + ", ".join(sorted(_PARAMS)))
            setattr(params, name, value)
        return params

    def stream(self, **params):
        """Continues the sequence and yields a Piece for each token. Closing the generator ends the
        answer. params: max_tokens, temperature, top_p, top_k, min_p, seed ..."""
        handle, wanted, pieces = self._open, self._params(params), queue.SimpleQueue()

        def on_token(_, token, text, length):
            pieces.put(Piece(token if token >= 0 else None,
                             ctypes.string_at(text, length).decode("utf-8", "replace")))
            return 0

        callback = TOKEN(on_token)
        return self._pieces(lambda: check(lib.weir_generate, handle, byref(wanted), callback, None),
                            pieces)

    def generate(self, **params):
        """Returns the text of the whole answer; params as for stream()."""
        return "".join(piece.text for piece in self.stream(**params))

    @property
    def finish_reason(self):
        """Why the last answer ended: "stop", "length", "cancelled" or ""."""
        return lib.weir_finish_reason(self._open).decode()

    def cancel(self):
        """Cancels the running call with this sequence. Thread-safe."""
        if self._handle is not None:
            lib.weir_sequence_cancel(self._handle)

    def save(self, path):
        """Writes the tokens and everything computed for them to a file."""
        self._wait(lib.weir_sequence_save, os.fsencode(path))

    def restore(self, path):
        """Reads the tokens and their computed state from a file."""
        self._wait(lib.weir_sequence_restore, os.fsencode(path))

    def usage(self):
        """The last call's prompt_tokens, cached_tokens, computed_tokens, kept_rows and more."""
        usage = CUsage(size=ctypes.sizeof(CUsage))
        lib.weir_sequence_usage(self._open, byref(usage))
        return _fields(usage)
