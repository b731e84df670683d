"""What a hardened program for x86-64 looks like, by its ELF file. Reads the file itself: readelf is
not on every machine.

program.py PROGRAM...     one line for each check, "N passed, N failed" at the end
"""

import struct
import subprocess
import sys
import tempfile

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_STACK, PT_RELRO = 1, 2, 4, 0x6474E551, 0x6474E552
(
    DT_NEEDED,
    DT_STRTAB,
    DT_SYMTAB,
    DT_RPATH,
    DT_TEXTREL,
    DT_BIND_NOW,
    DT_RUNPATH,
    DT_FLAGS,
    DT_FLAGS_1,
) = (1, 5, 6, 15, 22, 24, 29, 30, 0x6FFFFFFB)
X, W = 1, 2
SHT_SYMTAB = 2
ENDBR64 = b"\xf3\x0f\x1e\xfa"


class Program:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:5] != b"\x7fELF\x02":
            raise ValueError(f"{path}: no 64-bit ELF file")
        self.type, self.entry = (
            struct.unpack_from("<H", self.data, 16)[0],
            struct.unpack_from("<Q", self.data, 24)[0],
        )
        offset, size, n = struct.unpack_from("<Q", self.data, 32)[0], *struct.unpack_from(
            "<HH", self.data, 54
        )
        self.segments = [
            struct.unpack_from("<IIQQQQQQ", self.data, offset + i * size) for i in range(n)
        ]
        self.dynamic = {}
        self.imports = set()
        for kind, _, at, _, _, length, _, _ in self.segments:
            if kind == PT_DYNAMIC:
                for i in range(at, at + length, 16):
                    tag, value = struct.unpack_from("<QQ", self.data, i)
                    self.dynamic.setdefault(tag, value)
        if DT_SYMTAB in self.dynamic:
            self.read_imports()

    def place(self, address):
        for kind, _, at, virtual, _, length, _, _ in self.segments:
            if kind == PT_LOAD and virtual <= address < virtual + length:
                return at + address - virtual
        raise ValueError(f"address {address:#x} is in no segment")

    def read_imports(self):
        """The dynamic symbols, which end where their names begin in every linker's layout that has
        them side by side.
        """
        symbols, names = self.place(self.dynamic[DT_SYMTAB]), self.place(self.dynamic[DT_STRTAB])
        for i in range(symbols + 24, len(self.data) - 24, 24):
            name, info, _, section = struct.unpack_from("<IBBH", self.data, i)
            end = self.data.find(b"\0", names + name)
            if info >> 4 > 2 or info & 15 > 10:
                break
            if section == 0:
                self.imports.add(self.data[names + name : end].decode(errors="replace"))

    def functions(self):
        """Address by name: global functions with a definition, without kernels and the C library's
        start.
        """
        table, size, n = struct.unpack_from("<Q", self.data, 40)[0], *struct.unpack_from(
            "<HH", self.data, 58
        )
        sections = [
            struct.unpack_from("<IIQQQQIIQQ", self.data, table + i * size) for i in range(n)
        ]
        found = {}
        for section in sections:
            if section[1] != SHT_SYMTAB:
                continue
            names = sections[section[6]][4]
            for i in range(section[4], section[4] + section[5], 24):
                name, info, _, where, address = struct.unpack_from("<IBBHQ", self.data, i)
                text = self.data[names + name : self.data.find(b"\0", names + name)].decode(
                    errors="replace"
                )
                if info == 0x12 and where != 0 and not text.startswith(("_", "weir_k_")):
                    found[text] = address
        return found

    def of_kind(self, kind):
        return [segment for segment in self.segments if segment[0] == kind]


def is_cet(program):
    """Every global function that is not of a kernel, as kernels go without and are called by
    address that the program itself holds.
    """
    functions = program.functions()
    return "main" in functions and all(
        program.data.startswith(ENDBR64, program.place(address)) for address in functions.values()
    )


