/*
 * Copyright (C) the nginx-kv-router authors
 *
 * Messages in any dialect: what is kept of them is sound, and what can be
 * printed as a RouterEvent reads back the same.  The first byte says whether
 * the worker is salted, and what is known of its blocks and window.
 */


#include "fuzz.h"

#include "wire/kvr_event.h"


#define PRINTED_MAX    (1u << 16)


static void message(const kvr_message_t *msg);
static void event(const kvr_event_t *ev);
static void numbers(const void *a, size_t bytes);
static void printed(const kvr_event_t *ev);


static kvr_decoder_t     *decoder, *other;
static volatile uint64_t  sum;


const uint32_t  fuzz_inputs = 300000;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    void            *copy;
    size_t           n;
    kvr_rc_t         rc;
    kvr_why_t        why;
    kvr_event_t      ev;
    const char      *detail;
    kvr_message_t    msg;
    kvr_contract_t   contract;

    if (len == 0) {
        return 0;
    }

    if (decoder == NULL) {
        decoder = kvr_decoder_create();
        other = kvr_decoder_create();
    }

    copy = fuzz_copy(bytes + 1, len - 1);
    kvr_decoder_conf(decoder)->salted = bytes[0] & 1;
    contract.block_size = (bytes[0] & 2) ? 16 : 0;
    contract.pairs = bytes[0] & 8;
    kvr_decoder_conf(decoder)->contract = contract;
    kvr_decoder_conf(decoder)->window = (bytes[0] & 4) ? 64 : 0;

    why = KVR_WHY_NONE;
    detail = NULL;
    memset(&msg, 0, sizeof(msg));

    rc = kvr_message_open(decoder, copy, len - 1, &msg, &why, &detail);

    if (rc != KVR_OK) {
        if (rc != KVR_INVALID || why == KVR_WHY_NONE || detail == NULL) {
            fuzz_fail("open: %d, why %d", rc, why);
        }

        free(copy);
        return 0;
    }

    message(&msg);

    for (n = 0; /* void */ ; n++) {

        rc = kvr_decoder_next(decoder, &ev);
        numbers(kvr_decoder_detail(decoder), 1);

        if (rc != KVR_OK) {
            break;
        }

        /* TensorRT-LLM's removals are three */

        if (n > 3 * len) {
            fuzz_fail("more events than bytes");
        }

        event(&ev);
    }

    if (rc != KVR_DONE && rc != KVR_INVALID) {
        fuzz_fail("next: %d", rc);
    }

    free(copy);

    return 0;
}


static void
message(const kvr_message_t *msg)
{
    if (msg->worker && !kvr_worker_id_valid(msg->worker, msg->worker_len)) {
        fuzz_fail("the envelope's worker is not valid");
    }

    if (msg->form == KVR_FORM_ENVELOPE && msg->worker == NULL) {
        fuzz_fail("an envelope without a worker");
    }
}


static void
event(const kvr_event_t *ev)
{
    uint32_t  i;

    numbers(ev->handles, ev->nhandles * sizeof(uint64_t));
    numbers(ev->locals, ev->nlocals * sizeof(uint64_t));
    numbers(ev->tokens, (ev->ntokens + ev->pairs) * sizeof(uint32_t));
    numbers(ev->lora_name, ev->lora_len);
    numbers(ev->cache_salt, ev->salt_len);
    numbers(ev->worker, ev->worker_len);
    numbers(kvr_why_name(ev->why), 1);

    if (ev->remaining) {
        numbers(ev->remaining, ev->nhandles * sizeof(uint32_t));
    }

    if ((ev->verdict == KVR_KEEP && ev->nfiltered == 0)
        != (ev->why == KVR_WHY_NONE))
    {
        fuzz_fail("verdict %d, why %d", ev->verdict, ev->why);
    }

    if (ev->verdict != KVR_KEEP) {
        return;
    }

    if (ev->kind > KVR_BITS || ev->tier >= KVR_TIERS
        || ev->nadded > ev->nhandles || ev->class_at >= KVR_CLASSES_MAX
        || (ev->kind == KVR_CLASS && !kvr_group_has_rule(ev->group_kind))
        || ev->nhandles > KVR_EVENT_BLOCKS_MAX
        || ev->ntokens > KVR_EVENT_TOKENS_MAX
        || (ev->nlocals && ev->ntokens)
        || (ev->nlocals && (ev->nhandles == 0
                            || ev->nlocals % ev->nhandles))
        || (ev->ntokens && (uint64_t) ev->nhandles * ev->block_size
                           != ev->ntokens))
    {
        fuzz_fail("kind %d, tier %d: %u handles, %u locals, %u tokens of %u",
                  ev->kind, ev->tier, ev->nhandles, ev->nlocals, ev->ntokens,
                  ev->block_size);
    }

    if (ev->mm_start) {
        for (i = 0; i < ev->nhandles; i++) {
            if (ev->mm_start[i] > ev->mm_start[i + 1]) {
                fuzz_fail("multimodal hashes go back");
            }
        }

        numbers(ev->mm, ev->mm_start[ev->nhandles] * sizeof(uint64_t));
    }

    printed(ev);
}


/* Reads all of it, for the sanitizers. */

static void
numbers(const void *a, size_t bytes)
{
    size_t          i;
    const uint8_t  *p;

    p = a;

    for (i = 0; i < bytes; i++) {
        sum += p[i];
    }
}


static void
printed(const kvr_event_t *ev)
{
    size_t         n;
    kvr_why_t      why;
    kvr_event_t    back;
    const char    *detail;
    kvr_message_t  msg;

    static char    line[PRINTED_MAX];

    n = kvr_router_event_print(line, sizeof(line), "w", 1, 7, ev);

    if (n == 0) {
        return;
    }

    if (n > sizeof(line)
        || kvr_message_open(other, line, n, &msg, &why, &detail) != KVR_OK
        || msg.form != KVR_FORM_ROUTER_EVENT
        || kvr_decoder_next(other, &back) != KVR_OK)
    {
        fuzz_fail("not read back: %.*s", (int) n, line);
    }

    if (back.verdict != KVR_KEEP || back.kind != ev->kind
        || back.rank != ev->rank || back.nhandles != ev->nhandles
        || (ev->kind != KVR_CLEAR && back.tier != ev->tier)
        || (ev->kind == KVR_STORE
            && (back.has_parent != ev->has_parent
                || (ev->has_parent && back.parent != ev->parent)
                || back.nlocals != ev->nlocals
                || (ev->nlocals
                    && memcmp(back.locals, ev->locals,
                              ev->nlocals * sizeof(uint64_t)) != 0)))
        || (ev->nhandles && memcmp(back.handles, ev->handles,
                                   ev->nhandles * sizeof(uint64_t)) != 0))
    {
        fuzz_fail("another event (verdict %d, why %d): %.*s", back.verdict,
                  back.why, (int) n, line);
    }

    if (kvr_decoder_next(other, &back) != KVR_DONE) {
        fuzz_fail("more than one: %.*s", (int) n, line);
    }
}
