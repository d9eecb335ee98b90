/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What Redis says of members: fields of any bytes, and what becomes of the
 * workers that they name.
 */


#include "zone.h"
#include "wire/kvr_address.h"


static kvr_registration_t  reg;

static const char  *loaded = "";        /* "lora" of who registers */
static const char  *says = "";           /* "reason" */
static const char  *hybrid = "0";
static const char  *draining = "0";
static bool         drained = true;     /* Redis was asked after the word */


/* ---- fields ------------------------------------------------------------- */

/* The field of that name; one that routers don't read when there is none. */

static kvr_member_field_t
named(const char *name)
{
    uint32_t  i;

    for (i = 0; i < KVR_MEMBER_ROUTER; i++) {
        if (strcmp(kvr_member_word(i), name) == 0) {
            return i;
        }
    }

    return KVR_MEMBER_STARTED;
}


static const char *
field(const char *name, const char *value)
{
    return kvr_registration_field(&reg, named(name), value, strlen(value));
}


static bool
refused(const char *name, const char *value, size_t len)
{
    char                *copy;
    const char          *wrong;
    kvr_registration_t   before;

    /* of no more bytes than it has, so that ASAN sees who reads further */

    copy = malloc(len ? len : 1);
    memcpy(copy, value, len);

    before = reg;
    wrong = kvr_registration_field(&reg, named(name), copy, len);

    free(copy);

    return wrong && memcmp(&before, &reg, sizeof(reg)) == 0;
}


