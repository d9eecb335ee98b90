/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_relay_options.h"
#include "kvr_relay_endpoints.h"

#include "wire/kvr_event.h"
#include "wire/kvr_redis_url.h"
#include "fleet/kvr_fleet.h"
#include "zone/kvr_router.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>


#define KVR_RELAY_ENV      "KV_RELAY_"
#define KVR_RELAY_ENV_MAX  64
#define KVR_RELAY_NAME     "abcdefghijklmnopqrstuvwxyz-"


typedef enum {
    KVR_RELAY_TEXT,                     /* of `most` bytes; 0: of any length */
    KVR_RELAY_LIST,                     /* repeated, or with commas */
    KVR_RELAY_NUMBER,
    KVR_RELAY_SIZE,                     /* bytes, with k, m, g */
    KVR_RELAY_SWITCH,                   /* on|off */
    KVR_RELAY_LEVEL,
    KVR_RELAY_RETIRED                   /* went in this version */
} kvr_relay_option_kind_t;


typedef struct {
    const char               *name;
    const char               *value;    /* the name of the value in the help */
    const char               *normal;   /* the default; NULL: none */
    kvr_relay_option_kind_t   kind;
    size_t                    offset;
    uint64_t                  least;
    uint64_t                  most;
    const char               *help;     /* or what takes its place */
} kvr_relay_option_t;


static int kvr_relay_option_set(kvr_relay_options_t *o,
    const kvr_relay_option_t *option, const char *value);
static int kvr_relay_option_list(const kvr_relay_option_t *option,
    kvr_relay_list_t *list, const char *value);
static void kvr_relay_list_free(kvr_relay_list_t *list);
static int kvr_relay_option_number(const kvr_relay_option_t *option,
    const char *value, uint64_t *number);
static int kvr_relay_options_env(kvr_relay_options_t *o);
static char *kvr_relay_option_env(const char *option);
static int kvr_relay_options_listen(const kvr_relay_options_t *o);
static int kvr_relay_options_check(kvr_relay_options_t *o);
static int kvr_relay_options_redis(kvr_relay_options_t *o);
static bool kvr_relay_options_address(const char *text);
static void kvr_relay_options_help(void);


#define at(field)  offsetof(kvr_relay_options_t, field)

