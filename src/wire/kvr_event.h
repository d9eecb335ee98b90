/*
 * Copyright (C) the nginx-kv-router authors
 *
 * KV events: decodes the bytes of a message, in any form of docs/events.md, to
 * a sequence of events in one form, kvr_event_t.
 *
 *     kvr_decoder_t *d = kvr_decoder_create();
 *
 *     if (kvr_message_open(d, bytes, len, &msg, &why) == KVR_OK) {
 *         while (kvr_decoder_next(d, &ev) == KVR_OK) {
 *             if (ev.verdict == KVR_KEEP) { … } else { count ev.why }
 *         }
 *     }
 *
 * Decoding is pure: no I/O, no clock, no shared memory.  An event that can't
 * be used never hides the next one: it comes out with its verdict and reason.
 *
 * Ownership: the bytes must stay until the decoder is opened again; what an
 * event points at belongs to the decoder and holds until the next call of
 * kvr_decoder_next().  A decoder is for one thread; it grows its buffers up to
 * the bounds of kvr.h and keeps them.
 */


#ifndef KVR_EVENT_H_INCLUDED
#define KVR_EVENT_H_INCLUDED


#include "../core/kvr_contract.h"
#include "../core/kvr_hit.h"


typedef struct kvr_decoder_s  kvr_decoder_t;


typedef enum {
    KVR_FORM_ENVELOPE,      /* msgpack ["kvr1", …], what kv-relay sends */
    KVR_FORM_ROUTER_EVENT,  /* JSON, one RouterEvent or an array of them */
    KVR_FORM_BARE,          /* an engine's own message, unchanged: a batch in
                               msgpack, TensorRT-LLM's list in JSON */
    KVR_FORM_NORMALISED     /* a normalised batch without an envelope: a part
                               of a snapshot */
} kvr_message_form_t;


/* A message's head, read before the events of the message. */
typedef struct {
    kvr_message_form_t  form;

    /* the envelope's own fields; zero in other forms */
    const char  *worker;            /* not terminated; its characters and
                                       length were validated */
    size_t       worker_len;
    uint64_t     epoch;
    uint64_t     seq;
    bool         complete;          /* the publisher's mirror is whole */
    bool         heartbeat;         /* no payload: seq is the last one sent */
    bool         hybrid;            /* the model has KV cache groups that the
                                       publisher does not pass on */
    bool         draining;          /* the engine wants no new requests */
    bool         counted;           /* events are idempotent sets: normalised
                                       batches and RouterEvents; false for
                                       bare batches, inside an envelope too */
    bool         empty;             /* JSON whose first value has no event:
                                       the publisher is not known, unless an
                                       event follows */
} kvr_message_t;


typedef enum {
    KVR_STORE,
    KVR_REMOVE,
    KVR_CLEAR,
    KVR_CLASS,              /* describes a class of KV cache groups */
    KVR_BITS                /* blocks that a class holds, or no longer */
} kvr_event_kind_t;


typedef enum {
    KVR_KEEP,
    KVR_FILTERED,           /* not to be indexed; the view stays EXACT */
    KVR_REFUSED             /* wrong; DEGRADED with the reason */
} kvr_verdict_t;


/* Classes of reasons, by the effect on the worker's confidence. */
typedef enum {
    KVR_WHY_IS_NONE = 0,
    KVR_WHY_IS_FILTERED,    /* not to be indexed */
    KVR_WHY_IS_REFUSED,     /* DEGRADED */
    KVR_WHY_IS_FORGOTTEN    /* TRUNCATED, if anything */
} kvr_why_class_t;


/*
 * Why an event was not kept, counted by kind: the list, of which all names and
 * classes of them are.  docs/events.md, "Confidence", tells what each is.
 */
