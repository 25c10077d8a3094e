/* Prints every table of names and numbers that the headers declare as functions, one value a line. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <limits.h>
#include <stdio.h>

/* Of the private version in Debian 12, whose header does not have it. */
const char *ibv_wr_opcode_str(enum ibv_wr_opcode opcode);

/* The names of all numbers that a table may have, and some more at both sides. */
enum { BELOW = -3, ABOVE = 300 };
/* More than any rate has. */
enum { MBPS = 2000000, MULT = 2000 };

#define NAMES(function) \
	do { \
		for (int n = BELOW; n <= ABOVE; n++) \
			name(#function, n, function(n)); \
		name(#function, INT_MAX, function(INT_MAX)); \
		name(#function, INT_MIN, function(INT_MIN)); \
	} while (0)

#define NUMBERS(function, below, above) \
	do { \
		for (int n = below; n <= above; n++) \
			number(#function, n, function(n)); \
		number(#function, INT_MAX, function(INT_MAX)); \
		number(#function, INT_MIN, function(INT_MIN)); \
	} while (0)

static void name(const char *function, int argument, const char *text)
{
	printf("%s(%d)\t%s\n", function, argument, text ? text : "NULL");
}

static void number(const char *function, int argument, int result)
{
	printf("%s(%d)\t%d\n", function, argument, result);
}

int main(void)
{
	NAMES(ibv_wc_status_str);
	NAMES(ibv_event_type_str);
	NAMES(ibv_node_type_str);
	NAMES(ibv_port_state_str);
	NAMES(ibv_wr_opcode_str);
	NAMES(rdma_event_str);
	NUMBERS(ibv_rate_to_mbps, BELOW, ABOVE);
	NUMBERS(ibv_rate_to_mult, BELOW, ABOVE);
	NUMBERS(mbps_to_ibv_rate, BELOW, MBPS);
	NUMBERS(mult_to_ibv_rate, BELOW, MULT);
	return 0;
}
