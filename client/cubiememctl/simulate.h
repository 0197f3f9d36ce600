/*
 * simulate - the verbs that need no daemon: what the policy would do
 *
 * Both link the daemon's own policy archive. argv[0] is the verb; the result is
 * the exit status: 0, 1 failed or differences, 2 usage, 6 a refused plan.
 */
#ifndef CUBIEMEMCTL_SIMULATE_H
#define CUBIEMEMCTL_SIMULATE_H

int cmd_simulate(int argc, char **argv);
int cmd_plan(int argc, char **argv);

#endif
