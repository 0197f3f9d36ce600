/*
 * hash - uthash as the daemon uses it
 *
 * A daemon does not end because one client's table is full: HASH_ADD that finds no
 * host memory leaves the table as it was, and the item's hh.tbl NULL.
 */
#ifndef DAEMON_HASH_H
#define DAEMON_HASH_H

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#endif