static void
test_fields(void)
{
    size_t  i;
    char    text[2000];

    static const char  *addresses[] = {
        "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536",
        "127.0.0.1:8000x", "127.0.0.1:+80", "127.0.0.1:000080", ":8000",
        "engine!:8000", "1.2.3:80", "1.2.3.256:80", "http://127.0.0.1:80",
        "127.0.0.1:80/v1", "::1:8000", "[::1]", "[::1:80", "[x]:80", "[]:80",
        "unix:", "unix:x", "unix:relative/path", "127.0.0.1:80 ",
        "127.0.0.1:80\n", "\x7f", "%s%n:80", "[::1]x:80"
    };
    static const char  *numbers[] = {
        "", "0", "-1", "+1", " 1", "1 ", "1x", "0x1", "1.0", "1025",
        "4294967297", "18446744073709551617", "99999999999999999999999999"
    };
    static const char  *weights[] = {
        "", "0", "-1", "nan", "inf", "x", "1x", " 1", "0.0001", "1000.1",
        "1e9", "1e-9", ".", "00000000000000000000000000000000000000000001"
    };

    char  reason[KVR_REASON_MAX + 9];

    kvr_registration_init(&reg, "w1", 2);

    ok(strcmp(reg.conf.id, "w1") == 0 && reg.conf.ranks == 1
       && reg.conf.role == KVR_ROLE_BOTH && reg.conf.weight == 1000
       && reg.conf.address[0] == '\0' && reg.contract.block_size == 0,
       "a registration without fields has the defaults");

    ok(field("address", "127.0.0.1:8000") == NULL
       && strcmp(reg.conf.address, "127.0.0.1:8000") == 0
       && field("address", "[::1]:65535") == NULL
       && strcmp(reg.conf.address, "[::1]:65535") == 0
       && field("model", "meta/llama 3") == NULL
       && strcmp(reg.conf.model, "meta/llama 3") == 0
       && field("ranks", "1024") == NULL && reg.conf.ranks == 1024
       && field("block_size", "64") == NULL && reg.contract.block_size == 64
       && field("role", "prefill") == NULL
       && reg.conf.role == KVR_ROLE_PREFILL
       && field("weight", ".25") == NULL && reg.conf.weight == 250
       && field("weight", "0.5") == NULL && reg.conf.weight == 500
       && field("engine", "sglang") == NULL
       && reg.conf.engine == KVR_ENGINE_SGLANG
       && field("lora", "sql-1,org/chat v2") == NULL
       && strcmp(reg.conf.lora, "sql-1,org/chat v2") == 0,
       "every field is taken");

    ok(field("max_prefill_tokens", "") == NULL && reg.conf.own == 0
       && field("max_prefill_tokens", "1000000000") == NULL
       && reg.conf.max_prefill_tokens == 1000000000
       && reg.conf.own == KVR_OWN_TOKENS
       && field("max_prefill_tokens", "auto") == NULL
       && reg.conf.max_prefill_tokens == KVR_TOKENS_AUTO
       && field("max_prefill_tokens", "0") == NULL
       && reg.conf.max_prefill_tokens == 0
       && refused("max_prefill_tokens", "1000000001", 10)
       && refused("max_prefill_tokens", "4294967295", 10)
       && refused("max_prefill_tokens", "autox", 5)
       && refused("max_prefill_tokens", "aut", 3)
       && refused("max_prefill_tokens", "-1", 2),
       "a bound of tokens is a number, \"auto\", or not said");

    ok(field("engine", "mlc 2") == NULL
       && reg.conf.engine == KVR_ENGINE_UNKNOWN
       && field("engine", "") == NULL
       && reg.conf.engine == KVR_ENGINE_UNKNOWN,
       "an engine of a kind that is not known here is unknown");

    ok(field("draining", "1") == NULL && reg.draining
       && field("draining", "0") == NULL && !reg.draining
       && field("draining", "yes") != NULL && field("draining", "") != NULL,
       "a worker drains, or does not, in these words alone");

    ok(field("hybrid", "1") == NULL && reg.hybrid
       && field("hybrid", "yes") == NULL && !reg.hybrid
       && field("reason", "no \xff\n") == NULL
       && strcmp(reg.reason, "no ??") == 0,
       "so is what it says of itself, printable");

    memset(reason, 'x', sizeof(reason));
    ok(kvr_registration_field(&reg, KVR_MEMBER_REASON, reason, sizeof(reason))
       == NULL
       && strlen(reg.reason) == KVR_REASON_MAX
       && field("reason", "") == NULL && reg.reason[0] == '\0',
       "and cut, or none");

    ok(field("epoch", "12") == NULL && field("", "") == NULL
       && field("addres", "x") == NULL, "fields of others are ignored");

    kvr_registration_init(&reg, "w1", 2);
    ok(field("address", "") == NULL && reg.conf.address[0] == '\0'
       && field("address", "unix:/tmp/engine.sock") == NULL,
       "an address may be missing, or a path");

    kvr_registration_init(&reg, "w1", 2);

    for (i = 0; i < sizeof(addresses) / sizeof(char *); i++) {
        ok(refused("address", addresses[i], strlen(addresses[i])),
           "address number %zu is refused", i);
    }

    for (i = 0; i < sizeof(numbers) / sizeof(char *); i++) {
        ok(refused("ranks", numbers[i], strlen(numbers[i]))
           && refused("block_size", numbers[i], strlen(numbers[i])),
           "\"%s\" are no ranks, and no block size", numbers[i]);
    }

    for (i = 0; i < sizeof(weights) / sizeof(char *); i++) {
        ok(refused("weight", weights[i], strlen(weights[i])),
           "\"%s\" is no weight", weights[i]);
    }

    ok(refused("role", "", 0) && refused("role", "Both", 4)
       && refused("role", "both ", 5) && refused("role", "bot", 3),
       "a role is one of three words");

    ok(refused("model", "a\nb", 3) && refused("model", "a\0b", 3)
       && refused("model", "\xc3\xa4", 2) && refused("model", "\x7f", 1),
       "a model is printable");

    memset(text, 'x', sizeof(text));

    ok(refused("address", text, sizeof(text))
       && refused("model", text, KVR_MODEL_MAX + 1)
       && refused("model", text, sizeof(text))
       && refused("role", text, sizeof(text))
       && refused("weight", text, sizeof(text))
       && refused("ranks", text, sizeof(text)),
       "what is too long is refused");

    ok(refused("address", "127.0.0.1:80\0", 13)
       && refused("address", "127.0.0.1:80\0x", 14),
       "an address has no null byte");

    text[KVR_MODEL_MAX] = '\0';
    ok(field("model", text) == NULL
       && strlen(reg.conf.model) == KVR_MODEL_MAX,
       "a model may have 127 bytes");

    memcpy(text, "unix:/", 6);
    text[5 + 107] = '\0';
    ok(kvr_address_wrong(text) == NULL, "a path may have 107 bytes");

    text[5 + 107] = 'x';
    text[5 + 108] = '\0';
    ok(kvr_address_wrong(text) != NULL, "and no more");
}


