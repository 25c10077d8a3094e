/* For `cargo rig c-abi`: a client that returns from main with its rsocket open, and more sent than the server has read. What was sent
 * arrives, and then the end. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rsocket.h>

#define LENGTH 200000

static char bytes[LENGTH], got[LENGTH + 1];

int main(int count, char **arguments)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7300)};
	long done = 0;
	int i, stream;
	ssize_t part;

	for (i = 0; i < LENGTH; i++)
		bytes[i] = i * 7 / 5;
	inet_pton(AF_INET, "10.0.0.1", &at.sin_addr);
	stream = rsocket(AF_INET, SOCK_STREAM, 0);
	if (count > 1) {
		if (rconnect(stream, (struct sockaddr *)&at, sizeof(at)))
			return 2;
		while (done < LENGTH && (part = rsend(stream, bytes + done, LENGTH - done, 0)) > 0)
			done += part;
		printf("sent %ld\n", done);
		return !arguments[1];
	}
	if (rbind(stream, (struct sockaddr *)&at, sizeof(at)) || rlisten(stream, 1))
		return 2;
	stream = raccept(stream, NULL, NULL);
	while ((part = rrecv(stream, got + done, sizeof(got) - done, 0)) > 0)
		done += part;
	printf("received %ld, %s, then %zd\n", done, memcmp(got, bytes, LENGTH) ? "other bytes" : "the same", part);
	return 0;
}
