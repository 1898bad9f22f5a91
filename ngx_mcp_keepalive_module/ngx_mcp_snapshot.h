
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What the status page tells, in whatever format: copies of the zone, taken
 * record by record, and the names of all that is a number.  What is in the
 * tables here is in the JSON and in the metrics alike.
 */


#ifndef _NGX_MCP_SNAPSHOT_H_INCLUDED_
#define _NGX_MCP_SNAPSHOT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_conf.h"
#include "ngx_mcp_peer.h"
#include "ngx_mcp_tally.h"


/* Names and texts are ASCII: any other byte of the configuration is "\xHH". */

typedef struct {
    ngx_str_t                   name;
    uint64_t                    size;
    uint64_t                    used;
    uint64_t                    sessions;
    uint64_t                    capacity;
    uint64_t                    evicted;
    uint64_t                    untracked;
} ngx_mcp_snapshot_zone_t;


typedef struct {
    ngx_str_t                   name;
    ngx_str_t                   reason;
    mcp_peer_state_t            state;
    uint64_t                    since_ms;       /* for so long */
    uint64_t                    budget;
    uint64_t                    charges;
    uint64_t                    attempts;
    uint64_t                    next_attempt_ms;
                                                /* in so long */
    uint64_t                    epoch;
    uint64_t                    parks;
    uint64_t                    reconnects;
    uint64_t                    sessions;

    uint64_t                    streams;
    uint64_t                    held;
    uint64_t                    stream_end[NGX_MCP_END_N];
    uint64_t                    stream_count;   /* of those that ended */
    uint64_t                    stream_age_ms;  /* ... all ages together */

    uint64_t                    sent;
    uint64_t                    bytes;
    uint64_t                    latency_count;
    uint64_t                    latency_ms;     /* all together */
    uint64_t                    verdict[MCP_VERDICT_N];

    unsigned                    gone:1;         /* not configured any more */
    unsigned                    representative:1;
} ngx_mcp_snapshot_peer_t;


typedef struct {
    ngx_str_t                   name;
    ngx_str_t                   zone;
    uint64_t                    count[NGX_MCP_COUNT_N];
    ngx_array_t                 peers;      /* of ngx_mcp_snapshot_peer_t */
} ngx_mcp_snapshot_upstream_t;


typedef struct {
    uint64_t                    generation;
    ngx_array_t                 zones;      /* of ngx_mcp_snapshot_zone_t */
    ngx_array_t                 upstreams;  /* of ngx_mcp_snapshot_upstream_t */
} ngx_mcp_snapshot_t;


typedef enum {
    NGX_MCP_FIELD_GAUGE = 0,
    NGX_MCP_FIELD_COUNTER,
    NGX_MCP_FIELD_SUM,          /* of a summary; its count is the next field */
    NGX_MCP_FIELD_COUNT
} ngx_mcp_field_type_t;


/* A number of a record above: a uint64_t at "offset"; in ms if "ms" is set. */

typedef struct {
    const char                 *group;      /* the JSON object it stands in;
                                             * NULL: the record's own */
    const char                 *name;       /* there */
    const char                 *metric;     /* after "mcp_keepalive_" */
    size_t                      offset;
    ngx_mcp_field_type_t        type;
    ngx_uint_t                  ms;
    const char                 *help;
} ngx_mcp_field_t;


/* Each ends with a NULL name; fields of one group stand together. */

extern const ngx_mcp_field_t  ngx_mcp_snapshot_zone_fields[];
extern const ngx_mcp_field_t  ngx_mcp_snapshot_upstream_fields[];
extern const ngx_mcp_field_t  ngx_mcp_snapshot_peer_fields[];


#define ngx_mcp_field_value(field, record)                                    \
    (*(uint64_t *) ((u_char *) (record) + (field)->offset))


/* Takes the snapshot; takes the locks.  NGX_ERROR: no memory. */
ngx_int_t ngx_mcp_snapshot(ngx_pool_t *pool, ngx_mcp_main_conf_t *mcf,
    ngx_mcp_snapshot_t *s);


#endif /* _NGX_MCP_SNAPSHOT_H_INCLUDED_ */
