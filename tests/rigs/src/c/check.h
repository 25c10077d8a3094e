/* The check of the rigs' programs in C: ends the program, and says where, unless the condition holds. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "FAIL %s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));      \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#endif
