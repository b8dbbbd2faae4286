// SPDX-License-Identifier: GPL-2.0
/* The code of the trace events; what they are is in enet_trace.h. */
#define CREATE_TRACE_POINTS
#include "enet_trace.h"