#define KVR_WHY_LIST(X)                                                       \
    X(NONE, "none", NONE)                                                     \
    X(MEDIUM, "medium", FILTERED)                                             \
    X(LOCALITY, "locality", FILTERED)                                         \
    X(GROUP, "group", FILTERED)                                               \
    X(EXTRA_KEY, "extra_key", FILTERED)                                       \
    X(LORA_ID, "lora_id", FILTERED)                                           \
    X(BIGRAM, "bigram", FILTERED)                                             \
    X(PARTIAL, "partial", FILTERED)                                           \
    X(OBJECT_KEY, "object_key", FILTERED)                                     \
    X(SYNTAX, "syntax", REFUSED)                                              \
    X(TYPE, "type", REFUSED)                                                  \
    X(LENGTH, "length", REFUSED)                                              \
    X(BLOCK_SIZE, "block_size", REFUSED)                                      \
    X(LIMIT, "limit", REFUSED)                                                \
    X(PARENT, "parent", REFUSED)                                              \
    X(RANK, "rank", REFUSED)                                                  \
    X(WORKER, "worker", REFUSED)                                              \
    X(FULL, "full", FORGOTTEN)                                                \
    X(FORGOTTEN, "forgotten", FORGOTTEN)                                      \
    X(UNKNOWN, "unknown", FORGOTTEN)

#define KVR_WHY_ID(id, name, class)     KVR_WHY_##id,
#define KVR_WHY_NAME(id, name, class)   name,
#define KVR_WHY_CLASS(id, name, class)  KVR_WHY_IS_##class,

typedef enum {
    KVR_WHY_LIST(KVR_WHY_ID)
    KVR_WHYS
} kvr_why_t;


/*
 * A change is what the index takes.  Ten fields say what is stored or removed:
 * the handles of blocks, one for each block of the engine's, in a tier of the
 * holder (worker, rank).
 *
 *     kind          the handles                    the locals
 *     KVR_STORE     are stored behind the parent   a local hash for each, or
 *                                                  a multiple of them
 *     KVR_STORE     are held, get one more tier    none
 *     KVR_REMOVE    leave the tier                 none
 *     KVR_CLEAR     none: the holder has nothing   none
 *     KVR_CLASS     none                           none
 *     KVR_BITS      the first nadded are held by   none
 *                   the class, the others are not
 *
 * The last five are of classes of KV-cache groups (kvr_hit.h): KVR_CLASS says
 * that class class_at has group_kind, blocks of block_size tokens, and windows
 * of class_window of its blocks.  In KVR_BITS a handle of a block that the
 * holder does not hold means nothing.
 *
 * The names of the fields are names of kvr_event_t, too; therefore they are
 * listed once.
 */
#define KVR_CHANGE_FIELDS                                                     \
    kvr_event_kind_t   kind;                                                  \
    kvr_tier_t         tier;                                                  \
    uint32_t           rank;                                                  \
    bool               has_parent;                                            \
    uint64_t           parent;          /* handle */                          \
    const uint64_t    *handles;                                               \
    uint32_t           nhandles;                                              \
    const uint64_t    *locals;                                                \
    uint32_t           nlocals;                                               \
    uint64_t           seed;            /* of the chain, where the index does \
                                           not know it; 0: none */            \
                                                                              \
    uint32_t           class_at;        /* below KVR_CLASSES_MAX */           \
    kvr_group_kind_t   group_kind;                                            \
    uint32_t           class_window;                                          \
    uint32_t           block_size;                                            \
    uint32_t           nadded;

typedef struct {
    KVR_CHANGE_FIELDS
} kvr_change_t;


/*
 * An event is what an engine, or a publisher, says: a change, and the rest
 * which is said of it.  The decoder, the normaliser and the ingest alone look
 * at the rest: the index gets &ev->change.
 *
 * A store of an engine has tokens to be hashed (kvr_shard_hash()) where a
 * change has locals, or neither: an offload.
 */