static const kvr_relay_option_t  kvr_relay_options[] = {

    { "worker", "ID", NULL, KVR_RELAY_TEXT, at(worker), 0, 0,
      "the worker's id: 1 to 63 of A-Z a-z 0-9 . _ : -" },

    { "redis", "URL", NULL, KVR_RELAY_LIST, at(redis), 0, 0,
      "redis://[[user:]password@]host[:port][/db], rediss://… with TLS, or\n"
      "unix:/path[?db=N]; repeated or with commas: the next is tried when\n"
      "one fails (redis://127.0.0.1:6379)" },

    { "redis-verify", "on|off", "on", KVR_RELAY_SWITCH, at(redis_verify), 0, 0,
      "rediss://: the server's certificate must be for its name, and from\n"
      "an authority that is trusted" },

    { "redis-ca", "FILE", NULL, KVR_RELAY_TEXT, at(redis_ca), 0, 0,
      "rediss://: the authorities, in the PEM format (the system's)" },

    { "redis-name", "NAME", NULL, KVR_RELAY_TEXT, at(redis_name), 0, 0,
      "rediss://: what certificates must be for, and sent as SNI (the\n"
      "URL's host)" },

    { "redis-cert", "FILE", NULL, KVR_RELAY_TEXT, at(redis_cert), 0, 0,
      "rediss://: the relay's own certificate, for servers that demand one,\n"
      "and those between it and its authority, in the PEM format (none)" },

    { "redis-key", "FILE", NULL, KVR_RELAY_TEXT, at(redis_key), 0, 0,
      "rediss://: its key, without a password" },

    { "channel", "PREFIX", KVR_CHANNEL, KVR_RELAY_TEXT, at(channel), 0,
      KVR_RELAY_CHANNEL_MAX,
      "what the channel's name begins with" },

    { "events", "ENDPOINT", NULL, KVR_RELAY_LIST, at(events), 0, 0,
      "the engine's ZMQ events, tcp://host:port; repeated: in the order of\n"
      "the ranks; a batch that names another rank is refused" },

    { "replay", "ENDPOINT", NULL, KVR_RELAY_LIST, at(replay), 0, 0,
      "the engine's ZMQ replay; as often as --events" },

    { "ranks", "N", "1", KVR_RELAY_NUMBER, at(ranks), 1, KVR_RELAY_LIST_MAX,
      "data-parallel ranks: of one --events the others are at the next\n"
      "ports; of --trtllm all are at the URL" },

    { "first-rank", "N", "0", KVR_RELAY_NUMBER, at(first_rank), 0,
      KVR_RANKS_MAX - 1,
      "the engine's number of the first of these ranks, for a node with\n"
      "some of an engine's ranks" },

    { "topic", "TOPIC", "", KVR_RELAY_TEXT, at(topic), 0, 0,
      "subscribe to topics that begin so (all)" },

    { "trtllm", "URL", NULL, KVR_RELAY_TEXT, at(trtllm), 0, 0,
      "instead of --events: TensorRT-LLM's HTTP server, whose\n"
      "kv_cache_events is polled" },

    { "block-size", "N", "16", KVR_RELAY_NUMBER, at(block_size), 1,
      KVR_BLOCK_SIZE_MAX,
      "tokens of a block of the router's zone; the engine's is a multiple\n"
      "of it" },

    { "eagle", "on|off", "off", KVR_RELAY_SWITCH, at(eagle), 0, 0,
      "the engine caches pairs of tokens, as SGLang with EAGLE does, and the\n"
      "router's zone has eagle=on" },

    { "refcount", "on|off", "on", KVR_RELAY_SWITCH, at(refcount), 0, 0,
      "count copies: one removal for each store of a block" },

    { "salted", "on|off", "off", KVR_RELAY_SWITCH, at(salted), 0, 0,
      "the engine runs with cache salts" },

    { "hybrid", "on|off", "off", KVR_RELAY_SWITCH, at(hybrid), 0, 0,
      "the model has layers of which the engine publishes nothing, as\n"
      "SGLang's hybrid models have: the view is BOUND" },

    { "spec-drop", "on|off", "off", KVR_RELAY_SWITCH, at(spec_drop), 0, 0,
      "the engine drafts tokens (EAGLE, MTP), and computes the last cached\n"
      "block again" },

    { "attention-chunk", "TOKENS", "0", KVR_RELAY_NUMBER, at(attention_chunk),
      0, KVR_EVENT_TOKENS_MAX,
      "of the model's chunked local attention, a multiple of the engine's\n"
      "block; without it the view of such a model is BOUND" },

    { "address", "HOST:PORT", "", KVR_RELAY_TEXT, at(address), 0,
      KVR_ADDRESS_MAX,
      "of the engine's HTTP server, for the router" },

    { "model", "NAME", "", KVR_RELAY_TEXT, at(model), 0, KVR_MODEL_MAX,
      "the engine's model" },

    { "role", "ROLE", "both", KVR_RELAY_TEXT, at(role), 0, 0,
      "both, prefill or decode" },

    { "weight", "W", "1", KVR_RELAY_TEXT, at(weight), 0, 0,
      "the worker's weight, 0.001 to 1000" },

    { "max-prefill-tokens", "NUMBER|auto", "", KVR_RELAY_TEXT,
      at(max_prefill_tokens), 0, 0,
      "uncached prompt tokens that the worker may have in flight; 0: no\n"
      "bound (what the router's zone has)" },

    { "lora", "NAMES", "", KVR_RELAY_TEXT, at(lora), 0, 0,
      "the engine's adapters, with commas" },

    { "engine", "KIND", "", KVR_RELAY_TEXT, at(engine), 0, 0,
      "how the engine reads requests: " KVR_ENGINE_ROWS(KVR_ENGINE_WORD)
      "or not said\n(with --trtllm trtllm)" },

    { "memory", "SIZE", "256m", KVR_RELAY_SIZE, at(memory),
      KVR_ZONE_MIN * 2, UINT64_C(1) << 40,
      "for the mirror of what the engine holds; a quarter as much for\n"
      "messages that Redis may need once more, and half as much for the\n"
      "largest message of the engine: what a larger one says is lost" },

    { "snapshot-interval", "N", "4000", KVR_RELAY_NUMBER,
      at(snapshot_interval), 16, 1000000,
      "messages between two snapshots; less than the engine's replay\n"
      "buffer has" },

    { "listen", "HOST:PORT", NULL, KVR_RELAY_TEXT, at(listen), 0, 0,
      "serve /metrics, /health, /ready and /drain\nthere; port 0: any "
      "(nowhere)" },

    { "drain-timeout", "SECONDS", "300", KVR_RELAY_NUMBER, at(drain_timeout),
      1, 86400,
      "a drain waits so long for the engine's last requests" },

    { "log-level", "LEVEL", "info", KVR_RELAY_LEVEL, at(log_level), 0, 0,
      "error, warn, info or debug" },

    { "groups", NULL, NULL, KVR_RELAY_RETIRED, 0, 0, 0,
      "is removed: KV cache groups are always passed on" },

    { "deregister", NULL, NULL, KVR_RELAY_RETIRED, 0, 0, 0,
      "is removed: SIGTERM takes the worker out of the fleet, SIGKILL leaves "
      "it there" },

    { "ring", NULL, NULL, KVR_RELAY_RETIRED, 0, 0, 0,
      "is removed: it is a quarter of --memory" },

    { "message-max", NULL, NULL, KVR_RELAY_RETIRED, 0, 0, 0,
      "is removed: it is half of --memory" },

    { "trtllm-interval", NULL, NULL, KVR_RELAY_RETIRED, 0, 0, 0,
      "is removed: it is 100 ms" }
};

