
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <jansson.h>

#include "ngx_mcp_conf.h"
#include "ngx_mcp_peer.h"
#include "ngx_mcp_status.h"
#include "ngx_mcp_tally.h"


/* A counter of the page and its place in the zone. */

typedef struct {
    const char         *name;
    ngx_mcp_count_t     count;
} ngx_mcp_status_count_t;


static ngx_int_t ngx_mcp_status_handler(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_status_send(ngx_http_request_t *r, u_char *data,
    size_t len);
static json_t *ngx_mcp_status_json(ngx_mcp_main_conf_t *mcf);
static json_t *ngx_mcp_status_zones(ngx_mcp_main_conf_t *mcf);
static json_t *ngx_mcp_status_upstreams(ngx_mcp_main_conf_t *mcf);
static json_t *ngx_mcp_status_upstream(ngx_mcp_srv_conf_t *conf);
static void ngx_mcp_status_open(ngx_mcp_policy_t *policy, uint64_t *count);
static json_t *ngx_mcp_status_counts(const ngx_mcp_status_count_t *c,
    uint64_t *count);
static json_t *ngx_mcp_status_peers(ngx_mcp_policy_t *policy);
static json_t *ngx_mcp_status_peer(ngx_mcp_policy_t *policy,
    ngx_mcp_peer_copy_t *peer);
static json_t *ngx_mcp_status_ends(ngx_mcp_tally_copy_t *tally);
static json_t *ngx_mcp_status_keepalives(ngx_mcp_peer_copy_t *peer);
static void ngx_mcp_status_set(json_t *object, const char *name, uint64_t n);
static json_t *ngx_mcp_status_string(u_char *data, size_t len);


static const ngx_mcp_status_count_t  ngx_mcp_status_sessions[] = {
    { "active", NGX_MCP_COUNT_ACTIVE },
    { "ready", NGX_MCP_COUNT_READY },
    { "learned", NGX_MCP_COUNT_LEARNED },
    { "adopted", NGX_MCP_COUNT_ADOPTED },
    { "lost", NGX_MCP_COUNT_LOST },
    { "deleted", NGX_MCP_COUNT_DELETED },
    { "expired", NGX_MCP_COUNT_EXPIRED },
    { "revived", NGX_MCP_COUNT_REVIVED },
    { "revive_failed", NGX_MCP_COUNT_REVIVE_FAILED },
    { NULL, 0 }
};

static const ngx_mcp_status_count_t  ngx_mcp_status_streams[] = {
    { "open", NGX_MCP_COUNT_OPEN },
    { "opened", NGX_MCP_COUNT_OPENED },
    { "held", NGX_MCP_COUNT_HELD },
    { "heartbeats", NGX_MCP_COUNT_HEARTBEATS },
    { "closed_by_mark", NGX_MCP_COUNT_CLOSED_BY_MARK },
    { "closed_by_exit", NGX_MCP_COUNT_CLOSED_BY_EXIT },
    { "timed_out", NGX_MCP_COUNT_TIMED_OUT },
    { NULL, 0 }
};

static const ngx_mcp_status_count_t  ngx_mcp_status_answers[] = {
    { "session_lost", NGX_MCP_COUNT_SESSION_LOST },
    { "translated", NGX_MCP_COUNT_TRANSLATED },
    { "unavailable", NGX_MCP_COUNT_UNAVAILABLE },
    { NULL, 0 }
};

static const ngx_mcp_status_count_t  ngx_mcp_status_skipped[] = {
    { "busy", NGX_MCP_COUNT_SKIPPED_BUSY },
    { "rate", NGX_MCP_COUNT_SKIPPED_RATE },
    { "connections", NGX_MCP_COUNT_SKIPPED_CONNECTIONS },
    { "credentials", NGX_MCP_COUNT_SKIPPED_CREDENTIALS },
    { NULL, 0 }
};


char *
ngx_mcp_status_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (clcf->handler == ngx_mcp_status_handler) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 2 && ngx_strcmp(value[1].data, "json") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, "
                           "it must be \"json\"", &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    clcf->handler = ngx_mcp_status_handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_mcp_status_handler(ngx_http_request_t *r)
{
    char                 *text;
    u_char               *copy;
    size_t                len;
    json_t               *json;
    ngx_int_t             rc;
    ngx_str_t             format;
    ngx_mcp_main_conf_t  *mcf;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_arg(r, (u_char *) "format", 6, &format) == NGX_OK
        && (format.len != 4 || ngx_strncmp(format.data, "json", 4) != 0))
    {
        return NGX_HTTP_BAD_REQUEST;
    }

    mcf = ngx_http_get_module_main_conf(r, ngx_mcp_keepalive_module);

    json = ngx_mcp_status_json(mcf);
    text = json_dumps(json, JSON_INDENT(2)|JSON_PRESERVE_ORDER);
    json_decref(json);

    if (text == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    len = ngx_strlen(text);

    copy = ngx_pnalloc(r->pool, len + 1);

    if (copy != NULL) {
        ngx_memcpy(copy, text, len);
        copy[len] = '\n';
    }

    free(text);

    return copy ? ngx_mcp_status_send(r, copy, len + 1)
                : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static ngx_int_t
ngx_mcp_status_send(ngx_http_request_t *r, u_char *data, size_t len)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = len;

    ngx_str_set(&r->headers_out.content_type, "application/json");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->pos = data;
    b->last = data + len;
    b->memory = 1;
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}


/* jansson takes NULL for any object: of no memory the page is just shorter */

static json_t *
ngx_mcp_status_json(ngx_mcp_main_conf_t *mcf)
{
    json_t           *json;
    u_char           *last, time[sizeof("2026-01-01T00:00:00Z")];
    ngx_tm_t          tm;
    ngx_mcp_zone_t  **zone;

    json = json_object();

    ngx_gmtime(ngx_time(), &tm);

    last = ngx_sprintf(time, "%4d-%02d-%02dT%02d:%02d:%02dZ",
                       tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                       tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec);

    zone = mcf->zones.elts;

    (void) json_object_set_new(json, "module",
                               json_string(NGX_MCP_MODULE_VERSION));
    (void) json_object_set_new(json, "nginx", json_string(NGINX_VERSION));
    ngx_mcp_status_set(json, "worker", ngx_pid);
    (void) json_object_set_new(json, "time",
                               ngx_mcp_status_string(time, last - time));
    ngx_mcp_status_set(json, "generation",
                       mcf->zones.nelts ? zone[0]->sh->generation : 0);
    (void) json_object_set_new(json, "zones", ngx_mcp_status_zones(mcf));
    (void) json_object_set_new(json, "upstreams",
                               ngx_mcp_status_upstreams(mcf));

    return json;
}


static json_t *
ngx_mcp_status_zones(ngx_mcp_main_conf_t *mcf)
{
    json_t             *zones, *json;
    ngx_uint_t          i;
    ngx_mcp_zone_t    **zone;
    ngx_mcp_zone_sh_t  *sh;

    zones = json_object();
    zone = mcf->zones.elts;

    for (i = 0; i < mcf->zones.nelts; i++) {

        /* words that are each right by themselves need no lock */

        sh = zone[i]->sh;
        json = json_object();

        ngx_mcp_status_set(json, "size", zone[i]->shm_zone->shm.size);
        ngx_mcp_status_set(json, "used",
                           (uint64_t) sh->nused * NGX_MCP_SLOT_SIZE);
        ngx_mcp_status_set(json, "sessions", sh->nsessions);
        ngx_mcp_status_set(json, "capacity", sh->nslots);
        ngx_mcp_status_set(json, "evicted", sh->evicted);
        ngx_mcp_status_set(json, "untracked", sh->untracked);

        (void) json_object_setn_new(zones,
                                    (char *) zone[i]->shm_zone->shm.name.data,
                                    zone[i]->shm_zone->shm.name.len, json);
    }

    return zones;
}


static json_t *
ngx_mcp_status_upstreams(ngx_mcp_main_conf_t *mcf)
{
    json_t               *upstreams;
    ngx_uint_t            i;
    ngx_mcp_srv_conf_t  **conf;

    upstreams = json_object();
    conf = mcf->upstreams.elts;

    for (i = 0; i < mcf->upstreams.nelts; i++) {
        (void) json_object_setn_new(upstreams,
                                    (char *) conf[i]->policy.name.data,
                                    conf[i]->policy.name.len,
                                    ngx_mcp_status_upstream(conf[i]));
    }

    return upstreams;
}


static json_t *
ngx_mcp_status_upstream(ngx_mcp_srv_conf_t *conf)
{
    json_t            *json;
    uint64_t           count[NGX_MCP_COUNT_N];
    ngx_mcp_policy_t  *policy;

    policy = &conf->policy;

    ngx_mcp_peer_upstream_copy(policy, count);
    ngx_mcp_status_open(policy, count);

    json = json_object();

    (void) json_object_set_new(json, "zone",
              ngx_mcp_status_string(policy->zone->shm_zone->shm.name.data,
                                    policy->zone->shm_zone->shm.name.len));
    (void) json_object_set_new(json, "sessions",
              ngx_mcp_status_counts(ngx_mcp_status_sessions, count));
    (void) json_object_set_new(json, "streams",
              ngx_mcp_status_counts(ngx_mcp_status_streams, count));
    (void) json_object_set_new(json, "answers",
              ngx_mcp_status_counts(ngx_mcp_status_answers, count));
    (void) json_object_set_new(json, "skipped",
              ngx_mcp_status_counts(ngx_mcp_status_skipped, count));
    (void) json_object_set_new(json, "peers", ngx_mcp_status_peers(policy));

    return json;
}


/* What is open now is the sum of what the workers say, peer by peer. */

static void
ngx_mcp_status_open(ngx_mcp_policy_t *policy, uint64_t *count)
{
    ngx_mcp_peer_copy_t   peer;
    ngx_mcp_tally_copy_t  tally;

    count[NGX_MCP_COUNT_OPEN] = 0;
    count[NGX_MCP_COUNT_HELD] = 0;

    peer.slot = 0;

    while (ngx_mcp_peer_next(policy, peer.slot, &peer) == NGX_OK) {
        ngx_mcp_tally_copy(policy, peer.slot, &tally);

        count[NGX_MCP_COUNT_OPEN] += tally.open;
        count[NGX_MCP_COUNT_HELD] += tally.held;
    }
}


static json_t *
ngx_mcp_status_counts(const ngx_mcp_status_count_t *c, uint64_t *count)
{
    json_t  *json;

    json = json_object();

    for ( /* void */ ; c->name; c++) {
        ngx_mcp_status_set(json, c->name, count[c->count]);
    }

    return json;
}


static json_t *
ngx_mcp_status_peers(ngx_mcp_policy_t *policy)
{
    json_t               *peers;
    ngx_mcp_peer_copy_t   peer;

    peers = json_array();
    peer.slot = 0;

    while (ngx_mcp_peer_next(policy, peer.slot, &peer) == NGX_OK) {

        /* of those gone from the configuration only while sessions remain */

        if (!peer.gone || peer.nsessions) {
            (void) json_array_append_new(peers,
                                         ngx_mcp_status_peer(policy, &peer));
        }
    }

    return peers;
}


static json_t *
ngx_mcp_status_peer(ngx_mcp_policy_t *policy, ngx_mcp_peer_copy_t *peer)
{
    json_t                *json;
    uint64_t               now, next;
    mcp_health_t          *h;
    ngx_mcp_tally_copy_t   tally;

    ngx_mcp_tally_copy(policy, peer->slot, &tally);

    h = &peer->health;
    now = ngx_current_msec;

    next = mcp_health_attempts_only(h) ? h->next_attempt_ms : 0;

    json = json_object();

    (void) json_object_set_new(json, "name",
                               ngx_mcp_status_string(peer->name,
                                                     peer->name_len));
    (void) json_object_set_new(json, "state",
                               json_string(mcp_health_state_name(h->state)));
    ngx_mcp_status_set(json, "since_ms", now - ngx_min(h->since_ms, now));
    (void) json_object_set_new(json, "reason",
                               ngx_mcp_status_string(peer->reason,
                                                     peer->reason_len));
    ngx_mcp_status_set(json, "budget",
                       mcp_health_limit(h, &policy->health));
    ngx_mcp_status_set(json, "charges", h->charges);
    ngx_mcp_status_set(json, "attempts", h->attempts);
    ngx_mcp_status_set(json, "next_attempt_ms", (next > now) ? next - now : 0);
    ngx_mcp_status_set(json, "epoch", h->epoch);
    ngx_mcp_status_set(json, "parks", h->parks);
    ngx_mcp_status_set(json, "reconnects", h->reconnects);
    ngx_mcp_status_set(json, "sessions", peer->nsessions);
    ngx_mcp_status_set(json, "streams", tally.open);
    (void) json_object_set_new(json, "stream_ends",
                               ngx_mcp_status_ends(&tally));
    (void) json_object_set_new(json, "representative",
                               json_boolean(peer->wrong < NGX_MCP_PEER_WRONG));
    (void) json_object_set_new(json, "keepalives",
                               ngx_mcp_status_keepalives(peer));

    return json;
}


static json_t *
ngx_mcp_status_ends(ngx_mcp_tally_copy_t *tally)
{
    json_t      *json;
    uint64_t     sum;
    ngx_uint_t   i;

    sum = 0;
    json = json_object();

    for (i = 0; i < NGX_MCP_END_N; i++) {
        ngx_mcp_status_set(json, ngx_mcp_tally_name(i), tally->end[i]);
        sum += tally->end[i];
    }

    ngx_mcp_status_set(json, "count", sum);
    ngx_mcp_status_set(json, "age_ms", tally->age_ms);

    return json;
}


static json_t *
ngx_mcp_status_keepalives(ngx_mcp_peer_copy_t *peer)
{
    json_t      *json;
    ngx_uint_t   i;

    json = json_object();

    ngx_mcp_status_set(json, "sent", peer->sent);
    ngx_mcp_status_set(json, "bytes", peer->bytes);

    for (i = 0; i < MCP_VERDICT_N; i++) {
        if (peer->verdict[i]) {
            ngx_mcp_status_set(json, mcp_verdict_name(i), peer->verdict[i]);
        }
    }

    return json;
}


static void
ngx_mcp_status_set(json_t *object, const char *name, uint64_t n)
{
    (void) json_object_set_new(object, name, json_integer((json_int_t) n));
}


static json_t *
ngx_mcp_status_string(u_char *data, size_t len)
{
    json_t  *s;

    s = json_stringn((char *) data, len);

    /* a name of the configuration need not be UTF-8 */

    return s ? s : json_string("");
}