typedef struct {
    union {
        kvr_change_t   change;
        struct {
            /*
             * rank is the event's or batch's own, else the envelope's, else
             * that of the decoder's conf.  With tokens, block_size is the
             * engine's, 0 otherwise; group_kind is that of the group, below.
             */
            KVR_CHANGE_FIELDS
        };
    };

    kvr_verdict_t      verdict;
    kvr_why_t          why;
    bool               unranked;        /* refused before its rank was read */

    /*
     * Engine batches only, stores: so many handles more, behind the others,
     * are of blocks that can't be indexed, for the reason `why': the first of
     * them was filtered, and the rest hangs on it.
     */
    uint32_t           nfiltered;

    const uint32_t    *tokens;
    uint32_t           ntokens;
    bool               pairs;           /* the tokens came as so many pairs,
                                           and one more is behind them: the
                                           second of the last pair */
    const char        *lora_name;       /* with tokens; not terminated; of a
                                           LoRA that has no name, its number */
    size_t             lora_len;
    const char        *cache_salt;
    size_t             salt_len;

    /*
     * Multimodal hashes, with tokens: mm[mm_start[i] .. mm_start[i + 1]) are
     * those of engine block i; mm_start is NULL when there are none at all.
     */
    const uint64_t    *mm;
    const uint32_t    *mm_start;

    /*
     * Engine batches only: the KV cache group, 0 when none is named, and its
     * kind, which only stores say.  A removal in a group other than 0 comes
     * out FILTERED, KVR_WHY_GROUP, with all its fields: who remembers the
     * group's kind from its stores (per worker and rank) knows better, and
     * should, for group 0 too: so it may be with a store whose group is not 0
     * and has no kind.  otherwise is what `why' would be without the group.
     */
    uint32_t           group;
    uint32_t           group_window;    /* tokens; 0: not said, or none */
    kvr_why_t          otherwise;

    /*
     * Engine batches only, of those that say more of copies.  Removals: how
     * many are left of each handle, or NULL; TensorRT-LLM has one of a block,
     * so none.  Stores: the blocks are announced again, and are no new copies.
     */
    const uint32_t    *remaining;
    bool               reused;

    /*
     * TensorRT-LLM only: one of several removals of the same blocks, from each
     * tier, of which the first is that from KVR_DEVICE.
     */
    bool               everywhere;

    /*
     * TensorRT-LLM only: the largest attention window that the worker is known
     * to have by now, see kvr_decoder_conf_t; 0 when unknown.
     */
    uint32_t           window;

    /* RouterEvents only */
    const char        *worker;          /* id, not terminated; or NULL */
    size_t             worker_len;

    /*
     * RouterEvents, TensorRT-LLM and RFC 1527, counted for each rank.  What
     * TensorRT-LLM says once may come out as several events, which then have
     * the same id.  What changes nothing here comes out as a store without
     * handles, for its id.
     */
    bool               has_event_id;
    uint64_t           event_id;

    /* where in the message: index of the event, for error messages */
    uint32_t           at;

    /*
     * The number of the event among those of the message as it was sent, and
     * whether another part of that event follows.  An event of TensorRT-LLM is
     * cut into parts, how many depends on the window.
     */
    uint32_t           source;
    bool               more;
} kvr_event_t;


/* NULL when out of memory. */
kvr_decoder_t *kvr_decoder_create(void);
void kvr_decoder_destroy(kvr_decoder_t *d);

/*
 * A decoder's settings, which the owner of the decoder may change between two
 * messages, and the window between two events.
 */
typedef struct {

    /*
     * The maximum size of a message, bytes; a longer message is refused
     * unread, KVR_WHY_LIMIT.  KVR_MESSAGE_MAX at first.
     */
    size_t          message_max;

    /*
     * How the index's blocks are made.  Engine events with tokens of the other
     * kind are filtered, KVR_WHY_BIGRAM: pairs tell nothing of a plain block
     * that others would know, and single tokens don't tell the one behind a
     * block.  By the block size a smaller last block of TensorRT-LLM's is
     * known to be partial.  Single tokens and a size that is not known at
     * first.
     */
    kvr_contract_t  contract;

    /*
     * The rank, below KVR_RANKS_MAX, of events that name no rank, neither
     * themselves nor in their batch or envelope.  A batch that names rank 0 is
     * of rank 0.  0 at first.
     */
    uint32_t        rank;

    /*
     * The largest attention window seen so far of the worker whose messages
     * come next; an event of TensorRT-LLM's of a larger window raises it.  0,
     * as at first: not known.
     */
    uint32_t        window;

    /*
     * The worker whose messages come next uses cache salts of its own
     * (salted=on): one extra key of no other kind, on the first block of a
     * chain, is the salt.  False at first.
     */
    bool            salted;
} kvr_decoder_conf_t;

