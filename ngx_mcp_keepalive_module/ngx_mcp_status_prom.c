
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_status_prom.h"


#define NGX_MCP_PROM_PREFIX  "mcp_keepalive_"
#define NGX_MCP_PROM_SIZE    16384
#define NGX_MCP_PROM_LINE    512        /* of a sample, but for its labels */


/* A text that grows; "end" NULL: there was no memory. */

typedef struct {
    ngx_pool_t                 *pool;
    u_char                     *start;
    u_char                     *last;
    u_char                     *end;
} ngx_mcp_prom_t;


/* One sample's labels; a name may be NULL. */

typedef struct {
    const char                 *name;
    ngx_str_t                   value;
} ngx_mcp_prom_label_t;

typedef ngx_mcp_prom_label_t  ngx_mcp_prom_labels_t[3];


static void ngx_mcp_prom_info(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s);
static void ngx_mcp_prom_zones(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s);
static void ngx_mcp_prom_upstreams(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s);
static void ngx_mcp_prom_peers(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s,
    const ngx_mcp_field_t *field);
static void ngx_mcp_prom_states(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s);
static void ngx_mcp_prom_verdicts(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s);
static void ngx_mcp_prom_family(ngx_mcp_prom_t *p,
    const ngx_mcp_field_t *field);
static void ngx_mcp_prom_head(ngx_mcp_prom_t *p, const char *name, size_t len,
    const char *type, const char *help);
static void ngx_mcp_prom_sample(ngx_mcp_prom_t *p, const char *name,
    ngx_mcp_prom_label_t *labels, uint64_t value, ngx_uint_t ms);
static u_char *ngx_mcp_prom_label(u_char *p, ngx_str_t *value);
static void ngx_mcp_prom_cstr(ngx_str_t *s, const char *text);
static u_char *ngx_mcp_prom_room(ngx_mcp_prom_t *p, size_t size);


ngx_int_t
ngx_mcp_status_prom(ngx_pool_t *pool, ngx_mcp_snapshot_t *s, ngx_str_t *text)
{
    ngx_mcp_prom_t          p;
    const ngx_mcp_field_t  *field;

    p.pool = pool;
    p.start = ngx_pnalloc(pool, NGX_MCP_PROM_SIZE);
    p.last = p.start;
    p.end = p.start ? p.start + NGX_MCP_PROM_SIZE : NULL;

    ngx_mcp_prom_info(&p, s);
    ngx_mcp_prom_zones(&p, s);
    ngx_mcp_prom_upstreams(&p, s);
    ngx_mcp_prom_states(&p, s);

    for (field = ngx_mcp_snapshot_peer_fields; field->name; field++) {
        ngx_mcp_prom_peers(&p, s, field);
    }

    ngx_mcp_prom_verdicts(&p, s);

    text->data = p.start;
    text->len = p.last - p.start;

    return p.end ? NGX_OK : NGX_ERROR;
}


static void
ngx_mcp_prom_info(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s)
{
    ngx_mcp_prom_labels_t  labels;

    ngx_memzero(labels, sizeof(ngx_mcp_prom_labels_t));

    ngx_mcp_prom_head(p, "generation", sizeof("generation") - 1, "gauge",
                      "Configurations loaded since the zone was made.");
    ngx_mcp_prom_sample(p, "generation", labels, s->generation, 0);

    labels[0].name = "module";
    ngx_str_set(&labels[0].value, NGX_MCP_MODULE_VERSION);
    labels[1].name = "nginx";
    ngx_str_set(&labels[1].value, NGINX_VERSION);

    ngx_mcp_prom_head(p, "build_info", sizeof("build_info") - 1, "gauge",
                      "Versions of the module and of nginx.");
    ngx_mcp_prom_sample(p, "build_info", labels, 1, 0);
}


static void
ngx_mcp_prom_zones(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s)
{
    ngx_uint_t                i;
    const ngx_mcp_field_t    *field;
    ngx_mcp_prom_labels_t     labels;
    ngx_mcp_snapshot_zone_t  *z;

    ngx_memzero(labels, sizeof(ngx_mcp_prom_labels_t));

    z = s->zones.elts;
    labels[0].name = "zone";

    for (field = ngx_mcp_snapshot_zone_fields; field->name; field++) {

        ngx_mcp_prom_family(p, field);

        for (i = 0; i < s->zones.nelts; i++) {
            labels[0].value = z[i].name;
            ngx_mcp_prom_sample(p, field->metric, labels,
                                ngx_mcp_field_value(field, &z[i]), field->ms);
        }
    }
}