static void
test_adapters(void)
{
    char         text[2 * KVR_ADAPTERS_MAX];
    size_t       i, len;
    const char  *list, *name;

    kvr_registration_init(&reg, "w1", 2);

    ok(field("lora", "") == NULL && reg.conf.lora[0] == '\0'
       && field("lora", " , ,,") == NULL && reg.conf.lora[0] == '\0',
       "a list of adapters may be empty");

    ok(field("lora", " a , b c,,d") == NULL
       && strcmp(reg.conf.lora, "a,b c,d") == 0,
       "blanks around names, and empty ones, are left out");

    list = reg.conf.lora;
    ok(kvr_adapters_next(&list, &name, &len) && len == 1 && *name == 'a'
       && kvr_adapters_next(&list, &name, &len) && len == 3
       && memcmp(name, "b c", 3) == 0
       && kvr_adapters_next(&list, &name, &len) && len == 1 && *name == 'd'
       && !kvr_adapters_next(&list, &name, &len), "the names are these");

    ok(field("lora", "e") == NULL && strcmp(reg.conf.lora, "e") == 0,
       "another list takes its place");

    ok(refused("lora", "a\0b", 3) && refused("lora", "a\nb", 3)
       && refused("lora", "\xc3\xa4", 2) && refused("lora", "a,\x7f", 3)
       && refused("lora", "\t", 1), "names are printable");

    memset(text, 'x', sizeof(text));

    ok(refused("lora", text, sizeof(text))
       && refused("lora", text, KVR_ADAPTERS_MAX + 1),
       "a name that is too long is refused");

    for (i = 1; i < sizeof(text); i += 2) {
        text[i] = ',';
    }

    ok(refused("lora", text, sizeof(text))
       && refused("lora", text, KVR_ADAPTERS_MAX + 2),
       "and so are too many");

    ok(kvr_registration_field(&reg, KVR_MEMBER_LORA, text, KVR_ADAPTERS_MAX)
       == NULL
       && strlen(reg.conf.lora) == KVR_ADAPTERS_MAX,
       "511 bytes of names are taken");

    ok(kvr_adapters_add(reg.conf.lora, "x", 1) != NULL
       && strlen(reg.conf.lora) == KVR_ADAPTERS_MAX, "and no more");

    reg.conf.lora[0] = '\0';
    ok(kvr_adapters_add(reg.conf.lora, "a,b", 3) != NULL
       && kvr_adapters_add(reg.conf.lora, " a ", 3) == NULL
       && kvr_adapters_add(reg.conf.lora, "", 0) == NULL
       && kvr_adapters_add(reg.conf.lora, "b", 1) == NULL
       && strcmp(reg.conf.lora, "a,b") == 0, "names come one by one, too");
}


static bool
foreign(const char *model, uint32_t block_size, bool pairs)
{
    kvr_contract_t  zone = { block_size, pairs };

    return kvr_registration_foreign(&reg, model, zone) != NULL;
}


