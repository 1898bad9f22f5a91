
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What the fuzz targets share.  A target is one LLVMFuzzerTestOneInput(); clang
 * links it with libFuzzer (make fuzz), gcc with replay.c (make test).
 */


#ifndef _FUZZ_H_INCLUDED_
#define _FUZZ_H_INCLUDED_


#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


/* An invariant: what does not hold ends the run, as a crash does. */

#define FUZZ_CHECK(cond)                                                     \
    do {                                                                     \
        if (!(cond)) {                                                       \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__,          \
                    __LINE__, #cond);                                        \
            abort();                                                         \
        }                                                                    \
    } while (0)


typedef struct {
    const uint8_t    *p;
    const uint8_t    *last;
} fuzz_input_t;


/*
 * A control character in the input stands for a text: from 0x01 the first one
 * of the table, so that a few bytes make a whole message.  The rest is taken as
 * it is, and so are tab, LF and CR.
 */

typedef struct {
    char              code;
    const char       *text;
    size_t            fill;             /* and so many 'x' after it */
} fuzz_word_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


/* The next number of "n" bytes; zeros stand after the end. */

static inline uint64_t
fuzz_number(fuzz_input_t *in, unsigned n)
{
    uint64_t  v;

    for (v = 0; n != 0; n--) {
        v = (v << 8) | (in->p < in->last ? *in->p++ : 0);
    }

    return v;
}


/* A cheap sequence of random numbers; "*x" is not 0. */

static inline uint32_t
fuzz_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;

    return *x;
}


/*
 * A block of just the right size, so that the sanitizer sees its edges; with
 * NULL there is nothing in it yet.
 */

static inline void *
fuzz_copy(const void *data, size_t len)
{
    void  *p;

    p = malloc(len ? len : 1);
    FUZZ_CHECK(p != NULL);

    if (data != NULL && len != 0) {
        memcpy(p, data, len);
    }

    return p;
}


/* Puts the words of the table in; returns the length, at most "size". */

static inline size_t
fuzz_expand(char *dst, size_t size, const uint8_t *p, size_t len,
    const fuzz_word_t *words)
{
    size_t              n, i;
    const fuzz_word_t  *w;

    n = 0;

    for ( /* void */ ; len != 0; p++, len--) {

        for (w = words; w->text != NULL && w->code != (char) *p; w++) {
            /* void */
        }

        if (w->text == NULL) {
            if (n < size) {
                dst[n++] = (char) *p;
            }

            continue;
        }

        i = strlen(w->text);
        i = (i < size - n) ? i : size - n;
        memcpy(dst + n, w->text, i);
        n += i;

        i = (w->fill < size - n) ? w->fill : size - n;
        memset(dst + n, 'x', i);
        n += i;
    }

    return n;
}


#endif /* _FUZZ_H_INCLUDED_ */
