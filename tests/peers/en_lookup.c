// SPDX-License-Identifier: GPL-2.0-only
/* Prints the address that en_lookup() finds for a host and port 2805, or the error's number. */
#include <stdlib.h>

#include "en_address.h"

int main(int count, char **words)
{
	struct sockaddr_en address;
	char text[EN_ADDRSTRLEN];
	int found = count == 2 ? en_lookup(words[1], 2805, &address) : 0;

	if (found == 1)
		puts(en_ntop(&address, text, sizeof(text)));
	else
		printf("%d %d\n", found, found < 0 ? errno : 0);
	return 0;
}