static void
test_foreign(void)
{
    kvr_registration_init(&reg, "w1", 2);

    ok(!foreign("llama", 16, false) && !foreign("llama", 16, true),
       "a worker that does not say what it is is for every zone");

    (void) field("model", "llama");
    (void) field("block_size", "16");

    ok(!foreign("llama", 16, false) && !foreign("", 16, false),
       "one that does is for its model's zone, and for a zone of any");
    ok(foreign("qwen", 16, false) && foreign("llam", 16, false),
       "but for no other model's");
    ok(foreign("llama", 32, false) && foreign("", 32, false),
       "nor for one of another block size");

    (void) field("eagle", "1");
    ok(foreign("llama", 16, false) && !foreign("llama", 16, true),
       "blocks of pairs of tokens are for a zone of such");

    (void) field("eagle", "0");
    ok(!foreign("llama", 16, false) && foreign("llama", 16, true),
       "and others are not");

    ok(field("eagle", "on") != NULL && field("eagle", "") != NULL
       && field("eagle", "2") != NULL, "it is 0 or 1");
}


/* ---- the registry ------------------------------------------------------- */

static uint32_t
flags_of(const char *worker)
{
    uint32_t           slot, flags, generation;
    kvr_worker_conf_t  conf;

    if (kvr_router_find_worker(&router, worker, strlen(worker), &slot)
        != KVR_OK
        || kvr_router_read_worker(&router, slot, &conf, &flags, &generation)
           != KVR_OK)
    {
        return 0;
    }

    return flags;
}


static bool
silent(const char *worker, uint64_t ms)
{
    uint32_t           slot;
    const char        *reason;
    kvr_confidence_t   c;

    if (kvr_router_find_worker(&router, worker, strlen(worker), &slot)
        != KVR_OK)
    {
        return false;
    }

    c = kvr_fleet_confidence(kvr_router_worker(&router, slot), ms, 5000,
                             true, &reason);

    return c == KVR_DEGRADED && strcmp(reason, "silent") == 0;
}


static const char *
address_of(const char *worker)
{
    uint32_t  slot;

    return kvr_router_find_worker(&router, worker, strlen(worker), &slot)
           == KVR_OK ? kvr_router_worker(&router, slot)->conf.address : "-";
}


/* "-": no such worker. */

static const char *
said_of(const char *worker)
{
    uint32_t     slot;
    static char  reason[KVR_REASON_MAX + 1];

    return kvr_router_find_worker(&router, worker, strlen(worker), &slot)
           == KVR_OK
           && kvr_router_publisher_reason(&router, slot, reason) == KVR_OK
           ? reason : "-";
}


/* "-": no such worker. */

static const char *
adapters_of(const char *worker)
{
    uint32_t                  slot, flags, generation;
    static kvr_worker_conf_t  conf;

    return kvr_router_find_worker(&router, worker, strlen(worker), &slot)
           == KVR_OK
           && kvr_router_read_worker(&router, slot, &conf, &flags, &generation)
              == KVR_OK ? conf.lora : "-";
}


/* KVR_REGISTERED_…, or a code of failure. */

static int
registered(const char *worker, const char *address, uint64_t expires)
{
    kvr_rc_t          rc;
    kvr_registered_t  what;

    (void) lease(worker, now_ms);

    kvr_registration_init(&reg, worker, strlen(worker));
    strcpy(reg.conf.address, address);
    (void) field("lora", loaded);
    (void) field("reason", says);
    (void) field("hybrid", hybrid);
    (void) field("draining", draining);
    reg.drained = drained;

    rc = kvr_router_register(&router, &reg, expires, &what);

    return rc == KVR_OK ? (int) what : (int) rc;
}


static kvr_rc_t
deregistered(const char *worker)
{
    return kvr_router_deregister(&router, worker, strlen(worker));
}


static void
message_of(const char *worker, const char *text)
{
    kvr_rc_t       rc;
    const char    *detail;
    kvr_ingest_t  *in;

    in = kvr_ingest_create(&router);
    (void) lease(worker, now_ms);

    rc = kvr_ingest_open(in, worker, strlen(worker), text, strlen(text), true,
                         now_ms, &detail)
         == KVR_INGEST_APPLY ? KVR_OK : KVR_ERROR;

    while (rc == KVR_OK) {
        rc = kvr_ingest_step(in, 100);
    }

    kvr_ingest_destroy(in);
}


