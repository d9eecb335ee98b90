/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What the decoders share; no other room includes it.
 *
 * A dialect has an open function, which reads the frame and sets `next', and
 * a next function, which fills one event.  kvr_decoder_next() has zeroed the
 * event and set its rank and place before.  An event that isn't kept comes
 * out with whatever fields could be read, handles above all.
 */


#ifndef KVR_DECODER_H_INCLUDED
#define KVR_DECODER_H_INCLUDED


#include "kvr_event.h"
#include "kvr_json.h"
#include "kvr_msgpack.h"


#define KVR_BLOCK_MM_MAX  64    /* kvr_hash_block_mm() takes no more */
#define KVR_LORA_ID_MAX   20    /* digits of a LoRA's number */
#define KVR_DETAIL_MAX    128   /* bytes of a detail with values */


/* Scratch memory that grows and is kept. */
typedef struct {
    void           *data;
    size_t          size;       /* bytes */
} kvr_scratch_t;


struct kvr_decoder_s {
    kvr_rc_t           (*next)(kvr_decoder_t *d, kvr_event_t *ev);
    kvr_rc_t             end;        /* returned when `next' is NULL */
    const char          *detail;
    char                 valued[KVR_DETAIL_MAX];    /* a detail with values */
    kvr_decoder_conf_t   conf;

    uint32_t             at;         /* index of the next event */
    uint32_t             source;     /* of what was sent */
    uint32_t             rank;      /* of events that have none of their own */

    kvr_msgpack_t        in;
    uint32_t             left;       /* events of a msgpack batch */

    kvr_json_t           json;
    kvr_scratch_t        text;       /* a string of JSON without its escapes */

    kvr_scratch_t        state;     /* of the message's dialect */
    uint32_t             page;       /* tokens of the engine's blocks; 0: … */

    char                 lora_id[KVR_LORA_ID_MAX + 1];  /* of the last event */

    kvr_scratch_t        packed;     /* msgpack, made of JSON */
    kvr_scratch_t        handles;    /* uint64_t */
    kvr_scratch_t        locals;     /* uint64_t */
    kvr_scratch_t        tokens;     /* uint32_t */
    kvr_scratch_t        remaining;  /* uint32_t */
    kvr_scratch_t        mm;         /* uint64_t */
    kvr_scratch_t        mm_start;   /* uint32_t */
    kvr_scratch_t        blocks;     /* kvr_tensorrt_block_t */
    kvr_scratch_t        lora;       /* char, of TensorRT-LLM */
    kvr_scratch_t        salt;       /* char, of TensorRT-LLM */
};


/*
 * Makes room for so many bytes and keeps the contents.  NULL: out of memory.
 */
void *kvr_scratch_reserve(kvr_scratch_t *s, size_t size);

/* Adds a number to the blocks of an event.  Returns NULL, or what is wrong. */
const char *kvr_scratch_append(kvr_scratch_t *s, uint32_t *n, uint64_t value);

/* Sets an event's verdict and its reason; returns KVR_OK. */
kvr_rc_t kvr_event_judge(kvr_decoder_t *d, kvr_event_t *ev,
    kvr_verdict_t verdict, kvr_why_t why, const char *detail);
#define kvr_event_filter(d, ev, why, detail)                                  \
    kvr_event_judge(d, ev, KVR_FILTERED, why, detail)
#define kvr_event_refuse(d, ev, why, detail)                                  \
    kvr_event_judge(d, ev, KVR_REFUSED, why, detail)

/* Records why a message's frame can't be read.  Returns KVR_INVALID. */
kvr_rc_t kvr_frame_invalid(kvr_decoder_t *d, kvr_why_t *why, kvr_why_t reason,
    const char *detail);

/*
 * The dialects in JSON, one row each:
 *
 *     name       kvr_<name>_open() opens a message of the dialect
 *     form       the form of its messages
 *     counted    as in kvr_message_t
 *     fields     the names of fields that no other dialect has, at most 5
 *
 * To add one: kvr_<name>.c with its grammar (see kvr_json_events.h), its open
 * and next functions; what the dialect knows of an event while the event is
 * read is in d->state; and a row.
 */
