
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A log that keeps the first error instead of writing it: the root cause of a
 * keepalive's failure, which nginx tells to nobody else.
 */


#ifndef _NGX_MCP_CAPTURE_H_INCLUDED_
#define _NGX_MCP_CAPTURE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


#define NGX_MCP_CAPTURE_MAX  192            /* with the final NUL */


typedef struct {
    int                         err;        /* errno named in it, or 0 */
    void                      **current;    /* whose log it is now */
    void                       *mine;
    char                        text[NGX_MCP_CAPTURE_MAX];
                                            /* empty: nothing went wrong */
} ngx_mcp_capture_t;


/*
 * Makes "log" write to "capture", which must live as long.  Alerts, which are
 * faults of nginx and not of a peer, go to the log of the process as well.
 */
void ngx_mcp_capture_init(ngx_mcp_capture_t *capture, ngx_log_t *log);

/*
 * The same beside a log that goes on as before: "head" is listened to, whatever
 * its level, and "log" takes its place behind.  Only what is said while
 * "*current" is "mine" counts.  The end gives "head" back what it had, if
 * nobody gave it other things meanwhile.
 */
void ngx_mcp_capture_beside(ngx_mcp_capture_t *capture, ngx_log_t *log,
    ngx_log_t *head, void **current, void *mine);
void ngx_mcp_capture_end(ngx_mcp_capture_t *capture, ngx_log_t *log,
    ngx_log_t *head);

/* True if the connection was refused, or there is nothing to connect to. */
ngx_uint_t ngx_mcp_capture_refused(ngx_mcp_capture_t *capture);

/* True if the errno says that we ran short of something: no fault of a peer. */
ngx_uint_t ngx_mcp_capture_local(ngx_mcp_capture_t *capture);


#endif /* _NGX_MCP_CAPTURE_H_INCLUDED_ */
