/*
 * Copyright (C) the nginx-kv-router authors
 *
 * A file of a model directory: read once, as a whole, into memory.
 *
 * A file must be regular, must have at most its bound of bytes, and must not
 * be writable by everybody.  A file that changes while it is read is refused.
 */


#ifndef KVR_MODEL_FILE_H_INCLUDED
#define KVR_MODEL_FILE_H_INCLUDED


#include "kvr_model.h"


#define KVR_MODEL_NAME       127        /* bytes, folders included */
#define KVR_MODEL_SHA256     65         /* bytes: 64 digits, and the end */


/*
 * The state of a file when it was read.  Two equal stamps are of the same
 * content if the file had not been changed for KVR_MODEL_SETTLED seconds when
 * it was read: a later change changes the stamp.
 */

#define KVR_MODEL_SETTLED    2

typedef struct {
    char        name[KVR_MODEL_NAME + 1];
    bool        there;
    bool        settled;
    uint64_t    device;
    uint64_t    inode;
    uint64_t    size;
    int64_t     modified;               /* ns since 1970 */
    int64_t     changed;
} kvr_model_stamp_t;


typedef struct {
    kvr_model_stamp_t  stamp;
    char              *data;            /* malloc(); a byte 0 follows */
    size_t             len;
    char               sha256[KVR_MODEL_SHA256];
} kvr_model_file_t;


/*
 * Reads dir/name, of at most bound bytes.  KVR_DECLINED: there is none;
 * file->stamp says so.  KVR_INVALID: the file can't be used; *why becomes a
 * sentence with the cause and the remedy.
 */
kvr_rc_t kvr_model_file_read(kvr_model_file_t *file, const char *dir,
    const char *name, size_t bound, char *why);

void kvr_model_file_free(kvr_model_file_t *file);

/* Is dir/stamp->name what it was?  false: perhaps not. */
bool kvr_model_file_same(const kvr_model_stamp_t *stamp, const char *dir);

/* Is the directory there, and not writable by everybody?  As …_read(). */
kvr_rc_t kvr_model_dir(const char *dir, char *why);

/* Makes a sentence, as printf() has it; answers KVR_INVALID. */
kvr_rc_t kvr_model_why(char *why, const char *format, ...);

/* SHA-256 of a text, as hexadecimal digits. */
kvr_rc_t kvr_model_sha256(const void *data, size_t len,
    char out[KVR_MODEL_SHA256]);


#endif /* KVR_MODEL_FILE_H_INCLUDED */
