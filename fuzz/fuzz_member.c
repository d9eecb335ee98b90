/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What is said of a worker where anybody may say it: the fields of its
 * registration, its address, the pointer of its snapshot and that snapshot's
 * parts, and URLs of Redis.  What is taken is well formed, and the zone is
 * whole.
 *
 * An input is a row of: what (1 byte), length (2, low byte first), bytes.
 */


#include "drained.h"

#include "wire/kvr_address.h"
#include "wire/kvr_redis_url.h"
#include "wire/kvr_registration.h"
#include "follow/kvr_snapshot.h"

#include "../t/unit/kinds.h"


#define ZONE    (4u << 20)
#define ROWS    96                      /* of an input, at most */
#define NOW     1000
#define WORKER  "w"


static void zone_open(const kind_t *kind);
static void zone_close(void);
static void row(uint8_t what, const uint8_t *bytes, size_t len);
static void field(uint8_t which, const char *value, size_t len);
static void enrol(void);
static void address(const char *text);
static void url(const char *bytes, size_t len);
static void pointer(const char *bytes, size_t len);
static void part(const char *bytes, size_t len);


const uint32_t  fuzz_inputs = 4000;

static _Alignas(4096) char  zone[ZONE];

static kvr_router_t         router;
static kvr_registration_t   reg;
static kvr_snapshot_t      *snapshot;
static bool                 begun;


int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    size_t    n;
    uint32_t  i;

    zone_open(&kinds[0]);

    for (i = 0; i < ROWS && len >= 3; i++) {

        n = bytes[1] | (size_t) bytes[2] << 8;
        n = kvr_min(n, len - 3);

        row(bytes[0], bytes + 3, n);

        bytes += n + 3;
        len -= n + 3;
    }

    zone_close();

    return 0;
}


static void
zone_open(const kind_t *kind)
{
    char      why[KVR_WHY_LEN];
    uint32_t  i;

    memset(zone, 0, ZONE);

    if (kvr_router_format(zone, ZONE, &kind->params, why) != KVR_OK
        || kvr_router_attach(&router, zone, ZONE, &kind->params, why)
           != KVR_OK
        || kvr_router_join(&router) != KVR_OK)
    {
        fuzz_fail("no zone: %s", why);
    }

    for (i = 0; i < kind->params.shards; i++) {
        (void) kvr_router_lease(&router, i, 0, NOW);
    }

    snapshot = kvr_snapshot_create(&router);
    begun = false;
    kvr_registration_init(&reg, WORKER, 1);
}


static void
zone_close(void)
{
    kvr_snapshot_destroy(snapshot);
    (void) kvr_router_remove_worker(&router, WORKER, 1);

    drained(&router, NOW);

    kvr_router_leave(&router);
    kvr_router_detach(&router);
}


static void
row(uint8_t what, const uint8_t *bytes, size_t len)
{
    char  *text;

    text = strndup((const char *) bytes, len);
    if (text == NULL) {
        fuzz_fail("out of memory");
    }

    switch (what & 7) {

    case 0:
    case 1:
        field(what >> 4, (char *) bytes, len);
        break;

    case 2:
        address(text);
        break;

    case 3:
        url((char *) bytes, len);
        break;

    case 4:
        pointer((char *) bytes, len);
        break;

    case 5:
        part((char *) bytes, len);
        break;

    case 6:
        enrol();
        break;

    default:
        kvr_registration_init(&reg, WORKER, 1);
        break;
    }

    free(text);
}


static void
field(uint8_t which, const char *value, size_t len)
{
    char        *copy;
    const char  *wrong;

    copy = fuzz_copy(value, len);
    which %= KVR_MEMBER_FIELDS;
    wrong = kvr_registration_field(&reg, which, copy, len);

    if (wrong && *wrong == '\0') {
        fuzz_fail("%s is wrong, and nothing says why",
                  kvr_member_word(which));
    }

    free(copy);
}


/* What was taken of it is in the bounds, whatever was refused between. */

