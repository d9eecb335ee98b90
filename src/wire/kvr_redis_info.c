/*
 * Copyright (C) the nginx-kv-router authors
 */


#include "kvr_redis_info.h"


static const char  kvr_redis_cluster[] = "it is a Redis Cluster, which is not "
                                         "supported: use one server, or one "
                                         "with replicas and Sentinel";


const char *
kvr_redis_info_refused(const char *info, bool master)
{
    if (strstr(info, "\ncluster_enabled:1")) {
        return kvr_redis_cluster;
    }

    /* redis_mode, of Valkey server_mode */

    if (strstr(info, "_mode:sentinel")) {
        return "it is a Sentinel: write its URL as "
               "redis-sentinel://host:port/MASTER";
    }

    if (master && kvr_redis_info_replica(info)) {
        return "it is a replica, although a Sentinel named it as the master: "
               "a failover is not over yet";
    }

    return NULL;
}


bool
kvr_redis_info_replica(const char *info)
{
    return strstr(info, "\nrole:slave") != NULL;
}


const char *
kvr_redis_error_refused(const char *error)
{
    return strncmp(error, "MOVED ", 6) == 0 ? kvr_redis_cluster : NULL;
}
