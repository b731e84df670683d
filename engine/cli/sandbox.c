/* engine/cli/sandbox.c - enters Landlock, then the system call filter, which would refuse to set up
 * Landlock. */
#include "engine/cli/sandbox.h"

#include <unistd.h>

enum { ABI_WITH_TCP = 4 };

weir_status weir_sandbox_enter(
    weir_sandbox_state *state, const weir_sandbox_options *options, weir_error *error
)
{
    int rules = -1;
    *state = (weir_sandbox_state){ 0 };
    WEIR_TRY(weir_landlock_open(&rules, &state->landlock, options, error));
    if (rules < 0 && options->strict)
        return weir_error_set(
            error, WEIR_EUNSUPPORTED,
            "server.sandbox = \"strict\" needs Landlock, which this kernel does not have or has "
            "disabled; boot with landlock in the parameter lsm=, or set server.sandbox to \"auto\""
        );
    if (rules >= 0) {
        const weir_status status = weir_each_thread(weir_landlock_restrict, rules, error);
        (void)close(rules);
        WEIR_TRY(status);
        state->tcp = state->landlock >= ABI_WITH_TCP;
    }
    if (!options->strict) return WEIR_OK;
    WEIR_TRY(weir_filter_enter(error));
    state->filter = true;
    return WEIR_OK;
}