#define KVR_JSON_DIALECTS(row)                                                \
    row(router_event, KVR_FORM_ROUTER_EVENT, true,                            \
        "worker_id", "storage_tier", "event")                                 \
    row(tensorrt, KVR_FORM_BARE, false,                                       \
        "data", "window_size", "attention_dp_rank")                           \
    /* an engine's batch or events, as in msgpack */                          \
    row(json_batch, KVR_FORM_BARE, false,                                     \
        "type", "event_type", "events", "block_hashes", "seq_hashes")

typedef struct {
    kvr_rc_t           (*open)(kvr_decoder_t *d, kvr_why_t *why);
    kvr_message_form_t   form;
    bool                 counted;
    const char          *fields[5 + 1];
} kvr_json_dialect_t;

/* Never NULL.  *empty: the first value of the text has no event. */
const kvr_json_dialect_t *kvr_json_dialect(const kvr_msgpack_t *in,
    bool *empty);

/* Is the first element of a message the version of an envelope, any one? */
bool kvr_envelope_named(const kvr_msgpack_item_t *first);

/*
 * The dialects.  d->in is at the first byte of the message; for an envelope
 * that is the array's, and afterwards, unless it is a heartbeat, that of its
 * payload.
 */
kvr_rc_t kvr_envelope_open(kvr_decoder_t *d,
    const kvr_msgpack_item_t *version, kvr_message_t *msg, kvr_why_t *why);
kvr_rc_t kvr_normalised_open(kvr_decoder_t *d, kvr_why_t *why);
kvr_rc_t kvr_engine_batch_open(kvr_decoder_t *d, kvr_why_t *why);

#define kvr_json_dialect_open(name, ...)                                      \
    kvr_rc_t kvr_##name##_open(kvr_decoder_t *d, kvr_why_t *why);

KVR_JSON_DIALECTS(kvr_json_dialect_open)

/* The first element and the number of elements of a normalised event. */
typedef struct {
    const char  *tag;
    uint32_t     fields;
} kvr_normalised_t;

extern const kvr_normalised_t  kvr_normalised[KVR_BITS + 1];

/* The names of tiers in RouterEvents, then NULL. */
extern const char *const  kvr_router_event_tiers[KVR_TIERS + 1];

/*
 * Reads the extra keys of an engine's store, once its handles, parent and
 * LoRA are known: multimodal hashes and the salt go to the event.  Returns
 * KVR_WHY_EXTRA_KEY when one can't be classified, *good then being how many
 * blocks before that are; KVR_WHY_LENGTH when they are not one a block,
 * KVR_WHY_LIMIT for more than a block may have.  `in' is at what the item
 * contains.
 */
kvr_why_t kvr_extra_keys(kvr_decoder_t *d, kvr_event_t *ev,
    const kvr_msgpack_item_t *item, kvr_msgpack_t in, uint32_t *good);

/* Sets the salt of an event.  False: the event has another salt already. */
bool kvr_extra_salt(kvr_event_t *ev, const char *salt, size_t len);

/*
 * Gives a name to an event's LoRA that has only a number: the number in
 * decimal digits.  The name is valid until the next event.
 */
void kvr_event_lora_id(kvr_decoder_t *d, kvr_event_t *ev, uint64_t id);

/* The position of a text among words, which end with NULL; false: none. */
bool kvr_word_at(const char *const *words, const char *text, size_t len,
    uint32_t *at);

/*
 * Reads a decimal number of up to 64 bits.  False: the text is anything else.
 */
bool kvr_u64_parse(const char *text, size_t len, uint64_t *value);

/*
 * Reads an engine's hash from text: a decimal number, with or without a sign,
 * or, if hex is true, the last 16 digits of a hexadecimal number.
 */
bool kvr_hash_parse(const char *text, size_t len, bool hex, uint64_t *hash);

/* The number of hexadecimal digits that text begins with. */
size_t kvr_hex_digits(const char *text, size_t len);

/* The value of at most 16 hexadecimal digits. */
uint64_t kvr_hex_value(const char *text, size_t len);


#endif /* KVR_DECODER_H_INCLUDED */
