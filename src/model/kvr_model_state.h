/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A model inside, for the files of this room.
 */


#ifndef KVR_MODEL_STATE_H_INCLUDED
#define KVR_MODEL_STATE_H_INCLUDED


#include "kvr_model.h"
#include "kvr_model_file.h"
#include "../wire/kvr_tape.h"


#define KVR_MODEL_ENGINE  16            /* bytes of an engine's name */


struct kvr_model_s {
    uint32_t           users;
    bool               proven;
    char               engine[KVR_MODEL_ENGINE];
    char               digest[KVR_MODEL_SHA256];
    char               refused[KVR_MODEL_WHY];

    kvr_model_stamp_t  stamps[KVR_MODEL_FILES];
    uint32_t           nstamps;

    kvr_model_file_t   files[KVR_MODEL_FILES];  /* data NULL: was freed */
    uint32_t           nfiles;

    kvr_tokenizer_t   *tokenizer;
    uint32_t           strings;
    uint32_t           unicode;         /* of the engine's library: 14, 16 */
};


/* router.json, scanned. */

typedef struct {
    kvr_tape_t         tape;
    kvr_tape_entry_t  *entries;
    uint32_t          *ids;
} kvr_model_json_t;

/*
 * Scans a text, which must stay.  KVR_INVALID: *why says where it is no JSON.
 */
kvr_rc_t kvr_model_json_scan(kvr_model_json_t *j, const char *name,
    const char *text, size_t len, char *why);
void kvr_model_json_free(kvr_model_json_t *j);

/*
 * A string member of an object, decoded and terminated; false: it is no string
 * or has size bytes or more.
 */
bool kvr_model_json_text(const kvr_model_json_t *j, uint32_t object,
    const char *name, char *out, size_t size);

/*
 * Takes the model's engine, its files and what is kept of router.json, which
 * is m->files[0].  KVR_INVALID: *why is a sentence.
 */
kvr_rc_t kvr_model_router(kvr_model_t *m, const char *dir,
    kvr_model_json_t *j, char *why);

/* Refuses a model which engines encode by Python code of their own. */
void kvr_model_coded(kvr_model_t *m, const kvr_model_json_t *j);

/* Refuses a model that makes other ids of a string than the engine does. */
void kvr_model_compare(kvr_model_t *m, const kvr_model_json_t *j);

/* Adds a file to those kept, takes its memory; NULL: there are too many. */
kvr_model_file_t *kvr_model_keep(kvr_model_t *m,
    const kvr_model_file_t *file);

/*
 * Reads a file of the directory and remembers its stamp.  As
 * kvr_model_file_read().
 */
kvr_rc_t kvr_model_read(kvr_model_t *m, kvr_model_file_t *file,
    const char *dir, const char *name, size_t bound, char *why);


#endif /* KVR_MODEL_STATE_H_INCLUDED */
