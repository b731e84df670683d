/* offload/caps.c - detects CPU features with cpuid, through the compiler's runtime (which also
 * reads XCR0). */
#include "offload/caps.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Linux grants the 8 KiB of tile registers on request, once per process; threads created later
 * inherit the permission. */
static bool tiles_permitted(void)
{
    enum {
        REQUEST_STATE_PERMISSION = 0x1023,
        TILE_DATA = 18
    }; /* ARCH_REQ_XCOMP_PERM of asm/prctl.h (Linux 5.16) */
    return syscall(SYS_arch_prctl, REQUEST_STATE_PERMISSION, TILE_DATA) == 0;
}

weir_caps weir_caps_detect(void)
{
    weir_caps caps = { 0 };
    __builtin_cpu_init();
    caps.x86_v2 = __builtin_cpu_supports("x86-64-v2") != 0;
    caps.x86_v3 = __builtin_cpu_supports("x86-64-v3") != 0;
    caps.x86_v4 = __builtin_cpu_supports("x86-64-v4") != 0;
    caps.avx_vnni = caps.x86_v3 && __builtin_cpu_supports("avxvnni");
    caps.avx512_vnni = caps.x86_v4 && __builtin_cpu_supports("avx512vnni");
    caps.avx512_bf16 = caps.x86_v4 && __builtin_cpu_supports("avx512bf16");
    const bool has_int8 = caps.avx512_vnni && __builtin_cpu_supports("amx-int8"),
               has_bf16 = caps.avx512_bf16 && __builtin_cpu_supports("amx-bf16"),
               is_permitted = (has_int8 || has_bf16) && tiles_permitted();
    caps.amx_int8 = has_int8 && is_permitted;
    caps.amx_bf16 = has_bf16 && is_permitted;
    return caps;
}

weir_caps weir_caps_limited(weir_caps caps, weir_isa isa)
{
    if (isa == WEIR_ISA_ANY) return caps;
    caps.x86_v3 = caps.x86_v3 && isa >= WEIR_ISA_V3;
    caps.x86_v4 = caps.x86_v4 && isa >= WEIR_ISA_V4;
    caps.avx_vnni = caps.avx_vnni && caps.x86_v3;
    caps.avx512_vnni = caps.avx512_vnni && caps.x86_v4;
    caps.avx512_bf16 = caps.avx512_bf16 && caps.x86_v4;
    caps.amx_int8 = caps.amx_bf16 = false;
    return caps;
}

weir_isa weir_caps_isa(const weir_caps *caps)
{
    if (caps->x86_v4) return WEIR_ISA_V4;
    if (caps->x86_v3) return WEIR_ISA_V3;
    return caps->x86_v2 ? WEIR_ISA_V2 : WEIR_ISA_ANY;
}

void weir_caps_print(char out[WEIR_CAPS_TEXT], const weir_caps *caps)
{
    static const char *const names[] = { [WEIR_ISA_ANY] = "v1",
#define X(NAME, name) [WEIR_ISA_##NAME] = name,
                                         WEIR_ISA_LEVELS(X)
#undef X
    };
    (void)snprintf(
        out, WEIR_CAPS_TEXT, "%s%s", names[weir_caps_isa(caps)],
        caps->amx_bf16      ? "+amx_bf16"
        : caps->avx512_bf16 ? "+bf16"
                            : ""
    );
}