static void
ngx_mcp_prom_upstreams(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s)
{
    ngx_uint_t                    i;
    const ngx_mcp_field_t        *field;
    ngx_mcp_prom_labels_t         labels;
    ngx_mcp_snapshot_upstream_t  *u;

    ngx_memzero(labels, sizeof(ngx_mcp_prom_labels_t));

    u = s->upstreams.elts;
    labels[0].name = "upstream";

    for (field = ngx_mcp_snapshot_upstream_fields; field->name; field++) {

        ngx_mcp_prom_family(p, field);

        for (i = 0; i < s->upstreams.nelts; i++) {
            labels[0].value = u[i].name;
            ngx_mcp_prom_sample(p, field->metric, labels,
                                ngx_mcp_field_value(field, &u[i]), field->ms);
        }
    }
}


static void
ngx_mcp_prom_peers(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s,
    const ngx_mcp_field_t *field)
{
    ngx_uint_t                    i, n;
    ngx_mcp_prom_labels_t         labels;
    ngx_mcp_snapshot_peer_t      *peer;
    ngx_mcp_snapshot_upstream_t  *u;

    ngx_memzero(labels, sizeof(ngx_mcp_prom_labels_t));

    u = s->upstreams.elts;
    labels[0].name = "upstream";
    labels[1].name = "peer";

    ngx_mcp_prom_family(p, field);

    for (i = 0; i < s->upstreams.nelts; i++) {

        labels[0].value = u[i].name;
        peer = u[i].peers.elts;

        for (n = 0; n < u[i].peers.nelts; n++) {
            labels[1].value = peer[n].name;
            ngx_mcp_prom_sample(p, field->metric, labels,
                                ngx_mcp_field_value(field, &peer[n]),
                                field->ms);
        }
    }
}


/* One of the four is 1. */

static void
ngx_mcp_prom_states(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s)
{
    ngx_uint_t                    i, n, state;
    ngx_mcp_prom_labels_t         labels;
    ngx_mcp_snapshot_peer_t      *peer;
    ngx_mcp_snapshot_upstream_t  *u;

    u = s->upstreams.elts;
    labels[0].name = "upstream";
    labels[1].name = "peer";
    labels[2].name = "state";

    ngx_mcp_prom_head(p, "peer_state", sizeof("peer_state") - 1, "gauge",
                      "1 for the state the server is in, 0 for the others.");

    for (i = 0; i < s->upstreams.nelts; i++) {

        labels[0].value = u[i].name;
        peer = u[i].peers.elts;

        for (n = 0; n < u[i].peers.nelts; n++) {

            labels[1].value = peer[n].name;

            for (state = 0; state <= MCP_PEER_PARKED; state++) {
                ngx_mcp_prom_cstr(&labels[2].value,
                                  mcp_health_state_name(state));
                ngx_mcp_prom_sample(p, "peer_state", labels,
                                    peer[n].state == state, 0);
            }
        }
    }
}


/* All of them: a counter that appears with its first event has no rate. */

static void
ngx_mcp_prom_verdicts(ngx_mcp_prom_t *p, ngx_mcp_snapshot_t *s)
{
    ngx_uint_t                    i, n, v;
    ngx_mcp_prom_labels_t         labels;
    ngx_mcp_snapshot_peer_t      *peer;
    ngx_mcp_snapshot_upstream_t  *u;

    u = s->upstreams.elts;
    labels[0].name = "upstream";
    labels[1].name = "peer";
    labels[2].name = "verdict";

    ngx_mcp_prom_head(p, "verdicts_total", sizeof("verdicts_total") - 1,
                      "counter", "Keepalives by how their answer was judged.");

    for (i = 0; i < s->upstreams.nelts; i++) {

        labels[0].value = u[i].name;
        peer = u[i].peers.elts;

        for (n = 0; n < u[i].peers.nelts; n++) {

            labels[1].value = peer[n].name;

            for (v = 0; v < MCP_VERDICT_N; v++) {
                ngx_mcp_prom_cstr(&labels[2].value, mcp_verdict_name(v));
                ngx_mcp_prom_sample(p, "verdicts_total", labels,
                                    peer[n].verdict[v], 0);
            }
        }
    }
}