#undef at


#define KVR_RELAY_OPTIONS                                                     \
    (sizeof(kvr_relay_options) / sizeof(kvr_relay_options[0]))


int
kvr_relay_options_read(kvr_relay_options_t *o, int argc, char **argv)
{
    int          i, code;
    char        *name, *value;
    size_t       k, len;
    uint32_t     given[KVR_RELAY_OPTIONS];

    memset(o, 0, sizeof(kvr_relay_options_t));
    memset(given, 0, sizeof(given));

    for (k = 0; k < KVR_RELAY_OPTIONS; k++) {
        if (kvr_relay_options[k].normal != NULL) {
            (void) kvr_relay_option_set(o, &kvr_relay_options[k],
                                        kvr_relay_options[k].normal);
        }
    }

    code = kvr_relay_options_env(o);
    if (code >= 0) {
        return code;
    }

    for (i = 1; i < argc; i++) {
        name = argv[i];

        if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
            kvr_relay_options_help();
            return 0;
        }

        if (strcmp(name, "--version") == 0) {
            printf("kv-relay %s\n", KVR_VERSION);
            return 0;
        }

        if (strcmp(name, "--drain") == 0) {
            o->drain = true;
            continue;
        }

        if (strncmp(name, "--", 2) != 0) {
            fprintf(stderr, "kv-relay: argument %d is not an option\n", i);
            return KVR_RELAY_BAD;
        }

        value = strchr(name, '=');
        len = value ? (size_t) (value - name - 2) : strlen(name + 2);

        for (k = 0; k < KVR_RELAY_OPTIONS; k++) {
            if (strlen(kvr_relay_options[k].name) == len
                && memcmp(kvr_relay_options[k].name, name + 2, len) == 0)
            {
                break;
            }
        }

        if (k == KVR_RELAY_OPTIONS) {

            if (strspn(name, KVR_RELAY_NAME) >= len + 2) {
                fprintf(stderr, "kv-relay: %.*s there is no such option; see "
                        "--help\n", (int) len + 2, name);

            } else {
                fprintf(stderr, "kv-relay: argument %d is no option; see "
                        "--help\n", i);
            }

            return KVR_RELAY_BAD;
        }

        if (value != NULL) {
            value++;

        } else if (++i < argc) {
            value = argv[i];

        } else if (kvr_relay_options[k].kind != KVR_RELAY_RETIRED) {
            return kvr_relay_bad(kvr_relay_options[k].name, "has no value");
        }

        /* the first value given replaces the list of the environment */

        if (kvr_relay_options[k].kind == KVR_RELAY_LIST && !given[k]) {
            kvr_relay_list_free((kvr_relay_list_t *)
                                ((char *) o + kvr_relay_options[k].offset));
        }

        given[k] = 1;

        code = kvr_relay_option_set(o, &kvr_relay_options[k], value);
        if (code >= 0) {
            return code;
        }
    }

    code = kvr_relay_options_listen(o);

    return code >= 0 || o->drain ? code : kvr_relay_options_check(o);
}


