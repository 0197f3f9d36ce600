/*
 * control_page - the daemon's side of a session's shared work marks
 *
 * Makes the sealed memfd, allots owner slots, writes the numbers of grants and
 * reads whether an owner looks idle. What a client writes there is never
 * believed beyond that hint. Layout: proto/control.h.
 */
#ifndef DAEMON_CONTROL_PAGE_H
#define DAEMON_CONTROL_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control.h"

/* Owners are allotted from the front; the rest is for the library's streams. */
#define CONTROL_OWNERS_PER_PAGE (CONTROL_SLOTS / 4)

struct control_page {
    union control_slot *slots; /* CONTROL_SLOTS of them, shared with the client */
    uint32_t number;
    bool allotted[CONTROL_OWNERS_PER_PAGE + 1]; /* [0] is the header's */
    bool busy[CONTROL_OWNERS_PER_PAGE + 1];     /* at the last look */
    struct control_page *next;
};

/* A new page and its descriptor, the caller's to send and close. NULL with errno. */
struct control_page *control_page_create(uint32_t number, int *fd_p);
void control_page_destroy(struct control_page *page);

/* A slot for one more owner: page << 16 | slot; 0 if no page has room. */
uint32_t control_page_allot(struct control_page *pages);
/* The owner's last instance is gone: its slot may be allotted again. */
void control_page_free(struct control_page *pages, uint32_t reference);
struct control_owner *control_page_owner(struct control_page *pages, uint32_t reference);

/* Is work begun, or marked and not ended, of any owner? */
bool control_pages_show_work(struct control_page *pages);
/* Reads all slots once: a client may have thousands of owners and of streams. */
void control_pages_look(struct control_page *pages);
/* At the last look: nothing begun, nothing granted that was not used, no marked
 * stream unfinished. */
bool control_page_is_idle(const struct control_page *pages, uint32_t reference);

#endif