/* The head of a field's family; a summary has one for its sum and count. */

static void
ngx_mcp_prom_family(ngx_mcp_prom_t *p, const ngx_mcp_field_t *field)
{
    size_t  len;

    len = ngx_strlen(field->metric);

    switch (field->type) {

    case NGX_MCP_FIELD_COUNTER:
        ngx_mcp_prom_head(p, field->metric, len, "counter", field->help);
        break;

    case NGX_MCP_FIELD_SUM:
        ngx_mcp_prom_head(p, field->metric, len - (sizeof("_sum") - 1),
                          "summary", field->help);
        break;

    case NGX_MCP_FIELD_COUNT:
        break;

    default: /* NGX_MCP_FIELD_GAUGE */
        ngx_mcp_prom_head(p, field->metric, len, "gauge", field->help);
    }
}


static void
ngx_mcp_prom_head(ngx_mcp_prom_t *p, const char *name, size_t len,
    const char *type, const char *help)
{
    u_char  *last;

    last = ngx_mcp_prom_room(p, NGX_MCP_PROM_LINE);
    if (last == NULL) {
        return;
    }

    p->last = ngx_sprintf(last, "# HELP " NGX_MCP_PROM_PREFIX "%*s %s\n"
                          "# TYPE " NGX_MCP_PROM_PREFIX "%*s %s\n",
                          len, name, help, len, name, type);
}


static void
ngx_mcp_prom_sample(ngx_mcp_prom_t *p, const char *name,
    ngx_mcp_prom_label_t *labels, uint64_t value, ngx_uint_t ms)
{
    size_t       size;
    u_char      *last;
    ngx_uint_t   i;

    size = NGX_MCP_PROM_LINE;

    for (i = 0; i < 3 && labels[i].name; i++) {
        size += 2 * labels[i].value.len;
    }

    last = ngx_mcp_prom_room(p, size);
    if (last == NULL) {
        return;
    }

    last = ngx_sprintf(last, NGX_MCP_PROM_PREFIX "%s", name);

    for (i = 0; i < 3 && labels[i].name; i++) {
        last = ngx_sprintf(last, "%c%s=\"", i ? ',' : '{', labels[i].name);
        last = ngx_mcp_prom_label(last, &labels[i].value);
        *last++ = '"';
    }

    if (i) {
        *last++ = '}';
    }

    p->last = ms ? ngx_sprintf(last, " %uL.%03uL\n", value / 1000,
                               value % 1000)
                 : ngx_sprintf(last, " %uL\n", value);
}


static u_char *
ngx_mcp_prom_label(u_char *p, ngx_str_t *value)
{
    size_t  i;

    for (i = 0; i < value->len; i++) {

        if (value->data[i] == '"' || value->data[i] == '\\') {
            *p++ = '\\';
        }

        *p++ = value->data[i];
    }

    return p;
}


static void
ngx_mcp_prom_cstr(ngx_str_t *s, const char *text)
{
    s->data = (u_char *) text;
    s->len = ngx_strlen(text);
}


/* Where "size" bytes may be written; NULL: there is, or was, no memory. */

static u_char *
ngx_mcp_prom_room(ngx_mcp_prom_t *p, size_t size)
{
    size_t   used, all;
    u_char  *start;

    if (p->end == NULL || size <= (size_t) (p->end - p->last)) {
        return p->end ? p->last : NULL;
    }

    used = p->last - p->start;
    all = 2 * (p->end - p->start) + size;

    start = ngx_pnalloc(p->pool, all);
    if (start == NULL) {
        p->end = NULL;
        return NULL;
    }

    ngx_memcpy(start, p->start, used);
    (void) ngx_pfree(p->pool, p->start);

    p->start = start;
    p->last = start + used;
    p->end = start + all;

    return p->last;
}
