
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_snapshot.h"


static ngx_int_t ngx_mcp_snapshot_zone(ngx_pool_t *pool, ngx_mcp_zone_t *zone,
    ngx_mcp_snapshot_t *s);
static ngx_int_t ngx_mcp_snapshot_upstream(ngx_pool_t *pool,
    ngx_mcp_policy_t *policy, ngx_mcp_snapshot_t *s);
static ngx_int_t ngx_mcp_snapshot_peers(ngx_pool_t *pool,
    ngx_mcp_policy_t *policy, ngx_mcp_snapshot_upstream_t *u);
static ngx_int_t ngx_mcp_snapshot_peer(ngx_pool_t *pool,
    ngx_mcp_policy_t *policy, ngx_mcp_peer_copy_t *copy,
    ngx_mcp_snapshot_peer_t *peer);
static void ngx_mcp_snapshot_streams(ngx_mcp_policy_t *policy, uint32_t slot,
    ngx_mcp_snapshot_peer_t *peer);
static ngx_int_t ngx_mcp_snapshot_text(ngx_pool_t *pool, u_char *data,
    size_t len, ngx_str_t *text);


#define GAUGE    NGX_MCP_FIELD_GAUGE
#define COUNTER  NGX_MCP_FIELD_COUNTER

#define Z(field)  offsetof(ngx_mcp_snapshot_zone_t, field)
#define U(index)  (offsetof(ngx_mcp_snapshot_upstream_t, count)               \
                   + (index) * sizeof(uint64_t))
#define P(field)  offsetof(ngx_mcp_snapshot_peer_t, field)
#define E(index)  (P(stream_end) + (index) * sizeof(uint64_t))


const ngx_mcp_field_t  ngx_mcp_snapshot_zone_fields[] = {

    { NULL, "size", "zone_size_bytes", Z(size), GAUGE, 0,
      "Size of the shared memory zone." },
    { NULL, "used", "zone_used_bytes", Z(used), GAUGE, 0,
      "Part of the zone that holds records." },
    { NULL, "sessions", "zone_sessions", Z(sessions), GAUGE, 0,
      "Sessions in the zone, lost ones included." },
    { NULL, "capacity", "zone_capacity_sessions", Z(capacity), GAUGE, 0,
      "Sessions that fit into the zone at most." },
    { NULL, "evicted", "zone_evicted_total", Z(evicted), COUNTER, 0,
      "Sessions forgotten to make room for others." },
    { NULL, "untracked", "zone_untracked_total", Z(untracked), COUNTER, 0,
      "Sessions that found no room, and ids that are not valid." },

    { NULL, NULL, NULL, 0, 0, 0, NULL }
};


