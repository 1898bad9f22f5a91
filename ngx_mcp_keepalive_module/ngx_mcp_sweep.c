
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_event.h>

#include "ngx_mcp_sweep.h"


static void ngx_mcp_sweep_idle(ngx_mcp_view_t *view);
static ngx_uint_t ngx_mcp_sweep_stale(ngx_mcp_view_t *view,
    ngx_connection_t *c);


void
ngx_mcp_sweep(ngx_mcp_policy_t *policy)
{
    ngx_uint_t       i;
    ngx_mcp_view_t  *view;

    view = ngx_mcp_view(policy);

    for (i = 0; i < view->n; i++) {

        if (view->peers[i].mark >= view->swept && view->peers[i].mark) {
            ngx_mcp_sweep_idle(view);
            break;
        }
    }

    view->swept = view->known;
}


/* The contract is that of ngx_close_idle_connections(). */

static void
ngx_mcp_sweep_idle(ngx_mcp_view_t *view)
{
    ngx_uint_t         i;
    ngx_connection_t  *c;

    c = ngx_cycle->connections;

    for (i = 0; i < ngx_cycle->connection_n; i++) {

        /* those of clients are idle at times, too */

        if (c[i].fd == (ngx_socket_t) -1 || !c[i].idle || c[i].listening
            || !ngx_mcp_sweep_stale(view, &c[i]))
        {
            continue;
        }

        c[i].close = 1;
        c[i].read->handler(c[i].read);
    }
}


static ngx_uint_t
ngx_mcp_sweep_stale(ngx_mcp_view_t *view, ngx_connection_t *c)
{
    u_char                text[NGX_SOCKADDR_STRLEN];
    socklen_t             len;
    ngx_str_t             name;
    ngx_sockaddr_t        sa;
    ngx_mcp_peer_view_t  *peer;

    len = sizeof(ngx_sockaddr_t);

    if (getpeername(c->fd, &sa.sockaddr, &len) == -1) {
        return 0;
    }

    name.data = text;
    name.len = ngx_sock_ntop(&sa.sockaddr, len, text, NGX_SOCKADDR_STRLEN, 1);

    peer = ngx_mcp_view_find(view, &name);

    return peer != NULL && peer->mark >= view->swept
           && c->number < peer->mark;
}
