/*
 * Copyright (C) the nginx-kv-router authors
 *
 * kv-relay --drain, a process of its own.
 */


#include "kvr_relay_drain.h"

#include <stdio.h>


#define KVR_RELAY_DRAIN_MORE  5         /* seconds: the relay answers first */


int
kvr_relay_drain_call(const kvr_relay_options_t *o)
{
    int          port;
    long         status;
    char         url[KVR_ADDRESS_MAX + 32];
    CURL        *easy;
    CURLcode     rc;
    const char  *host;

    port = (int) (strrchr(o->listen, ':') - o->listen);
    host = o->listen;

    if (port == 0 || strncmp(host, "0.0.0.0:", 8) == 0) {
        host = "127.0.0.1";

    } else if (strncmp(host, "[::]:", 5) == 0) {
        host = "[::1]";
    }

    snprintf(url, sizeof(url), "http://%.*s%s/drain",
             host == o->listen ? port : 16, host, o->listen + port);

    curl_global_init(CURL_GLOBAL_DEFAULT);
    easy = curl_easy_init();

    if (easy == NULL) {
        return KVR_RELAY_FAILED;
    }

    /* without a function that takes it, the answer goes to stdout */

    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "");
    curl_easy_setopt(easy, CURLOPT_TIMEOUT,
                     (long) o->drain_timeout + KVR_RELAY_DRAIN_MORE);

    rc = curl_easy_perform(easy);
    status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(easy);

    if (rc != CURLE_OK) {
        fprintf(stderr, "kv-relay: not drained: %s: %s; give --listen of the "
                "relay that runs\n", url, curl_easy_strerror(rc));
    }

    return rc == CURLE_OK && status == 200 ? KVR_RELAY_ENDED
                                           : KVR_RELAY_FAILED;
}