kvr_decoder_conf_t *kvr_decoder_conf(kvr_decoder_t *d);

/*
 * Reads the message's frame and makes the decoder ready for its events.
 * KVR_INVALID with *why and *detail (a static string for logs and API
 * answers) when the frame itself can't be read: then there are no events.
 * An engine's batch that is a map, or names a rank after its events, is
 * framed as a whole: broken anywhere, it has no events, for no rank is sure.
 */
kvr_rc_t kvr_message_open(kvr_decoder_t *d, const void *bytes, size_t len,
    kvr_message_t *msg, kvr_why_t *why, const char **detail);

/*
 * The next event: KVR_OK, KVR_DONE at the end, KVR_INVALID when the rest of
 * the message can't be read any more (why and detail as of the last event,
 * which kvr_decoder_detail() gives).
 */
kvr_rc_t kvr_decoder_next(kvr_decoder_t *d, kvr_event_t *ev);

/*
 * The part of an event from its handle `from' on that has about so many
 * blocks, of the engine's where it has tokens, and one handle at least: an
 * event of its own, which follows on the part before it and points at what the
 * event points at.  The first part has the event's id, the last one the
 * filtered blocks.  Returns its handles.  One without handles, or whose locals
 * or tokens don't fit, comes out whole.
 */
uint32_t kvr_event_part(const kvr_event_t *ev, uint32_t from, uint32_t blocks,
    kvr_event_t *part);

/* Says in words what was wrong with the last event; static, never NULL. */
const char *kvr_decoder_detail(const kvr_decoder_t *d);

/* A reason as a short word for metrics: "parent", "block_size", … */
const char *kvr_why_name(kvr_why_t why);

/*
 * The class of a reason, FORGOTTEN for a number beyond the list, as a snapshot
 * can have; and the name of a class.
 */
kvr_why_class_t kvr_why_class(kvr_why_t why);
const char *kvr_why_class_name(kvr_why_class_t c);

/* True for 1..63 bytes of [A-Za-z0-9._:-]. */
bool kvr_worker_id_valid(const char *id, size_t len);


/* Encoders, for the relay, tests and /dump. */

/*
 * Writes one RouterEvent as JSON, without a newline or a terminating zero.
 * Returns the length, or 0 when size is too small, the worker's id is not
 * valid, or the form can't say it: tokens, or several locals to a handle.
 */
size_t kvr_router_event_print(char *out, size_t size, const char *worker,
    size_t worker_len, uint64_t event_id, const kvr_event_t *ev);

/*
 * A normalised batch is its head, for so many events, and then the events,
 * each written by itself.  Returns a change's length, or 0 when size is too
 * small or the form can't say it: locals that are no multiple of the handles.
 * A change takes KVR_NORMALISED_EVENT bytes at most, and 8 for
 * each handle and each local.
 */
#define KVR_NORMALISED_HEAD   5
#define KVR_NORMALISED_EVENT  32

void kvr_normalised_head_print(char out[KVR_NORMALISED_HEAD],
    uint32_t events);
size_t kvr_normalised_print(char *out, size_t size, const kvr_change_t *ev);

/* The envelope that kv-relay sends. */
typedef struct {
    const char  *worker;            /* id */
    size_t       worker_len;
    uint64_t     epoch;
    uint64_t     seq;
    bool         complete;
    const char  *payload;           /* NULL: a heartbeat */
    size_t       payload_len;
    bool         has_engine_seq;    /* completes an engine's batch: of this */
    uint64_t     engine_seq;        /* number, */
    uint32_t     rank;              /* of this rank */
    bool         hybrid;            /* the model has KV cache groups whose
                                       events are not passed on */
    bool         draining;          /* the engine wants no new requests */
} kvr_envelope_t;

/*
 * Writes an envelope: KVR_ENVELOPE_HEAD bytes at most, and the payload.
 * Returns its length, or 0 when size is too small or the id is not valid.
 */
#define KVR_ENVELOPE_HEAD     128

size_t kvr_envelope_print(char *out, size_t size, const kvr_envelope_t *e);


#endif /* KVR_EVENT_H_INCLUDED */
