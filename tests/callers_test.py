#!/usr/bin/env python3
"""callers.py finds what has no caller, and takes no use for a declaration."""
import sys
import unittest

sys.dont_write_bytecode = True  # no __pycache__ in the tree
import callers  # noqa: E402

HEADER = """/* a.h - an example */
#ifdef __cplusplus
extern "C" {
#endif
/* Opens. */
WEIR_MUST_CHECK weir_status
weir_a_open(weir_a **out, int (*grow)(void *user), weir_error *error);
/* For tests: its state.
 * Not NULL. */
int weir_a_state(const weir_a *a); /* of the last call */
int weir_a_count(const weir_a *a);

typedef int (*weir_a_visitor)(void *user, int weir_a_number);
static inline int weir_a_twice(int n) { return 2 * n; }
#define WEIR_A(name) int weir_a_##name##_is_valid(void);
int weir_a_x_is_valid(void);
#ifdef __cplusplus
}
#endif
"""
SOURCE = """#include "a.h"
weir_status weir_a_open(weir_a **out, int (*grow)(void *user), weir_error *error)
{
    return grow(NULL); /* weir_a_count(a) */
}
int weir_a_state(const weir_a *a) { return 1; }
int weir_a_count(const weir_a *a) { return 1; }
int weir_a_x_is_valid(void) { return 1; }
"""


class Callers(unittest.TestCase):
    def problems(self, *uses, header=HEADER):
        texts = {"a.h": header, "a.c": SOURCE}
        texts.update(("b%d.c" % i, use) for i, use in enumerate(uses))
        return callers.check(texts)[1]

    def test_each_needs_a_caller(self):
        self.assertEqual(self.problems(), ["a.h:7: weir_a_open has no caller",
                                           "a.h:14: weir_a_twice has no caller"])
        self.assertEqual(self.problems("int f(void) { return weir_a_open(0, 0, 0); }",
                                       "int (*const table[])(int) = { weir_a_twice };"), [])

    def test_texts_are_no_callers(self):
        self.assertEqual(len(self.problems("/* weir_a_open(a) */ // weir_a_twice",
                                           'const char *const name = "weir_a_open(";')), 2)

    def test_declarations_are_no_callers(self):
        self.assertEqual(len(self.problems("weir_status weir_a_open(weir_a **, void *, void *);",
                                           "static inline int weir_a_twice(int n);")), 2)

    def test_what_is_for_tests_has_none(self):
        self.assertEqual(self.problems("int f(void) { return weir_a_open(0, weir_a_twice, 0); }",
                                       "int g(void) { return weir_a_count(0); }"),
                         ["a.h:11: weir_a_count is called, and said to be for tests"])
        alone = HEADER.replace("int weir_a_count", "\nint weir_a_count")
        self.assertEqual(self.problems("int f(void) { return weir_a_open(0, weir_a_twice, 0); }",
                                       header=alone), ["a.h:12: weir_a_count has no caller"])

    def test_the_library_is_called_by_others(self):
        self.assertEqual(callers.check({"include/weir.h": "int weir_b(void);",
                                        "b.h": "int weir_b(void);",
                                        "b.c": "int weir_b(void) { return 1; }"})[1], [])


if __name__ == "__main__":
    unittest.main()