static int
kvr_relay_options_env(kvr_relay_options_t *o)
{
    int      code;
    char    *value;
    size_t   k;

    for (k = 0; k < KVR_RELAY_OPTIONS; k++) {
        value = kvr_relay_option_env(kvr_relay_options[k].name);

        if (value == NULL) {
            continue;
        }

        code = kvr_relay_option_set(o, &kvr_relay_options[k], value);
        if (code >= 0) {
            return code;
        }
    }

    return -1;
}


/* The value of the option in the environment, or NULL. */

static char *
kvr_relay_option_env(const char *option)
{
    char  name[KVR_RELAY_ENV_MAX], *value, *p;

    snprintf(name, sizeof(name), KVR_RELAY_ENV "%s", option);

    for (p = name; *p; p++) {
        *p = *p == '-' ? '_' : (char) toupper((unsigned char) *p);
    }

    value = getenv(name);

    return value == NULL || *value == '\0' ? NULL : value;
}


static int
kvr_relay_option_set(kvr_relay_options_t *o, const kvr_relay_option_t *option,
    const char *value)
{
    int       code;
    void     *to;
    uint32_t  level;
    uint64_t  number;

    to = (char *) o + option->offset;

    switch (option->kind) {

    case KVR_RELAY_LIST:
        return kvr_relay_option_list(option, to, value);

    case KVR_RELAY_NUMBER:
    case KVR_RELAY_SIZE:
        code = kvr_relay_option_number(option, value, &number);

        if (code < 0 && option->kind == KVR_RELAY_NUMBER) {
            *(uint32_t *) to = (uint32_t) number;

        } else if (code < 0) {
            *(uint64_t *) to = number;
        }

        return code;

    case KVR_RELAY_SWITCH:
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0) {
            return kvr_relay_bad(option->name, "must be on or off, not \"%s\"",
                                 kvr_relay_shown(value));
        }

        *(bool *) to = strcmp(value, "on") == 0;
        return -1;

    case KVR_RELAY_LEVEL:
        for (level = 0; level < KVR_RELAY_LEVELS; level++) {
            if (strcmp(kvr_relay_level_name(level), value) == 0) {
                *(kvr_relay_level_t *) to = level;
                return -1;
            }
        }

        return kvr_relay_bad(option->name, "must be error, warn, info or "
                             "debug, not \"%s\"", kvr_relay_shown(value));

    case KVR_RELAY_RETIRED:
        return kvr_relay_bad(option->name, "%s", option->help);

    default: /* KVR_RELAY_TEXT */
        if (option->most != 0 && strlen(value) > option->most) {
            return kvr_relay_bad(option->name, "is longer than %llu",
                                 (unsigned long long) option->most);
        }

        *(const char **) to = value;        /* stays: argv, or environ */
        return -1;
    }
}


static int
kvr_relay_option_list(const kvr_relay_option_t *option,
    kvr_relay_list_t *list, const char *value)
{
    size_t  len;

    for ( ;; ) {
        len = strcspn(value, ",");

        if (len == 0) {
            return kvr_relay_bad(option->name, "has an empty value");
        }

        if (list->n == KVR_RELAY_LIST_MAX) {
            return kvr_relay_bad(option->name, "is there more than %d times",
                                 KVR_RELAY_LIST_MAX);
        }

        list->items[list->n++] = strndup(value, len);
        value += len;

        if (*value == '\0') {
            return -1;
        }

        value++;
    }
}


static void
kvr_relay_list_free(kvr_relay_list_t *list)
{
    while (list->n != 0) {
        free(list->items[--list->n]);
    }
}


