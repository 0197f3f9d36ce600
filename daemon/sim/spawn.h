/* spawn - start a program that is nobody's child */
#ifndef DAEMON_SIM_SPAWN_H
#define DAEMON_SIM_SPAWN_H

/* Run path with arguments, control as fd 3 and queue as fd 4 and nothing else
 * open. Return its process id or a negative errno. */
int spawn_engine(const char *path, char *const *arguments, int control, int queue);

#endif