static void
enrol(void)
{
    size_t             i;
    kvr_rc_t           rc;
    const char        *model;
    kvr_registered_t   what;

    model = reg.conf.model;

    for (i = 0; model[i]; i++) {
        if (i == KVR_MODEL_MAX || model[i] < 0x20 || model[i] > 0x7e) {
            fuzz_fail("the model \"%s\"", model);
        }
    }

    if (reg.conf.ranks < 1 || reg.conf.ranks > KVR_RANKS_MAX
        || reg.conf.weight < 1 || reg.conf.weight > KVR_WEIGHT_MAX * 1000
        || (reg.conf.max_prefill_tokens > KVR_TOKENS_MAX
            && reg.conf.max_prefill_tokens != KVR_TOKENS_AUTO)
        || reg.conf.role > KVR_ROLE_DECODE
        || reg.contract.block_size > KVR_BLOCK_SIZE_MAX
        || memchr(reg.reason, '\0', KVR_REASON_MAX + 1) == NULL
        || memchr(reg.conf.address, '\0', KVR_ADDRESS_MAX + 1) == NULL
        || (reg.conf.address[0] && kvr_address_wrong(reg.conf.address)))
    {
        fuzz_fail("a registration that can't be");
    }

    if (kvr_registration_foreign(&reg, "m", (kvr_contract_t) { 4, false })
        != NULL)
    {
        (void) kvr_router_ignore_worker(&router, WORKER, 1);
        return;
    }

    rc = kvr_router_register(&router, &reg, NOW + 1, &what);

    if (rc != KVR_OK && rc != KVR_FULL && rc != KVR_DECLINED) {
        fuzz_fail("a registration ends with %d", rc);
    }
}


static void
address(const char *text)
{
    if (strlen(text) <= KVR_ADDRESS_MAX) {
        (void) kvr_address_wrong(text);
    }
}


/* What is taken has a host, and no password is in the masked text. */

static void
url(const char *bytes, size_t len)
{
    char             *copy, *masked;
    size_t            n;
    const char       *wrong;
    kvr_redis_url_t   u;

    copy = fuzz_copy(bytes, len);
    masked = malloc(len + KVR_REDIS_URL_MASK + 1);

    wrong = kvr_redis_url_parse(&u, copy, len);
    n = kvr_redis_url_mask(masked, copy, len);

    if (n > len + KVR_REDIS_URL_MASK) {
        fuzz_fail("%zu bytes of %zu, masked", n, len);
    }

    masked[n] = '\0';

    if (wrong == NULL
        && (u.host[0] == '\0' || u.port > 65535 || u.db > INT32_MAX
            || (u.password[0] && strstr(masked, "***") == NULL
                && strstr(masked, "password=") == NULL)))
    {
        fuzz_fail("a URL \"%s\", shown as \"%s\"", u.name, masked);
    }

    free(masked);
    free(copy);
}


/* Its fields, one after the other, each with its length (1; 255: none). */

static void
pointer(const char *bytes, size_t len)
{
    char           *copies[KVR_POINTER_ROUTER];
    size_t          n, lens[KVR_POINTER_ROUTER];
    uint32_t        i;
    kvr_rc_t        rc;
    char            why[KVR_POINTER_WHY];
    kvr_pointer_t   p;

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {
        copies[i] = NULL;
        lens[i] = 0;

        if (len == 0 || (uint8_t) *bytes == 255) {
            bytes += len != 0;
            len -= len != 0;
            continue;
        }

        n = kvr_min((uint8_t) *bytes, len - 1);

        copies[i] = fuzz_copy(bytes + 1, n);
        lens[i] = n;
        bytes += n + 1;
        len -= n + 1;
    }

    why[0] = '\0';
    p.head.contract.pairs = false;
    p.head.hybrid = false;
    rc = kvr_pointer_read(&p, (const char *const *) copies, lens, why);

    for (i = 0; i < KVR_POINTER_ROUTER; i++) {
        free(copies[i]);
    }

    switch (rc) {

    case KVR_OK:
        if (p.head.epoch == 0 || p.head.epoch > KVR_EPOCH_MAX
            || p.head.seq == 0 || p.parts > KVR_POINTER_PARTS)
        {
            fuzz_fail("a pointer that can't be");
        }

        (void) kvr_snapshot_usable(&router, WORKER, 1, &p.head);
        begun = kvr_snapshot_begin(snapshot, WORKER, 1, &p.head) == KVR_OK;
        break;

    case KVR_INVALID:
        if (why[0] == '\0') {
            fuzz_fail("a pointer is wrong, and nothing says why");
        }

        break;

    default:
        break;
    }
}


/* A part, or an entry of the log; an empty one: the end. */

static void
part(const char *bytes, size_t len)
{
    bool         behind;
    char        *copy;
    kvr_rc_t     rc;
    const char  *detail;

    if (!begun) {
        return;
    }

    if (len == 0) {
        begun = kvr_snapshot_end(snapshot, NOW, &behind) != KVR_OK;
        return;
    }

    copy = fuzz_copy(bytes, len);
    rc = kvr_snapshot_open(snapshot, copy, len, &detail);

    while (rc == KVR_OK) {
        rc = kvr_snapshot_step(snapshot, 16);
    }

    if (rc != KVR_DONE) {
        (void) kvr_snapshot_abort(snapshot);
        begun = false;
    }

    free(copy);
}
