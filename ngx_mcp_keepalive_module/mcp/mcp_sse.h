
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Event-stream scanner: where an event ends, whether the stream stands at an
 * event boundary, and what the event's data is.  Pure: no clock, no I/O, no
 * allocation.  Rules: WHATWG HTML, "Server-sent events", 9.2.5 and 9.2.6.
 */


#ifndef _MCP_SSE_H_INCLUDED_
#define _MCP_SSE_H_INCLUDED_


#include <stddef.h>


typedef enum {
    MCP_SSE_AGAIN = 0,          /* all input consumed, no event complete */
    MCP_SSE_EVENT,              /* an event with data is complete */
    MCP_SSE_TOO_BIG             /* an event ended whose data was cut */
} mcp_sse_rc_t;


/* Private, except that after MCP_SSE_EVENT data[0 .. len) may be read. */

typedef struct {
    unsigned char              *data;       /* the caller's buffer, or NULL */
    size_t                      size;
    size_t                      len;        /* bytes of data kept */
    size_t                      name_len;   /* of the field being read */
    unsigned char               name[8];
    unsigned char               state;
    unsigned char               bom;
    unsigned                    cr:1;       /* the last byte was a CR */
    unsigned                    blank:1;    /* the last line was empty */
    unsigned                    boundary:1;
    unsigned                    has_data:1; /* a data line was seen */
    unsigned                    cut:1;      /* data did not fit */
    unsigned                    fresh:1;    /* next event starts clean */
} mcp_sse_t;


/*
 * Starts a scanner at the beginning of a stream.  "buf" of "size" bytes takes
 * the data of one event and must outlive the scanner; with NULL only the
 * boundaries are followed.
 */
void mcp_sse_init(mcp_sse_t *s, unsigned char *buf, size_t size);

/*
 * Gives the scanner another buffer, at any time.  It must begin with the s->len
 * bytes kept so far, as after realloc(); what does not fit is cut.
 */
void mcp_sse_move(mcp_sse_t *s, unsigned char *buf, size_t size);

/*
 * Reads from *pos to "last" and moves *pos.  Returns at the end of every event
 * that has data: MCP_SSE_EVENT (its data lines are joined by LF in s->data,
 * which is good until the next call) or MCP_SSE_TOO_BIG; call again with the
 * same *pos until MCP_SSE_AGAIN says that the input is used up.  Events without
 * a data line, comments and unknown fields are skipped; an empty "data:" is an
 * event of length 0 (the priming event of MCP servers).  Any split of the input
 * gives the same events.
 */
mcp_sse_rc_t mcp_sse_feed(mcp_sse_t *s, const unsigned char **pos,
    const unsigned char *last);

/*
 * True when bytes may be put in here without changing what the client reads:
 * at the very start, and after an empty line (LF LF, CR LF CR LF, CR CR), never
 * between a CR and its LF.
 */
int mcp_sse_at_boundary(const mcp_sse_t *s);


#endif /* _MCP_SSE_H_INCLUDED_ */
