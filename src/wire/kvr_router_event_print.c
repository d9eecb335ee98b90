/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_decoder.h"


#define KVR_U64_DIGITS  20


typedef struct {
    char    *pos;
    char    *end;
    bool     full;
} kvr_printer_t;


static void kvr_print_text(kvr_printer_t *out, const char *text);
static void kvr_print_bytes(kvr_printer_t *out, const char *bytes, size_t len);
static void kvr_print_u64(kvr_printer_t *out, uint64_t value);
static void kvr_print_worker(kvr_printer_t *out, const char *id, size_t len);
static void kvr_print_stored(kvr_printer_t *out, const kvr_event_t *ev);
static void kvr_print_removed(kvr_printer_t *out, const kvr_event_t *ev);


const char *const  kvr_router_event_tiers[KVR_TIERS + 1] = {
    "device", "host_pinned", "disk", "external", NULL
};


size_t
kvr_router_event_print(char *out, size_t size, const char *worker,
    size_t worker_len, uint64_t event_id, const kvr_event_t *ev)
{
    kvr_printer_t  to;

    if (!kvr_worker_id_valid(worker, worker_len)
        || ev->ntokens != 0 || ev->kind > KVR_CLEAR
        || (ev->nlocals != 0 && ev->nlocals != ev->nhandles))
    {
        return 0;
    }

    to.pos = out;
    to.end = out + size;
    to.full = false;

    kvr_print_text(&to, "{\"worker_id\":");
    kvr_print_worker(&to, worker, worker_len);

    if (ev->kind != KVR_CLEAR && ev->tier != KVR_DEVICE) {
        kvr_print_text(&to, ",\"storage_tier\":\"");
        kvr_print_text(&to, kvr_router_event_tiers[ev->tier]);
        kvr_print_text(&to, "\"");
    }

    kvr_print_text(&to, ",\"event\":{\"event_id\":");
    kvr_print_u64(&to, event_id);
    kvr_print_text(&to, ",\"data\":");

    switch (ev->kind) {

    case KVR_STORE:
        kvr_print_stored(&to, ev);
        break;

    case KVR_REMOVE:
        kvr_print_removed(&to, ev);
        break;

    default: /* KVR_CLEAR */
        kvr_print_text(&to, "\"cleared\"");
        break;
    }

    kvr_print_text(&to, ",\"dp_rank\":");
    kvr_print_u64(&to, ev->rank);
    kvr_print_text(&to, "}}");

    return to.full ? 0 : (size_t) (to.pos - out);
}


static void
kvr_print_stored(kvr_printer_t *out, const kvr_event_t *ev)
{
    uint32_t  i;

    kvr_print_text(out, "{\"stored\":{\"parent_hash\":");

    if (ev->has_parent) {
        kvr_print_u64(out, ev->parent);

    } else {
        kvr_print_text(out, "null");
    }

    kvr_print_text(out, ",\"blocks\":[");

    for (i = 0; i < ev->nhandles; i++) {
        kvr_print_text(out, i == 0 ? "{\"block_hash\":" : ",{\"block_hash\":");
        kvr_print_u64(out, ev->handles[i]);

        if (ev->nlocals != 0) {
            kvr_print_text(out, ",\"tokens_hash\":");
            kvr_print_u64(out, ev->locals[i]);
        }

        kvr_print_text(out, "}");
    }

    kvr_print_text(out, "]}}");
}


static void
kvr_print_removed(kvr_printer_t *out, const kvr_event_t *ev)
{
    uint32_t  i;

    kvr_print_text(out, "{\"removed\":{\"block_hashes\":[");

    for (i = 0; i < ev->nhandles; i++) {
        if (i != 0) {
            kvr_print_text(out, ",");
        }

        kvr_print_u64(out, ev->handles[i]);
    }

    kvr_print_text(out, "]}}");
}


/*
 * Prints the id as a number if the number is read back as the same id.
 * Dynamo's ids are u64; other ids may have a leading zero, or more digits.
 */
static void
kvr_print_worker(kvr_printer_t *out, const char *id, size_t len)
{
    uint64_t  number;

    if (kvr_json_digits(id, len, &number)) {
        kvr_print_bytes(out, id, len);
        return;
    }

    kvr_print_text(out, "\"");
    kvr_print_bytes(out, id, len);
    kvr_print_text(out, "\"");
}


static void
kvr_print_u64(kvr_printer_t *out, uint64_t value)
{
    char   digits[KVR_U64_DIGITS];
    char  *p;

    p = digits + KVR_U64_DIGITS;

    do {
        *--p = (char) ('0' + value % 10);
        value /= 10;
    } while (value != 0);

    kvr_print_bytes(out, p, (size_t) (digits + KVR_U64_DIGITS - p));
}


static void
kvr_print_text(kvr_printer_t *out, const char *text)
{
    kvr_print_bytes(out, text, strlen(text));
}


static void
kvr_print_bytes(kvr_printer_t *out, const char *bytes, size_t len)
{
    if (len > (size_t) (out->end - out->pos)) {
        out->full = true;
        return;
    }

    memcpy(out->pos, bytes, len);
    out->pos += len;
}