CHECKS = [
    ("position-independent", lambda p: p.type == 3),
    (
        "no segment that is writable and executable",
        lambda p: not any(s[1] & X and s[1] & W for s in p.of_kind(PT_LOAD)),
    ),
    (
        "a stack that is not executable",
        lambda p: bool(p.of_kind(PT_STACK)) and not any(s[1] & X for s in p.of_kind(PT_STACK)),
    ),
    ("relocations are read-only", lambda p: bool(p.of_kind(PT_RELRO))),
    (
        "symbols are bound at start",
        lambda p: DT_BIND_NOW in p.dynamic
        or p.dynamic.get(DT_FLAGS, 0) & 8
        or p.dynamic.get(DT_FLAGS_1, 0) & 1,
    ),
    (
        "no relocation in code",
        lambda p: DT_TEXTREL not in p.dynamic and not p.dynamic.get(DT_FLAGS, 0) & 4,
    ),
    (
        "no path of libraries of its own",
        lambda p: DT_RPATH not in p.dynamic and DT_RUNPATH not in p.dynamic,
    ),
    ("stack protector", lambda p: "__stack_chk_fail" in p.imports),
    (
        "checked functions of the C library",
        lambda p: any(n.startswith("__") and n.endswith("_chk") for n in p.imports),
    ),
    ("functions begin with endbr64", is_cet),
]

SOURCE = """#include <stdio.h>
#include <string.h>
int other(char *to, const char *from)
{
    char text[64];
    strcpy(text, from);
    strcpy(to, text);
    return puts(to);
}
int main(int n, char **v) { char text[32]; return other(text, v[n - 1]); }
"""
GOOD = (
    "-O2 -fPIE -pie -D_FORTIFY_SOURCE=3 -fstack-protector-strong -fcf-protection "
    "-Wl,-z,relro,-z,now,-z,noexecstack -fuse-ld=bfd"
).split()
# A check, and flags or a piece of assembly that take away what it looks for.
BAD = [
    ("position-independent", ["-fno-pie", "-no-pie"]),
    ("no segment that is writable and executable", ".section .both,\"awx\",@progbits\n.quad 1\n"),
    ("a stack that is not executable", ["-Wl,-z,execstack"]),
    ("relocations are read-only", ["-Wl,-z,norelro"]),
    ("symbols are bound at start", ["-Wl,-z,lazy"]),
    ("no relocation in code", ".text\nendbr64\nmovabsq $puts, %rax\nret\n"),
    ("no path of libraries of its own", ["-Wl,-rpath,/nowhere"]),
    ("stack protector", ["-fno-stack-protector"]),
    ("checked functions of the C library", ["-U_FORTIFY_SOURCE"]),
    ("functions begin with endbr64", ["-fcf-protection=none"]),
]


def compile_tiny(folder, flags, more=()):
    with open(folder + "/tiny.c", "w") as file:
        file.write(SOURCE)
    out = folder + "/tiny"
    subprocess.run(
        ["/usr/lib/llvm-19/bin/clang", "-w", *GOOD, *flags, folder + "/tiny.c", *more, "-o", out],
        check=True,
    )
    return Program(out)


def spoil(folder, how):
    if isinstance(how, list):
        return compile_tiny(folder, how)
    with open(folder + "/more.s", "w") as file:
        file.write(how + ".section .note.GNU-stack,\"\",@progbits\n")
    return compile_tiny(folder, ["-Wl,-z,notext"], [folder + "/more.s"])


def main():
    passed = failed = 0

    def tell(good, text):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        if not good:
            print("FAILED: " + text)

    checks = dict(CHECKS)
    with tempfile.TemporaryDirectory() as folder:
        hardened = compile_tiny(folder, [])
        for name, check in CHECKS:
            tell(check(hardened), f"a tiny hardened program: {name}")
        for name, how in BAD:
            tell(
                not checks[name](spoil(folder, how)), f"a tiny program that lacks it passes: {name}"
            )
    for path in sys.argv[1:]:
        program = Program(path)
        for name, check in CHECKS:
            tell(check(program), f"{path}: {name}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
