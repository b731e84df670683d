/* engine/cli/open.h - opening the engine for a command, with a progress bar where somebody looks. */
#pragma once
#include "engine/cli/command.h"
#include "engine/weir.h"

/* The exit code; *out is set when it is 0. */
int weir_open(weir_engine **out, const weir_config *config, bool with_service);

/* While one of these lives, Ctrl-C sets weir_interrupted instead of ending the program. */
extern volatile int weir_interrupted;
void                weir_catch_interrupts(void);

/* The configuration's [sampling] for one request; seed -1 draws a new one. */
weir_sampling weir_sampling_of(const weir_config *config);
