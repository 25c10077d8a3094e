/* The check of the programs: what does not hold ends them. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #condition);                         \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#endif
