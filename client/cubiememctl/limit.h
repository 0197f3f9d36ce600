/* limit - the answer to a change of the limits */
#ifndef CTL_LIMIT_H
#define CTL_LIMIT_H

#include "ctl.h"

/* The new revision, and who is over it now. Returns the exit status. */
int limits_reply_print(const struct ctl *ctl, const char *what,
                       const Cubiemem__LimitsReply *limits);

#endif
