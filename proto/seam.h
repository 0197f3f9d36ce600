/*
 * seam - where a test may stop this side between two steps
 *
 * Nothing at all in the product. In objects built with CUBIEMEM_TEST_SEAMS the
 * program says with seam_stop() what it does at a point: the daemon asks the test over
 * a socket (tests/support/seam.c), a test with the library in it stops the thread.
 */
#ifndef PROTO_SEAM_H
#define PROTO_SEAM_H

#ifdef CUBIEMEM_TEST_SEAMS
void seam_stop(const char *point);
#define SEAM(point) seam_stop(point)
#else
#define SEAM(point) ((void)0)
#endif

#endif
