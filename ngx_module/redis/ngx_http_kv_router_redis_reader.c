
/*
 * Copyright (C) the nginx-kv-router authors
 *
 * What makes replies of the bytes of a connection: hiredis's reader, with a
 * bound of what an array may be.
 */


#include "ngx_http_kv_router_redis_link.h"


/* bytes of a reader's buffer that hiredis keeps while the buffer is empty */
#define NGX_HTTP_KV_ROUTER_READER_KEEP     (256 * 1024)
/*
 * the maximum number of elements of an array: a page has 128 entries, and
 * hiredis would accept any number
 */
#define NGX_HTTP_KV_ROUTER_ELEMENTS        4096


#if (HIREDIS_MAJOR == 0)
typedef int     ngx_http_kv_router_elements_t;
#else
typedef size_t  ngx_http_kv_router_elements_t;
#endif


static void ngx_http_kv_router_redis_look(const redisReply *reply,
    kvr_reply_t *view);
static void ngx_http_kv_router_redis_element(const void *array, size_t i,
    kvr_reply_t *view);


/*
 * the functions of hiredis that make replies; only the function for arrays is
 * replaced, because hiredis does not bound arrays
 */

static redisReplyObjectFunctions    ngx_http_kv_router_redis_objects;

static void *(*ngx_http_kv_router_redis_make_array)(const redisReadTask *task,
    ngx_http_kv_router_elements_t elements);


static void *
ngx_http_kv_router_redis_array(const redisReadTask *task,
    ngx_http_kv_router_elements_t elements)
{
    if (elements > NGX_HTTP_KV_ROUTER_ELEMENTS) {
        return NULL;
    }

    return ngx_http_kv_router_redis_make_array(task, elements);
}


redisReader *
ngx_http_kv_router_redis_reader(void)
{
    redisReader  *reader;

    reader = redisReaderCreate();
    if (reader == NULL) {
        return NULL;
    }

    reader->maxbuf = NGX_HTTP_KV_ROUTER_READER_KEEP;

    if (ngx_http_kv_router_redis_objects.createArray == NULL) {
        ngx_http_kv_router_redis_make_array = reader->fn->createArray;
        ngx_http_kv_router_redis_objects = *reader->fn;
        ngx_http_kv_router_redis_objects.createArray =
                                               ngx_http_kv_router_redis_array;
    }

    reader->fn = &ngx_http_kv_router_redis_objects;

    return reader;
}


void
ngx_http_kv_router_redis_view(redisReply *reply, kvr_reply_t *view)
{
    ngx_http_kv_router_redis_look(reply, view);

    view->owned = reply;
    view->release = freeReplyObject;
}


static void
ngx_http_kv_router_redis_look(const redisReply *reply, kvr_reply_t *view)
{
    ngx_memzero(view, sizeof(kvr_reply_t));

    view->text = reply->str;
    view->len = reply->len;

    switch (reply->type) {

    case REDIS_REPLY_STRING:
        view->type = KVR_REPLY_STRING;
        break;

    case REDIS_REPLY_STATUS:
        view->type = KVR_REPLY_STATUS;
        break;

    case REDIS_REPLY_ERROR:
        view->type = KVR_REPLY_ERROR;
        break;

    case REDIS_REPLY_INTEGER:
        view->type = KVR_REPLY_INTEGER;
        view->integer = reply->integer;
        break;

    case REDIS_REPLY_ARRAY:
        view->type = KVR_REPLY_ARRAY;
        view->array = reply;
        view->element = ngx_http_kv_router_redis_element;
        view->len = reply->elements;
        break;

    case REDIS_REPLY_NIL:
        view->type = KVR_REPLY_NIL;
        break;

    default:
        view->type = KVR_REPLY_OTHER;
        break;
    }
}


static void
ngx_http_kv_router_redis_element(const void *array, size_t i,
    kvr_reply_t *view)
{
    const redisReply  *reply;

    reply = array;

    ngx_http_kv_router_redis_look(reply->element[i], view);
}