static void
event_of(const char *worker)
{
    char  text[256];

    snprintf(text, sizeof(text), "{\"worker_id\":\"%s\",\"event\":"
             "{\"event_id\":1,\"data\":{\"stored\":{\"parent_hash\":null,"
             "\"blocks\":[{\"block_hash\":101,\"tokens_hash\":1}]}}}}",
             worker);

    message_of(worker, text);
}


/* Worker "a" is at port 3, and of Redis. */

static void
test_drains(void)
{
    uint32_t      i;
    const char   *shared[] = { "a", "s" };
    kvr_worker_conf_t  conf;

    kvr_worker_conf_init(&conf, "s", 1);
    strcpy(conf.address, "127.0.0.1:9");
    (void) kvr_router_put_worker(&router, &conf, KVR_WORKER_STATIC);

    for (i = 0; i < 2; i++) {
        draining = "1";
        (void) registered(shared[i], "127.0.0.1:3", UINT64_MAX);
        ok(flags_of(shared[i]) & KVR_WORKER_LEAVING,
           "a registration says that \"%s\" drains", shared[i]);

        draining = "0";
        drained = false;
        (void) registered(shared[i], "127.0.0.1:3", UINT64_MAX);
        ok(flags_of(shared[i]) & KVR_WORKER_LEAVING,
           "an answer that is older than a message ends nothing");
        drained = true;

        (void) kvr_router_drain(&router, shared[i], 1, true);
        (void) registered(shared[i], "127.0.0.1:3", UINT64_MAX);
        is_u64(flags_of(shared[i]) & KVR_WORKER_DRAINS, KVR_WORKER_DRAINING,
               "a later one ends its own drain alone");

        draining = "1";
        (void) registered(shared[i], "127.0.0.1:3", UINT64_MAX);
        (void) kvr_router_drain(&router, shared[i], 1, false);
        is_u64(flags_of(shared[i]) & KVR_WORKER_DRAINS, KVR_WORKER_LEAVING,
               "and so does the API");
    }

    (void) registered("s", "127.0.0.1:3", 1);
    (void) kvr_router_drain(&router, "s", 1, false);
    ok(!(flags_of("s") & KVR_WORKER_DRAINS),
       "the API ends what a registration said that has expired");

    (void) registered("s", "127.0.0.1:3", UINT64_MAX);
    draining = "0";
    is_u64(deregistered("s"), (uint64_t) KVR_DECLINED,
           "a worker of the configuration stays");
    ok(!(flags_of("s") & KVR_WORKER_DRAINS), "and drains no more");

    (void) deregistered("a");
    ok(!(flags_of("a") & KVR_WORKER_DRAINS), "who is gone drains no more");
    (void) registered("a", "127.0.0.1:3", 9000);
    event_of("a");
}


