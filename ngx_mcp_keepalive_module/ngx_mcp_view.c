
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_mcp_view.h"


static ngx_int_t ngx_mcp_view_fill(ngx_mcp_policy_t *policy,
    ngx_mcp_view_t *view);
static ngx_int_t ngx_mcp_view_grow(ngx_mcp_view_t *view);


static ngx_mcp_view_t     ngx_mcp_view_none;
static ngx_mcp_view_t    *ngx_mcp_views;
static ngx_uint_t         ngx_mcp_nviews;
static void             (*ngx_mcp_view_changed)(void);


ngx_int_t
ngx_mcp_view_init_process(ngx_uint_t n, void (*changed)(void))
{
    ngx_mcp_views = ngx_calloc(n * sizeof(ngx_mcp_view_t), ngx_cycle->log);

    if (ngx_mcp_views == NULL) {
        return NGX_ERROR;
    }

    ngx_mcp_nviews = n;
    ngx_mcp_view_changed = changed;

    return NGX_OK;
}


void
ngx_mcp_view_exit_process(void)
{
    while (ngx_mcp_nviews) {
        ngx_free(ngx_mcp_views[--ngx_mcp_nviews].peers);
    }

    ngx_free(ngx_mcp_views);
    ngx_mcp_views = NULL;
}


ngx_mcp_view_t *
ngx_mcp_view(ngx_mcp_policy_t *policy)
{
    uint32_t         changes;
    uint64_t         mark;
    ngx_uint_t       first;
    ngx_mcp_view_t  *view;

    if (policy->index >= ngx_mcp_nviews) {

        /* a new configuration in a single process: no worker to begin anew */

        return &ngx_mcp_view_none;
    }

    view = &ngx_mcp_views[policy->index];

    /* read before the copy: what changes meanwhile is copied again */

    changes = *(volatile uint32_t *) &policy->zone->sh->changes;

    if (view->filled && view->changes == changes) {
        return view;
    }

    ngx_memory_barrier();

    first = !view->filled;
    mark = *(volatile ngx_atomic_uint_t *) ngx_connection_counter;

    if (ngx_mcp_view_fill(policy, view) == NGX_OK) {
        view->filled = 1;
        view->changes = changes;
        view->known = mark;

        if (!first) {
            ngx_mcp_view_changed();
        }
    }

    return view;
}


ngx_mcp_peer_view_t *
ngx_mcp_view_find(ngx_mcp_view_t *view, ngx_str_t *name)
{
    ngx_uint_t            i;
    ngx_mcp_peer_view_t  *peer;

    for (i = 0; i < view->n; i++) {
        peer = &view->peers[i];

        if (peer->name_len == name->len
            && ngx_memcmp(peer->name, name->data, name->len) == 0)
        {
            return peer;
        }
    }

    return NULL;
}


static ngx_int_t
ngx_mcp_view_fill(ngx_mcp_policy_t *policy, ngx_mcp_view_t *view)
{
    uint32_t    after;
    ngx_uint_t  i, n, room;

    after = 0;

    for (i = 0; /* void */ ; i += n) {

        if (i == view->size && ngx_mcp_view_grow(view) != NGX_OK) {
            return NGX_ERROR;
        }

        room = ngx_min(view->size - i, NGX_MCP_LOCK_NODES);

        n = ngx_mcp_peer_views(policy, after, &view->peers[i], room);

        if (n == 0) {
            break;
        }

        after = view->peers[i + n - 1].slot;
    }

    view->n = i;
    view->sick = 0;

    for (i = 0; i < view->n; i++) {
        view->sick += !view->peers[i].gone
                      && ngx_mcp_view_sick(&view->peers[i]);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_view_grow(ngx_mcp_view_t *view)
{
    ngx_uint_t            size;
    ngx_mcp_peer_view_t  *peers;

    size = view->size ? view->size * 2 : 8;

    peers = ngx_alloc(size * sizeof(ngx_mcp_peer_view_t), ngx_cycle->log);
    if (peers == NULL) {
        return NGX_ERROR;
    }

    if (view->size) {
        ngx_memcpy(peers, view->peers,
                   view->size * sizeof(ngx_mcp_peer_view_t));
        ngx_free(view->peers);
    }

    view->peers = peers;
    view->size = size;

    return NGX_OK;
}