const ngx_mcp_field_t  ngx_mcp_snapshot_upstream_fields[] = {

    { "sessions", "active", "sessions_active",
      U(NGX_MCP_COUNT_ACTIVE), GAUGE, 0,
      "Sessions known now that are not lost." },
    { "sessions", "ready", "sessions_ready",
      U(NGX_MCP_COUNT_READY), GAUGE, 0,
      "Sessions used often enough to be kept alive." },
    { "sessions", "learned", "sessions_learned_total",
      U(NGX_MCP_COUNT_LEARNED), COUNTER, 0,
      "Sessions issued by a server." },
    { "sessions", "adopted", "sessions_adopted_total",
      U(NGX_MCP_COUNT_ADOPTED), COUNTER, 0,
      "Sessions issued unseen, and confirmed by a server." },
    { "sessions", "lost", "sessions_lost_total",
      U(NGX_MCP_COUNT_LOST), COUNTER, 0,
      "Sessions that a server said it does not know." },
    { "sessions", "deleted", "sessions_deleted_total",
      U(NGX_MCP_COUNT_DELETED), COUNTER, 0,
      "Sessions ended by their clients." },
    { "sessions", "expired", "sessions_expired_total",
      U(NGX_MCP_COUNT_EXPIRED), COUNTER, 0,
      "Sessions forgotten because their clients were silent too long." },
    { "sessions", "revived", "sessions_revived_total",
      U(NGX_MCP_COUNT_REVIVED), COUNTER, 0,
      "Lost sessions started again under their old ids." },
    { "sessions", "revive_failed", "sessions_revive_failed_total",
      U(NGX_MCP_COUNT_REVIVE_FAILED), COUNTER, 0,
      "Lost sessions that could not be started again." },

    { "streams", "open", "streams_open",
      U(NGX_MCP_COUNT_OPEN), GAUGE, 0,
      "Event streams open now." },
    { "streams", "opened", "streams_opened_total",
      U(NGX_MCP_COUNT_OPENED), COUNTER, 0,
      "Event streams opened." },
    { "streams", "held", "streams_held",
      U(NGX_MCP_COUNT_HELD), GAUGE, 0,
      "Event streams kept open by nginx while their server is away." },
    { "streams", "heartbeats", "streams_heartbeats_total",
      U(NGX_MCP_COUNT_HEARTBEATS), COUNTER, 0,
      "Comments sent into quiet event streams." },
    { "streams", "closed_by_mark", "streams_closed_by_mark_total",
      U(NGX_MCP_COUNT_CLOSED_BY_MARK), COUNTER, 0,
      "Event streams ended because their server is degraded." },
    { "streams", "closed_by_exit", "streams_closed_by_exit_total",
      U(NGX_MCP_COUNT_CLOSED_BY_EXIT), COUNTER, 0,
      "Event streams ended because their worker exits." },
    { "streams", "timed_out", "streams_timed_out_total",
      U(NGX_MCP_COUNT_TIMED_OUT), COUNTER, 0,
      "Event streams ended because their server was silent." },

    { "answers", "session_lost", "answers_session_lost_total",
      U(NGX_MCP_COUNT_SESSION_LOST), COUNTER, 0,
      "Answers 404 made by nginx." },
    { "answers", "translated", "answers_translated_total",
      U(NGX_MCP_COUNT_TRANSLATED), COUNTER, 0,
      "Answers of a server made 404 because they told of a lost session." },
    { "answers", "unavailable", "answers_unavailable_total",
      U(NGX_MCP_COUNT_UNAVAILABLE), COUNTER, 0,
      "Answers 503 made by nginx." },

    { "skipped", "busy", "skipped_busy_total",
      U(NGX_MCP_COUNT_SKIPPED_BUSY), COUNTER, 0,
      "Keepalives not sent because a request of the client was running." },
    { "skipped", "rate", "skipped_rate_total",
      U(NGX_MCP_COUNT_SKIPPED_RATE), COUNTER, 0,
      "Keepalives put off because the server had enough of them." },
    { "skipped", "connections", "skipped_connections_total",
      U(NGX_MCP_COUNT_SKIPPED_CONNECTIONS), COUNTER, 0,
      "Keepalives put off because nginx was short of connections." },
    { "skipped", "credentials", "skipped_credentials_total",
      U(NGX_MCP_COUNT_SKIPPED_CREDENTIALS), COUNTER, 0,
      "Keepalives not sent for want of mcp_keepalive_pass_header." },

    { NULL, NULL, NULL, 0, 0, 0, NULL }
};


const ngx_mcp_field_t  ngx_mcp_snapshot_peer_fields[] = {

    { NULL, "since_ms", "peer_state_age_seconds", P(since_ms), GAUGE, 1,
      "Time in the present state." },
    { NULL, "budget", "peer_budget", P(budget), GAUGE, 0,
      "Failed attempts the server may collect before it is parked." },
    { NULL, "charges", "peer_charges", P(charges), GAUGE, 0,
      "Failed attempts since its last good answer." },
    { NULL, "attempts", "peer_attempts_total", P(attempts), COUNTER, 0,
      "Attempts to reach a degraded or parked server." },
    { NULL, "next_attempt_ms", "peer_next_attempt_seconds",
      P(next_attempt_ms), GAUGE, 1,
      "Time to the next attempt, 0 if none is planned." },
    { NULL, "epoch", "peer_epoch", P(epoch), GAUGE, 0,
      "Marks for reconnect so far." },
    { NULL, "parks", "peer_parks_total", P(parks), COUNTER, 0,
      "Times the server was parked." },
    { NULL, "reconnects", "peer_reconnects_total", P(reconnects), COUNTER, 0,
      "Times the server came back after a mark." },
    { NULL, "sessions", "peer_sessions", P(sessions), GAUGE, 0,
      "Sessions that live on the server." },
    { NULL, "streams", "peer_streams", P(streams), GAUGE, 0,
      "Event streams open from the server." },

    { "stream_ends", "client", "streams_ended_by_client_total",
      E(NGX_MCP_END_CLIENT), COUNTER, 0,
      "Event streams that the client left." },
    { "stream_ends", "server", "streams_ended_by_server_total",
      E(NGX_MCP_END_SERVER), COUNTER, 0,
      "Event streams that the server ended properly." },
    { "stream_ends", "cut", "streams_ended_by_cut_total",
      E(NGX_MCP_END_CUT), COUNTER, 0,
      "Event streams that broke off on the server's side." },
    { "stream_ends", "timeout", "streams_ended_by_timeout_total",
      E(NGX_MCP_END_TIMEOUT), COUNTER, 0,
      "Event streams whose server was silent." },
    { "stream_ends", "mark", "streams_ended_by_mark_total",
      E(NGX_MCP_END_MARK), COUNTER, 0,
      "Event streams ended because their server is degraded." },
    { "stream_ends", "exit", "streams_ended_by_exit_total",
      E(NGX_MCP_END_EXIT), COUNTER, 0,
      "Event streams ended because their worker exits." },
    { "stream_ends", "write", "streams_ended_by_write_total",
      E(NGX_MCP_END_WRITE), COUNTER, 0,
      "Event streams whose client could not be written to." },

    { "stream_ends", "age_ms", "stream_age_seconds_sum",
      P(stream_age_ms), NGX_MCP_FIELD_SUM, 1,
      "How long event streams lasted that have ended." },
    { "stream_ends", "count", "stream_age_seconds_count",
      P(stream_count), NGX_MCP_FIELD_COUNT, 0, NULL },

    { "latency", "sum_ms", "latency_seconds_sum",
      P(latency_ms), NGX_MCP_FIELD_SUM, 1,
      "Time from a keepalive to its answer." },
    { "latency", "count", "latency_seconds_count",
      P(latency_count), NGX_MCP_FIELD_COUNT, 0, NULL },

    { "keepalives", "sent", "sent_total", P(sent), COUNTER, 0,
      "Keepalives sent." },
    { "keepalives", "bytes", "received_bytes_total", P(bytes), COUNTER, 0,
      "Bytes in the bodies of their answers." },

    { NULL, NULL, NULL, 0, 0, 0, NULL }
};


