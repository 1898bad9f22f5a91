
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <jansson.h>

#include "ngx_mcp_status_json.h"


static json_t *ngx_mcp_status_json_root(ngx_mcp_snapshot_t *s);
static json_t *ngx_mcp_status_json_zones(ngx_mcp_snapshot_t *s);
static json_t *ngx_mcp_status_json_upstreams(ngx_mcp_snapshot_t *s);
static json_t *ngx_mcp_status_json_upstream(ngx_mcp_snapshot_upstream_t *u);
static json_t *ngx_mcp_status_json_peer(ngx_mcp_snapshot_peer_t *peer);
static int ngx_mcp_status_json_fields(json_t *object,
    const ngx_mcp_field_t *field, void *record);
static int ngx_mcp_status_json_verdicts(json_t *peer, uint64_t *verdict);
static json_t *ngx_mcp_status_json_time(void);
static void ngx_mcp_status_json_cleanup(void *data);


/*
 * jansson takes NULL for any object or value and says -1: what fails for want
 * of memory is seen where it is put together.
 */

#define ngx_mcp_json_set(object, name, value)                                 \
    json_object_set_new(object, name, value)

#define ngx_mcp_json_text(s)                                                  \
    json_stringn((char *) (s)->data, (s)->len)


ngx_int_t
ngx_mcp_status_json(ngx_pool_t *pool, ngx_mcp_snapshot_t *s, ngx_str_t *text)
{
    char                *dump;
    json_t              *root;
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    root = ngx_mcp_status_json_root(s);
    dump = json_dumps(root, JSON_INDENT(2)|JSON_PRESERVE_ORDER);

    json_decref(root);

    if (dump == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_mcp_status_json_cleanup;
    cln->data = dump;

    text->data = (u_char *) dump;
    text->len = ngx_strlen(dump);

    /* in place of the final NUL */

    text->data[text->len++] = '\n';

    return NGX_OK;
}


static json_t *
ngx_mcp_status_json_root(ngx_mcp_snapshot_t *s)
{
    int      rc;
    json_t  *root;

    root = json_object();

    rc = ngx_mcp_json_set(root, "module", json_string(NGX_MCP_MODULE_VERSION));
    rc |= ngx_mcp_json_set(root, "nginx", json_string(NGINX_VERSION));
    rc |= ngx_mcp_json_set(root, "worker", json_integer(ngx_pid));
    rc |= ngx_mcp_json_set(root, "time", ngx_mcp_status_json_time());
    rc |= ngx_mcp_json_set(root, "generation", json_integer(s->generation));
    rc |= ngx_mcp_json_set(root, "zones", ngx_mcp_status_json_zones(s));
    rc |= ngx_mcp_json_set(root, "upstreams",
                           ngx_mcp_status_json_upstreams(s));

    if (rc != 0) {
        json_decref(root);
        return NULL;
    }

    return root;
}


static json_t *
ngx_mcp_status_json_zones(ngx_mcp_snapshot_t *s)
{
    int                       rc;
    json_t                   *zones, *json;
    ngx_uint_t                i;
    ngx_mcp_snapshot_zone_t  *z;

    rc = 0;
    zones = json_object();
    z = s->zones.elts;

    for (i = 0; i < s->zones.nelts; i++) {
        json = json_object();

        rc |= ngx_mcp_status_json_fields(json, ngx_mcp_snapshot_zone_fields,
                                         &z[i]);
        rc |= json_object_setn_new(zones, (char *) z[i].name.data,
                                   z[i].name.len, json);
    }

    if (rc != 0) {
        json_decref(zones);
        return NULL;
    }

    return zones;
}


static json_t *
ngx_mcp_status_json_upstreams(ngx_mcp_snapshot_t *s)
{
    int                           rc;
    json_t                       *upstreams;
    ngx_uint_t                    i;
    ngx_mcp_snapshot_upstream_t  *u;

    rc = 0;
    upstreams = json_object();
    u = s->upstreams.elts;

    for (i = 0; i < s->upstreams.nelts; i++) {
        rc |= json_object_setn_new(upstreams, (char *) u[i].name.data,
                                   u[i].name.len,
                                   ngx_mcp_status_json_upstream(&u[i]));
    }

    if (rc != 0) {
        json_decref(upstreams);
        return NULL;
    }

    return upstreams;
}


static json_t *
ngx_mcp_status_json_upstream(ngx_mcp_snapshot_upstream_t *u)
{
    int                       rc;
    json_t                   *json, *peers;
    ngx_uint_t                i;
    ngx_mcp_snapshot_peer_t  *peer;

    json = json_object();
    peers = json_array();
    peer = u->peers.elts;

    rc = ngx_mcp_json_set(json, "zone", ngx_mcp_json_text(&u->zone));
    rc |= ngx_mcp_status_json_fields(json, ngx_mcp_snapshot_upstream_fields,
                                     u);

    for (i = 0; i < u->peers.nelts; i++) {
        rc |= json_array_append_new(peers, ngx_mcp_status_json_peer(&peer[i]));
    }

    rc |= ngx_mcp_json_set(json, "peers", peers);

    if (rc != 0) {
        json_decref(json);
        return NULL;
    }

    return json;
}


static json_t *
ngx_mcp_status_json_peer(ngx_mcp_snapshot_peer_t *peer)
{
    int          rc;
    json_t      *json;
    const char  *state;

    json = json_object();
    state = mcp_health_state_name(peer->state);

    rc = ngx_mcp_json_set(json, "name", ngx_mcp_json_text(&peer->name));
    rc |= ngx_mcp_json_set(json, "state", json_string(state));
    rc |= ngx_mcp_json_set(json, "reason", ngx_mcp_json_text(&peer->reason));
    rc |= ngx_mcp_json_set(json, "gone", json_boolean(peer->gone));
    rc |= ngx_mcp_json_set(json, "representative",
                           json_boolean(peer->representative));
    rc |= ngx_mcp_status_json_fields(json, ngx_mcp_snapshot_peer_fields, peer);
    rc |= ngx_mcp_status_json_verdicts(json, peer->verdict);

    if (rc != 0) {
        json_decref(json);
        return NULL;
    }

    return json;
}


/* Adds the fields of a record, those of a group as an object of that name. */

static int
ngx_mcp_status_json_fields(json_t *object, const ngx_mcp_field_t *field,
    void *record)
{
    int       rc;
    json_t   *into;
    uint64_t  value;

    rc = 0;

    for ( /* void */ ; field->name; field++) {

        into = object;

        if (field->group) {
            into = json_object_get(object, field->group);

            if (into == NULL) {
                into = json_object();
                rc |= ngx_mcp_json_set(object, field->group, into);
            }
        }

        value = ngx_mcp_field_value(field, record);

        rc |= ngx_mcp_json_set(into, field->name,
                               json_integer((json_int_t) value));

        if (rc != 0) {
            break;
        }
    }

    return rc;
}


/* Of the verdicts those that were met. */

static int
ngx_mcp_status_json_verdicts(json_t *peer, uint64_t *verdict)
{
    int          rc;
    json_t      *keepalives;
    ngx_uint_t   i;

    rc = 0;
    keepalives = json_object_get(peer, "keepalives");

    for (i = 0; i < MCP_VERDICT_N; i++) {

        if (verdict[i]) {
            rc |= ngx_mcp_json_set(keepalives, mcp_verdict_name(i),
                                   json_integer((json_int_t) verdict[i]));
        }
    }

    return rc;
}


static json_t *
ngx_mcp_status_json_time(void)
{
    u_char    *last, time[sizeof("2026-01-01T00:00:00Z")];
    ngx_tm_t   tm;

    ngx_gmtime(ngx_time(), &tm);

    last = ngx_sprintf(time, "%4d-%02d-%02dT%02d:%02d:%02dZ",
                       tm.ngx_tm_year, tm.ngx_tm_mon, tm.ngx_tm_mday,
                       tm.ngx_tm_hour, tm.ngx_tm_min, tm.ngx_tm_sec);

    return json_stringn((char *) time, last - time);
}


static void
ngx_mcp_status_json_cleanup(void *data)
{
    free(data);
}
