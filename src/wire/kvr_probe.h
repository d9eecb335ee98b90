/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Answers of an engine to the router's own probe.
 *
 *     GET /v1/models           {"data":[{"id":"m","owned_by":"vllm"}]}
 *     GET /version, …          {"version":"0.32.0"}
 *     GET /server_info         of SGLang, see kvr_probe_windows()
 *     POST /tokenize           {"tokens":[1,2]}
 *     POST <path>/render       {"token_ids":[1,2]}, or a list of such objects
 *
 * Texts are an engine's: anything may be in them.  Nothing is kept.
 */


#ifndef KVR_PROBE_H_INCLUDED
#define KVR_PROBE_H_INCLUDED


#include "kvr_forms.h"
#include "kvr_json.h"


#define KVR_PROBE_MODEL_MAX  256     /* bytes of a model's name, as written */


/*
 * The first model of a list, as it is written there, and the engine that has
 * made the list, by the model's owner.  False: no such list, or a name of over
 * KVR_PROBE_MODEL_MAX bytes.
 */
bool kvr_probe_model(const char *text, size_t len, kvr_json_text_t *id,
    kvr_engine_kind_t *engine);

/*
 * The version, terminated.  False: there is none, or it is not of letters,
 * digits and ".+-_" of less than size bytes.
 */
bool kvr_probe_version(const char *text, size_t len, char *out, size_t size);

/*
 * Does SGLang say that it has layers with sliding windows besides those of
 * full attention?  Its events are of the latter alone.
 *
 *     {"internal_states":[{"memory_usage":{"token_capacity_swa":4096}}]}
 */
bool kvr_probe_windows(const char *text, size_t len);

/*
 * Has the object, or the first object of the list, token ids in that field, at
 * least one?
 */
bool kvr_probe_ids(const char *text, size_t len, const char *field);


#endif /* KVR_PROBE_H_INCLUDED */