ngx_int_t
ngx_mcp_snapshot(ngx_pool_t *pool, ngx_mcp_main_conf_t *mcf,
    ngx_mcp_snapshot_t *s)
{
    ngx_uint_t            i;
    ngx_mcp_zone_t      **zone;
    ngx_mcp_srv_conf_t  **conf;

    zone = mcf->zones.elts;
    conf = mcf->upstreams.elts;

    s->generation = mcf->zones.nelts ? zone[0]->sh->generation : 0;

    if (ngx_array_init(&s->zones, pool, mcf->zones.nelts + 1,
                       sizeof(ngx_mcp_snapshot_zone_t))
        != NGX_OK
        || ngx_array_init(&s->upstreams, pool, mcf->upstreams.nelts + 1,
                          sizeof(ngx_mcp_snapshot_upstream_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    for (i = 0; i < mcf->zones.nelts; i++) {
        if (ngx_mcp_snapshot_zone(pool, zone[i], s) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    for (i = 0; i < mcf->upstreams.nelts; i++) {
        if (ngx_mcp_snapshot_upstream(pool, &conf[i]->policy, s) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_snapshot_zone(ngx_pool_t *pool, ngx_mcp_zone_t *zone,
    ngx_mcp_snapshot_t *s)
{
    ngx_str_t                *name;
    ngx_mcp_zone_sh_t        *sh;
    ngx_mcp_snapshot_zone_t  *z;

    z = ngx_array_push(&s->zones);
    if (z == NULL) {
        return NGX_ERROR;
    }

    /* words that are each right by themselves need no lock */

    sh = zone->sh;

    z->size = zone->shm_zone->shm.size;
    z->used = (uint64_t) sh->nused * NGX_MCP_SLOT_SIZE;
    z->sessions = sh->nsessions;
    z->capacity = sh->nslots;
    z->evicted = sh->evicted;
    z->untracked = sh->untracked;

    name = &zone->shm_zone->shm.name;

    return ngx_mcp_snapshot_text(pool, name->data, name->len, &z->name);
}


static ngx_int_t
ngx_mcp_snapshot_upstream(ngx_pool_t *pool, ngx_mcp_policy_t *policy,
    ngx_mcp_snapshot_t *s)
{
    ngx_str_t                    *zone;
    ngx_mcp_snapshot_upstream_t  *u;

    u = ngx_array_push(&s->upstreams);
    if (u == NULL) {
        return NGX_ERROR;
    }

    zone = &policy->zone->shm_zone->shm.name;

    if (ngx_mcp_snapshot_text(pool, policy->name.data, policy->name.len,
                              &u->name)
        != NGX_OK
        || ngx_mcp_snapshot_text(pool, zone->data, zone->len, &u->zone)
           != NGX_OK
        || ngx_array_init(&u->peers, pool, 4, sizeof(ngx_mcp_snapshot_peer_t))
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_mcp_peer_upstream_copy(policy, u->count);

    return ngx_mcp_snapshot_peers(pool, policy, u);
}


static ngx_int_t
ngx_mcp_snapshot_peers(ngx_pool_t *pool, ngx_mcp_policy_t *policy,
    ngx_mcp_snapshot_upstream_t *u)
{
    ngx_int_t                 rc;
    ngx_mcp_peer_copy_t       copy;
    ngx_mcp_snapshot_peer_t  *peer;

    copy.slot = 0;

    /* what is open now is the sum of what the workers say, peer by peer */

    u->count[NGX_MCP_COUNT_OPEN] = 0;
    u->count[NGX_MCP_COUNT_HELD] = 0;

    for ( ;; ) {
        rc = ngx_mcp_peer_next(policy, copy.slot, &copy);

        if (rc == NGX_DONE) {
            return NGX_OK;
        }

        if (rc == NGX_DECLINED) {

            /* forgotten just now, which is rare: from the beginning */

            u->peers.nelts = 0;
            u->count[NGX_MCP_COUNT_OPEN] = 0;
            u->count[NGX_MCP_COUNT_HELD] = 0;
            copy.slot = 0;
            continue;
        }

        /* of those gone from the configuration only while sessions remain */

        if (copy.gone && copy.nsessions == 0) {
            continue;
        }

        peer = ngx_array_push(&u->peers);

        if (peer == NULL
            || ngx_mcp_snapshot_peer(pool, policy, &copy, peer) != NGX_OK)
        {
            return NGX_ERROR;
        }

        u->count[NGX_MCP_COUNT_OPEN] += peer->streams;
        u->count[NGX_MCP_COUNT_HELD] += peer->held;
    }
}


static ngx_int_t
ngx_mcp_snapshot_peer(ngx_pool_t *pool, ngx_mcp_policy_t *policy,
    ngx_mcp_peer_copy_t *copy, ngx_mcp_snapshot_peer_t *peer)
{
    uint64_t       now, next;
    mcp_health_t  *h;

    ngx_memzero(peer, sizeof(ngx_mcp_snapshot_peer_t));

    h = &copy->health;
    now = ngx_current_msec;

    next = mcp_health_attempts_only(h) ? h->next_attempt_ms : 0;

    peer->state = h->state;
    peer->since_ms = now - ngx_min(h->since_ms, now);
    peer->budget = mcp_health_limit(h, &policy->health);
    peer->charges = h->charges;
    peer->attempts = h->attempts;
    peer->next_attempt_ms = (next > now) ? next - now : 0;
    peer->epoch = h->epoch;
    peer->parks = h->parks;
    peer->reconnects = h->reconnects;
    peer->sessions = copy->nsessions;
    peer->sent = copy->sent;
    peer->bytes = copy->bytes;
    peer->latency_count = copy->answered;
    peer->latency_ms = copy->latency_ms;
    peer->gone = copy->gone ? 1 : 0;
    peer->representative = (copy->wrong < NGX_MCP_PEER_WRONG);

    ngx_memcpy(peer->verdict, copy->verdict, sizeof(peer->verdict));

    ngx_mcp_snapshot_streams(policy, copy->slot, peer);

    if (ngx_mcp_snapshot_text(pool, copy->name, copy->name_len, &peer->name)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_mcp_snapshot_text(pool, copy->reason, copy->reason_len,
                                 &peer->reason);
}


/* Of the peer's event streams. */

static void
ngx_mcp_snapshot_streams(ngx_mcp_policy_t *policy, uint32_t slot,
    ngx_mcp_snapshot_peer_t *peer)
{
    ngx_uint_t            i;
    ngx_mcp_tally_copy_t  tally;

    ngx_mcp_tally_copy(policy, slot, &tally);

    peer->streams = tally.open;
    peer->held = tally.held;
    peer->stream_age_ms = tally.age_ms;

    for (i = 0; i < NGX_MCP_END_N; i++) {
        peer->stream_end[i] = tally.end[i];
        peer->stream_count += tally.end[i];
    }
}


/* A name of the configuration need not be UTF-8; JSON and metrics must. */

static ngx_int_t
ngx_mcp_snapshot_text(ngx_pool_t *pool, u_char *data, size_t len,
    ngx_str_t *text)
{
    size_t   i;
    u_char  *p;

    p = ngx_pnalloc(pool, len * (sizeof("\\xHH") - 1) + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    text->data = p;

    for (i = 0; i < len; i++) {

        if (data[i] < 0x20 || data[i] > 0x7e) {
            p = ngx_sprintf(p, "\\x%02Xi", (ngx_int_t) data[i]);

        } else {
            *p++ = data[i];
        }
    }

    text->len = p - text->data;

    return NGX_OK;
}
