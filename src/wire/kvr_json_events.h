/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Events in JSON: one object, a list of objects, or many of either one after
 * another.  Events come out one by one, and what was good before a syntax
 * error is good still.
 *
 * A dialect is a grammar, drawn as tables: what an object of an event has
 * under each key, and which kinds of values the dialect takes there.
 *
 *     key            takes                                   opens
 *     "dp_rank"      KVR_JSON_NULL | KVR_JSON_NUMBER         -
 *     "blocks"       KVR_JSON_LIST                           the table of its
 *                                                            elements, one row
 *
 * What meets a value is the same everywhere:
 *
 *     the key is           the value is         what happens
 *     in the table         taken                take(), and if the value is a
 *                                               list or an object, its values
 *                                               by the table that it opens,
 *                                               and end()
 *     in the table         of another kind      wrong(), and it is skipped
 *     not in the table     anything             it is skipped
 *
 * A skipped value with more than KVR_JSON_EVENT_DEPTH lists and objects in one
 * another makes its event wrong, a message with more than KVR_JSON_DEPTH is
 * broken there.  A key that comes twice is taken twice.
 */


#ifndef KVR_JSON_EVENTS_H_INCLUDED
#define KVR_JSON_EVENTS_H_INCLUDED


#include "kvr_decoder.h"


/*
 * More than in msgpack: Dynamo's mm_extra_info alone has five lists and
 * objects in one another.
 */
#define KVR_JSON_EVENT_DEPTH  8

/* The maximum number of lists and objects in one another that tables open. */
#define KVR_JSON_TABLES       8


/* Kinds of values. */
#define KVR_JSON_NULL         0x01
#define KVR_JSON_BOOL         0x02
#define KVR_JSON_NUMBER       0x04
#define KVR_JSON_STRING       0x08
#define KVR_JSON_LIST         0x10
#define KVR_JSON_MAP          0x20


typedef struct kvr_json_field_s  kvr_json_field_t;

/* A row; one without a key ends an object's table, or is a list's element. */
struct kvr_json_field_s {
    const char              *key;
    uint32_t                 len;
    uint32_t                 takes;     /* kinds of values */
    uint32_t                 name;      /* the dialect's; never 0 */
    const kvr_json_field_t  *opens;     /* with KVR_JSON_LIST or _MAP */
};

#define kvr_json_field(key, takes, name, opens)                               \
    { key, sizeof(key) - 1, takes, name, opens }
#define kvr_json_element(takes, name, opens)                                  \
    { NULL, 0, takes, name, opens }
#define kvr_json_fields_end                                                   \
    { NULL, 0, 0, 0, NULL }


/* A value that a table takes; of a list or an object, its kind alone. */
typedef struct {
    uint32_t     kind;
    const char  *text;      /* a number as it stands, a string decoded; good
                               until the next value is read */
    size_t       len;
} kvr_json_value_t;


/* A dialect. */
typedef struct {
    const kvr_json_field_t  *fields;    /* of the object that an event is */

    /* An event begins. */
    void  (*begin)(kvr_decoder_t *d);

    /* The value that a row takes, and the end of one that it opened. */
    void  (*take)(kvr_decoder_t *d, uint32_t name,
        const kvr_json_value_t *v);
    void  (*end)(kvr_decoder_t *d, uint32_t name);

    /*
     * Called for a value whose kind the row `name` does not take
     * (KVR_WHY_SYNTAX), and for a value that can't be read (KVR_WHY_LIMIT,
     * with name 0).
     */
    void  (*wrong)(kvr_decoder_t *d, uint32_t name, kvr_why_t why,
        const char *detail);
} kvr_json_events_t;


/*
 * Makes the cursor ready for the bytes in d->in, and d->state of that size,
 * all zero.  KVR_INVALID, as the dialects' open has it: no memory.
 */
kvr_rc_t kvr_json_events_open(kvr_decoder_t *d, size_t size,
    kvr_rc_t (*next)(kvr_decoder_t *d, kvr_event_t *ev), kvr_why_t *why);

/*
 * Reads the next event.  KVR_OK, the event being refused if there was a value
 * that is no object; KVR_DONE; KVR_INVALID when the JSON is broken, d->detail
 * says so.
 */
kvr_rc_t kvr_json_events_next(kvr_decoder_t *d, const kvr_json_events_t *e,
    kvr_event_t *ev);


#endif /* KVR_JSON_EVENTS_H_INCLUDED */
