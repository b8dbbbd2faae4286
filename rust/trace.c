// SPDX-License-Identifier: GPL-2.0
/* The code of the trace events, which enet_trace.h defines. */
#define CREATE_TRACE_POINTS
#include "enet_trace.h"