static void
test_registry(void)
{
    uint32_t           holder, slot, version;
    kvr_worker_conf_t  conf;

    is_u64(registered("a", "127.0.0.1:1", 5000), KVR_REGISTERED_NEW,
           "%s: a worker is made", kind->name);
    is_u64(flags_of("a"), KVR_WORKER_USED | KVR_WORKER_REDIS, "by Redis");
    ok(kvr_router_find_worker(&router, "a", 1, &slot) == KVR_OK
       && kvr_router_find_holder(&router, slot, 0, &holder) == KVR_OK,
       "with its ranks");

    version = kvr_router_version(&router);
    is_u64(registered("a", "127.0.0.1:1", 6000), KVR_REGISTERED_AS_BEFORE,
           "again, it is the same");
    is_u64(kvr_router_version(&router), version, "and nobody has to look");

    says = "the engine was not reached yet";
    ok(registered("a", "127.0.0.1:1", 6000) == KVR_REGISTERED_AS_BEFORE
       && strcmp(said_of("a"), says) == 0,
       "its publisher may say why it is not complete");
    says = "";
    ok(registered("a", "127.0.0.1:1", 6000) == KVR_REGISTERED_AS_BEFORE
       && strcmp(said_of("a"), "") == 0, "or nothing any more");

    is_u64(registered("a", "127.0.0.1:2", 6000), KVR_REGISTERED_CHANGED,
           "another address is a change");
    ok(strcmp(address_of("a"), "127.0.0.1:2") == 0, "that is taken");

    loaded = "sql,chat";
    is_u64(registered("a", "127.0.0.1:2", 6000), KVR_REGISTERED_CHANGED,
           "so are other adapters");
    ok(strcmp(adapters_of("a"), "sql,chat") == 0, "that are remembered");
    ok(registered("a", "127.0.0.1:2", 6000) == KVR_REGISTERED_AS_BEFORE
       && kvr_router_version(&router) != version, "and said to all, once");

    loaded = "";
    is_u64(registered("a", "127.0.0.1:2", 6000), KVR_REGISTERED_CHANGED,
           "or none any more");
    ok(strcmp(adapters_of("a"), "") == 0, "which is to say: not known");

    ok(!silent("a", 6000)
       && silent("a", 6001),
       "it is silent when its registration expired");
    (void) registered("a", "127.0.0.1:2", 9000);
    ok(!silent("a", 6001), "until that is renewed");

    ok(kvr_router_expire(&router, "a", 1, 5000) == KVR_OK
       && !silent("a", 5000)
       && silent("a", 5001),
       "or when it is found to be gone before its time");
    ok(kvr_router_expire(&router, "a", 1, 7000) == KVR_OK
       && silent("a", 5001), "and stays so");

    (void) kvr_router_drain(&router, "a", 1, true);
    (void) registered("a", "127.0.0.1:3", 9000);
    ok(flags_of("a") & KVR_WORKER_DRAINING, "a drain stays");
    (void) kvr_router_drain(&router, "a", 1, false);

    event_of("a");
    is_u64(matched("a", row(1, 1), 1).device, 1, "its events are its own");

    test_drains();

    is_u64(deregistered("a"), KVR_OK, "a worker is taken out");
    is_u64(matched("a", row(1, 1), 1).device, 0, "with its blocks");
    ok(flags_of("a") & KVR_WORKER_DELETED, "and is no candidate");
    is_u64(deregistered("a"), KVR_DECLINED, "once");
    is_u64(kvr_router_expire(&router, "a", 1, 5000), (uint64_t) KVR_DECLINED,
           "who has left can't expire");
    (void) lease("nobody", now_ms);
    is_u64(kvr_router_expire(&router, "nobody", 6, 5000),
           (uint64_t) KVR_DECLINED, "nor who is not known");
    is_u64(deregistered("nobody"), KVR_DECLINED, "one that is not known not");

    is_u64(registered("a", "127.0.0.1:3", 9000), KVR_REGISTERED_NEW,
           "it may come back");
    ok(!(flags_of("a") & KVR_WORKER_DELETED), "and is there");

    says = "it is lost";
    (void) registered("a", "127.0.0.1:3", 9000);
    says = "";
    (void) deregistered("a");
    message_of("a", "\x01");
    ok(flags_of("a") & KVR_WORKER_DELETED,
       "what can't be read brings nobody back");
    event_of("a");
    is_u64(flags_of("a"), KVR_WORKER_USED | KVR_WORKER_SEEN,
           "events do, too");
    ok(strcmp(said_of("a"), "") == 0, "without what it said before");
    is_u64(address_of("a")[0], 0, "without an address");
    is_u64(registered("a", "127.0.0.1:3", 9000), KVR_REGISTERED_NEW,
           "until it registers");
    is_u64(matched("a", row(1, 1), 1).device, 1, "which costs it no block");

    says = "it is lost";
    (void) registered("a", "127.0.0.1:3", 9000);
    says = "";
    (void) kvr_router_remove_worker(&router, "a", 1);
    is_u64(registered("a", "127.0.0.1:3", 9000), (uint64_t) KVR_DECLINED,
           "what a person deleted stays deleted");
    event_of("a");
    ok(flags_of("a") & KVR_WORKER_DELETED, "whatever it sends");
    put("a");
    ok(strcmp(said_of("a"), "") == 0, "what it said is forgotten");
    is_u64(registered("a", "127.0.0.1:4", 9000), KVR_REGISTERED_AS_BEFORE,
           "what a person put");
    ok(flags_of("a") & KVR_WORKER_API && address_of("a")[0] == '\0',
       "stays as it was put");
    says = "it is gone";
    hybrid = "1";
    ok(registered("a", "127.0.0.1:4", 9000) == KVR_REGISTERED_AS_BEFORE
       && strcmp(said_of("a"), says) == 0 && flags_of("a") & KVR_WORKER_HYBRID,
       "but for what its publisher says of itself and the engine");
    says = "";
    hybrid = "0";
    ok(registered("a", "127.0.0.1:4", 9000) == KVR_REGISTERED_AS_BEFORE
       && strcmp(said_of("a"), "") == 0 && flags_of("a") & KVR_WORKER_HYBRID,
       "and that a model is hybrid is not forgotten");
    is_u64(deregistered("a"), KVR_DECLINED, "and stays");
    ok(!(flags_of("a") & KVR_WORKER_DELETED)
       && !silent("a", 99999),
       "without a registration");
    ok(kvr_router_expire(&router, "a", 1, 5000) == KVR_OK
       && silent("a", 5001),
       "unless it should have one: then it is silent, too");

    (void) registered("s", "127.0.0.1:5", 9000);
    memset(&conf, 0, sizeof(conf));
    strcpy(conf.id, "s");
    strcpy(conf.address, "127.0.0.1:6");
    conf.ranks = 1;
    conf.weight = 1000;
    is_u64(kvr_router_set_static(&router, &conf, 1), KVR_OK,
           "the configuration has it");
    (void) registered("s", "127.0.0.1:5", 9000);
    ok(strcmp(address_of("s"), "127.0.0.1:6") == 0, "and overrides Redis");
    (void) kvr_router_set_static(&router, NULL, 0);
    (void) registered("s", "127.0.0.1:5", 9000);
    ok(strcmp(address_of("s"), "127.0.0.1:5") == 0, "as long as it has it");
}


