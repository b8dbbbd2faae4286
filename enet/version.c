// SPDX-License-Identifier: GPL-2.0
/*
 * The version that `modinfo -F version enet` and `/sys/module/enet/version` print. It is apart from
 * enet.rs, so that another version compiles nothing else anew; Kbuild chooses it.
 */
#include <linux/module.h>
#include <linux/stringify.h>

MODULE_INFO(version, __stringify(ENET_VERSION));