static int
kvr_relay_option_number(const kvr_relay_option_t *option, const char *value,
    uint64_t *number)
{
    char        *end;
    uint64_t     unit;
    const char  *p;

    static const char  units[] = "kmg";

    errno = 0;
    *number = strtoull(value, &end, 10);
    unit = 1;

    if (option->kind == KVR_RELAY_SIZE && *end != '\0') {
        p = strchr(units, tolower((unsigned char) *end));

        if (p != NULL) {
            unit = UINT64_C(1) << (10 * (p - units + 1));
            end++;
        }
    }

    if (!isdigit((unsigned char) *value) || *end != '\0') {
        return kvr_relay_bad(option->name, "\"%s\" is not a %s",
                             kvr_relay_shown(value),
                             option->kind == KVR_RELAY_SIZE
                             ? "size, as 512k, 64m or 1g are" : "number");
    }

    if (errno != 0 || *number > option->most / unit
        || *number * unit < option->least)
    {
        return kvr_relay_bad(option->name, "must be %llu to %llu, not %s",
                             (unsigned long long) option->least,
                             (unsigned long long) option->most, value);
    }

    *number *= unit;

    return -1;
}


/* Will routers refuse the value of a setting? */

static bool
kvr_relay_options_wrong(kvr_member_field_t field, const char *value)
{
    kvr_worker_conf_t  conf;

    kvr_worker_conf_init(&conf, "", 0);

    return kvr_setting_read(&kvr_settings[field], &conf, value, strlen(value))
           != NULL;
}


/* Checks what concerns several options at once. */

static int
kvr_relay_options_check(kvr_relay_options_t *o)
{
    int                 code;
    char                lora[KVR_ADAPTERS_MAX + 1];
    kvr_engine_kind_t   kind;

    o->ring = o->memory / 4;
    o->message_max = kvr_min(o->memory / 2, UINT64_C(1) << 30);

    if (o->worker == NULL) {
        return kvr_relay_bad("worker", "is missing");
    }

    if (!kvr_worker_id_valid(o->worker, strlen(o->worker))) {
        return kvr_relay_bad("worker", "\"%s\" is not an id: 1 to %d of "
                             "A-Z a-z 0-9 . _ : -",
                             kvr_relay_shown(o->worker), KVR_WORKER_ID_MAX);
    }

    code = kvr_relay_options_redis(o);
    if (code >= 0) {
        return code;
    }

    if ((o->events.n == 0) == (o->trtllm == NULL)) {
        return kvr_relay_bad("events", "or --trtllm is needed, one of them");
    }

    if (o->trtllm != NULL && strncmp(o->trtllm, "http://", 7) != 0
        && strncmp(o->trtllm, "https://", 8) != 0)
    {
        return kvr_relay_bad("trtllm", "\"%s\" is not a http:// or https:// "
                             "URL", kvr_relay_shown(o->trtllm));
    }

    if (strcmp(o->role, "both") != 0 && strcmp(o->role, "prefill") != 0
        && strcmp(o->role, "decode") != 0)
    {
        return kvr_relay_bad("role", "must be both, prefill or decode, not "
                             "\"%s\"", kvr_relay_shown(o->role));
    }

    if (kvr_relay_options_wrong(KVR_MEMBER_WEIGHT, o->weight)) {
        return kvr_relay_bad("weight", "must be 0.001 to %d, not \"%s\"",
                             KVR_WEIGHT_MAX, kvr_relay_shown(o->weight));
    }

    if (*o->max_prefill_tokens != '\0'
        && kvr_relay_options_wrong(KVR_MEMBER_PREFILL_TOKENS,
                                   o->max_prefill_tokens))
    {
        return kvr_relay_bad("max-prefill-tokens", "must be 0 to %d, or auto, "
                             "not \"%s\"", KVR_TOKENS_MAX,
                             kvr_relay_shown(o->max_prefill_tokens));
    }

    if (*o->engine == '\0' && o->trtllm != NULL) {
        o->engine = kvr_engine_name(KVR_ENGINE_TRTLLM);
    }

    kind = kvr_engine_kind(o->engine, strlen(o->engine));

    if (*o->engine != '\0'
        && (kind == KVR_ENGINES || kind == KVR_ENGINE_UNKNOWN))
    {
        return kvr_relay_bad("engine", "must be one of "
                             KVR_ENGINE_ROWS(KVR_ENGINE_WORD) "not \"%s\"",
                             kvr_relay_shown(o->engine));
    }

    if (kvr_adapters_set(lora, o->lora, strlen(o->lora))) {
        return kvr_relay_bad("lora", "must be names of printable ASCII, with "
                             "commas, of 511 bytes at most");
    }

    if (*o->address != '\0' && !kvr_relay_options_address(o->address)) {
        return kvr_relay_bad("address", "\"%s\" is not host:port",
                             kvr_relay_shown(o->address));
    }

    return kvr_relay_endpoints_check(o);
}