static void
test_ignored(void)
{
    (void) lease("o", now_ms);
    (void) lease("p", now_ms);

    is_u64(kvr_router_ignore_worker(&router, "o", 1), KVR_DECLINED,
           "%s: a foreign worker that is not known is nobody", kind->name);

    event_of("o");
    is_u64(matched("o", row(1, 1), 1).device, 1, "one that sends events");
    is_u64(kvr_router_ignore_worker(&router, "o", 1), KVR_OK,
           "is taken out");
    is_u64(matched("o", row(1, 1), 1).device, 0, "with its blocks");
    event_of("o");
    ok(flags_of("o") & KVR_WORKER_DELETED, "its events are dropped");
    is_u64(kvr_router_ignore_worker(&router, "o", 1), KVR_DECLINED, "once");
    is_u64(registered("o", "127.0.0.1:7", 9000), KVR_REGISTERED_NEW,
           "until it is one of the zone's");
    event_of("o");
    is_u64(matched("o", row(1, 1), 1).device, 1, "then they are taken");

    put("p");
    is_u64(kvr_router_ignore_worker(&router, "p", 1), KVR_DECLINED,
           "what a person put is not foreign");
}


/* Puts an address of a name. */

static kvr_rc_t
named_put(const char *id, uint64_t name)
{
    kvr_worker_conf_t  conf;

    kvr_worker_conf_init(&conf, id, strlen(id));
    memcpy(conf.address, "127.0.0.1:9", 12);
    conf.events_off = 1;
    conf.name = name;

    return kvr_router_put_worker(&router, &conf, KVR_WORKER_NAMED);
}


