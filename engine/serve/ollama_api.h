/* engine/serve/ollama_api.h - Ollama's API: what its files share. */
#pragma once
#include "engine/serve/generation.h"
#include "engine/serve/ollama_request.h"

enum { WEIR_OLLAMA_TIME = 32 };

/* Seconds since 1970 as Ollama writes times, in UTC. */
void weir_ollama_time(char out[WEIR_OLLAMA_TIME], int64_t unix_seconds);
/* Members of an open object that every reply about a text has. */
void weir_ollama_head_write(weir_json_out *json, const char *model, int64_t unix_seconds);