static int
kvr_relay_options_listen(const kvr_relay_options_t *o)
{
    if (o->listen != NULL && !kvr_relay_options_address(o->listen)) {
        return kvr_relay_bad("listen", "\"%s\" is not host:port",
                             kvr_relay_shown(o->listen));
    }

    if (o->drain && (o->listen == NULL
                     || strcmp(strrchr(o->listen, ':'), ":0") == 0))
    {
        return kvr_relay_bad("listen", "with a port is needed for --drain: "
                             "that of the relay that runs");
    }

    return -1;
}


static int
kvr_relay_options_redis(kvr_relay_options_t *o)
{
    bool              tls;
    uint32_t          i;
    const char       *why;
    kvr_redis_url_t   url;

    if (o->redis.n == 0) {
        o->redis.items[o->redis.n++] = strdup("redis://127.0.0.1:6379");
    }

    tls = false;

    for (i = 0; i < o->redis.n; i++) {
        why = kvr_redis_url_parse(&url, o->redis.items[i],
                                  strlen(o->redis.items[i]));

        if (why != NULL) {
            return kvr_relay_bad("redis", "URL %u %s", i + 1, why);
        }

        tls = tls || url.tls;
    }

    if ((o->redis_cert == NULL) != (o->redis_key == NULL)) {
        return kvr_relay_bad("redis-cert", "and --redis-key go together");
    }

    if (!tls && (!o->redis_verify || o->redis_ca || o->redis_name
                 || o->redis_cert))
    {
        return kvr_relay_bad("redis", "has no rediss:// URL: --redis-verify, "
                             "--redis-ca, --redis-name and --redis-cert are "
                             "of no use");
    }

    return -1;
}


/* Is the value host:port, and not a URL?  The host is not looked up here. */

static bool
kvr_relay_options_address(const char *text)
{
    char        *end;
    const char  *colon;

    colon = strrchr(text, ':');

    if (colon == NULL || !isdigit((unsigned char) colon[1])
        || strlen(colon) > 6 || strpbrk(text, "@/") != NULL)
    {
        return false;
    }

    return strtoul(colon + 1, &end, 10) <= 65535 && *end == '\0';
}


static void
kvr_relay_options_help(void)
{
    char         left[40];
    size_t       k;
    const char  *p, *line, *normal;

    printf("kv-relay: KV cache events of an inference engine, from ZMQ to "
           "Redis\n\n"
           "    kv-relay --worker ID --events ENDPOINT [--replay ENDPOINT] "
           "[OPTION…]\n"
           "    kv-relay --worker ID --trtllm URL [OPTION…]\n"
           "    kv-relay --drain --listen HOST:PORT\n\n"
           "Every option may also come from the environment: --block-size as "
           "KV_RELAY_BLOCK_SIZE.\n\n");

    for (k = 0; k < KVR_RELAY_OPTIONS; k++) {

        if (kvr_relay_options[k].kind == KVR_RELAY_RETIRED) {
            continue;
        }

        snprintf(left, sizeof(left), "--%s %s", kvr_relay_options[k].name,
                 kvr_relay_options[k].value);

        for (p = kvr_relay_options[k].help; *p; p = line) {
            line = strchr(p, '\n');
            line = line ? line + 1 : p + strlen(p);

            printf("  %-26s %.*s", p == kvr_relay_options[k].help ? left : "",
                   (int) (line - p), p);
        }

        normal = kvr_relay_options[k].normal;

        if (normal != NULL && *normal != '\0') {
            printf(" (%s)", normal);
        }

        printf("\n");
    }

    printf("  %-26s %s\n  %-26s %s\n  %-26s %s\n", "--drain",
           "drain the engine of the relay that runs at --listen, and wait",
           "--help", "this", "--version", "the version");

    printf("\nExit codes: 0 ended by SIGTERM or SIGINT, or drained, 1 can't "
           "go on, or not\ndrained, 2 an option is wrong, 3 superseded by "
           "another relay of the same\nworker.\n");
}
