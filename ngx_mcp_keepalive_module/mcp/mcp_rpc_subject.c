
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <stdlib.h>
#include <string.h>
#include <jansson.h>

#include "mcp_rpc_json.h"
#include "mcp_rpc_subject.h"


#define SUBJECT_ENDS    "}}"            /* of the message and its params */


static json_t *mcp_rpc_subject_load(const unsigned char *data, size_t len,
    int cut);
static size_t mcp_rpc_subject_end(const unsigned char *data, size_t len,
    size_t *depth);
static void mcp_rpc_subject_word(char *to, json_t *value);


static const struct {
    const char         *method;
    const char         *member;
} mcp_rpc_subjects[] = {
    { "tools/call",     "name" },
    { "prompts/get",    "name" },
    { "resources/read", "uri" },
    { NULL,             NULL }
};


void
mcp_rpc_subject(mcp_rpc_subject_t *s, const unsigned char *data, size_t len,
    int cut)
{
    size_t   i;
    json_t  *msg, *params;

    s->method[0] = '\0';
    s->name[0] = '\0';

    msg = mcp_rpc_subject_load(data, len, cut);

    /* some clients put it last */

    if (!cut && json_object_get(msg, "jsonrpc") == NULL) {
        json_decref(msg);
        return;
    }

    mcp_rpc_subject_word(s->method, json_object_get(msg, "method"));

    params = json_object_get(msg, "params");

    for (i = 0; mcp_rpc_subjects[i].method != NULL; i++) {

        if (strcmp(s->method, mcp_rpc_subjects[i].method) == 0) {
            mcp_rpc_subject_word(s->name,
                       json_object_get(params, mcp_rpc_subjects[i].member));
        }
    }

    json_decref(msg);
}


size_t
mcp_rpc_word(char *to, const char *from, size_t len)
{
    size_t  i;

    to[0] = '\0';

    if (len == 0 || len > MCP_RPC_WORD_MAX) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        if (from[i] < 0x21 || from[i] > 0x7e) {
            return 0;
        }
    }

    memcpy(to, from, len);
    to[len] = '\0';

    return len;
}


static json_t *
mcp_rpc_subject_load(const unsigned char *data, size_t len, int cut)
{
    size_t          end, depth;
    json_t         *msg;
    unsigned char  *copy;

    if (!cut) {
        return mcp_rpc_json_load(data, len);
    }

    /* what came whole, and what it needs to be well-formed */

    end = mcp_rpc_subject_end(data, len, &depth);

    if (end == 0) {
        return NULL;
    }

    copy = malloc(end + depth);
    if (copy == NULL) {
        return NULL;
    }

    memcpy(copy, data, end);
    memcpy(copy + end, SUBJECT_ENDS, depth);

    msg = mcp_rpc_json_load(copy, end + depth);

    free(copy);

    return msg;
}


/*
 * The last comma between two members of the message, or of an object in it;
 * "depth" says which.  0: there is none.
 */

static size_t
mcp_rpc_subject_end(const unsigned char *data, size_t len, size_t *depth)
{
    int     string, array;
    size_t  i, level, end;

    end = 0;
    level = 0;
    array = 0;
    string = 0;

    for (i = 0; i < len; i++) {

        if (string) {
            if (data[i] == '\\') {
                i++;

            } else if (data[i] == '"') {
                string = 0;
            }

            continue;
        }

        switch (data[i]) {

        case '"':
            string = 1;
            break;

        case '{':
        case '[':
            level++;

            if (level <= 2) {
                array = (data[i] == '[');
            }

            break;

        case '}':
        case ']':
            level -= (level != 0);

            if (level == 1) {
                array = 0;
            }

            break;

        case ',':
            if ((level == 1 || level == 2) && !array) {
                end = i;
                *depth = level;
            }

            break;
        }
    }

    return end;
}


static void
mcp_rpc_subject_word(char *to, json_t *value)
{
    const char  *text;

    text = json_string_value(value);

    if (text == NULL) {
        to[0] = '\0';
        return;
    }

    (void) mcp_rpc_word(to, text, json_string_length(value));
}