static void
test_named(void)
{
    uint32_t  slot, version, generation;

    is_u64(named_put("n", 1), KVR_OK, "%s: an address of a name", kind->name);
    is_u64(flags_of("n"), KVR_WORKER_USED | KVR_WORKER_NAMED,
           "is a worker of it");

    version = kvr_router_version(&router);
    ok(named_put("n", 1) == KVR_OK && kvr_router_version(&router) == version,
       "again, it is the same");
    is_u64(named_put("n", 2), KVR_DECLINED, "another name has none there");
    is_u64(kvr_router_take_named(&router, "n", 1, 2), KVR_DECLINED,
           "and takes none away");

    (void) kvr_router_find_worker(&router, "n", 1, &slot);
    generation = kvr_router_worker(&router, slot)->generation;
    (void) lease("n", now_ms);
    event_of("n");
    is_u64(kvr_router_take_named(&router, "n", 1, 1), KVR_OK,
           "the address leaves");
    ok(flags_of("n") & KVR_WORKER_DELETED
       && !kvr_worker_tombstone(flags_of("n"))
       && kvr_router_take_named(&router, "n", 1, 1) == KVR_DECLINED,
       "its worker is gone");

    ok(named_put("n", 2) == KVR_OK
       && kvr_router_worker(&router, slot)->generation != generation
       && kvr_router_worker(&router, slot)->counters.stores == 0
       && matched("n", row(1, 1), 1).device == 0,
       "who returns is another one, and has nothing");

    is_u64(registered("n", "127.0.0.1:9", 9000), KVR_REGISTERED_NEW,
           "who registers is registered");
    ok(named_put("n", 2) == KVR_DECLINED
       && kvr_router_take_named(&router, "n", 1, 2) == KVR_DECLINED,
       "and of no name any more");
    ok(deregistered("n") == KVR_OK && named_put("n", 2) == KVR_OK
       && flags_of("n") == (KVR_WORKER_USED | KVR_WORKER_NAMED),
       "until it leaves");

    is_u64(kvr_router_remove_worker(&router, "n", 1), KVR_OK,
           "who is deleted");
    is_u64(named_put("n", 2), KVR_DECLINED, "stays deleted");
    ok(kvr_router_take_named(&router, "n", 1, 2) == KVR_OK
       && named_put("n", 2) == KVR_OK, "until the name leaves the address");

    put("n");
    is_u64(named_put("n", 2), KVR_DECLINED, "what a person put stands");
}


static void
test_lease(void)
{
    kvr_registered_t  what;

    kvr_router_lease_release(&router);
    kvr_registration_init(&reg, "l", 1);

    ok(kvr_router_register(&router, &reg, 1, &what) == KVR_LOST
       && deregistered("a") == KVR_LOST
       && kvr_router_ignore_worker(&router, "a", 1) == KVR_LOST,
       "%s: without the lease nothing is written", kind->name);

    (void) lease("l", now_ms);
    reg.conf.ranks = 0;
    ok(kvr_router_register(&router, &reg, 1, &what) == KVR_INVALID,
       "nor with ranks out of range");
    kvr_registration_init(&reg, "a/b", 3);
    ok(kvr_router_register(&router, &reg, 1, &what) == KVR_INVALID,
       "nor with an id that is none");
}


/* Tables that are full of workers, and of ranks. */

static void
test_full(void)
{
    int       rc;
    char      id[16];
    uint32_t  i;

    rc = KVR_OK;

    for (i = 0; i < 20000 && rc != KVR_FULL; i++) {
        snprintf(id, sizeof(id), "f%u", i);
        rc = registered(id, "127.0.0.1:8", 9000);
    }

    is_u64(rc, (uint64_t) KVR_FULL, "%s: a zone has so much room",
           kind->name);
    ok(kvr_router_find_worker(&router, id, strlen(id), &i) == KVR_DECLINED,
       "who found none is not there");

    (void) lease("f0", now_ms);
    is_u64(deregistered("f0"), KVR_OK, "one leaves");
    is_u64(registered("f0", "127.0.0.1:8", 9000), KVR_REGISTERED_NEW,
           "and comes back to its place");
}


int
main(void)
{
    uint32_t  i;

    test_fields();
    test_adapters();
    test_foreign();

    for (i = 0; i < KINDS; i++) {
        zone_open(&kinds[i], 16 << 20);
        test_registry();
        test_ignored();
        test_named();
        test_lease();
        test_full();
        zone_close();
    }

    return done();
}
