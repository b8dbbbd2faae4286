// SPDX-License-Identifier: GPL-2.0
/*
 * The version that `modinfo -F version enet` and `/sys/module/enet/version` print. Kbuild defines
 * `ENET_VERSION`. If it changes, only this small file is compiled again, and not enet.rs.
 */
#include <linux/module.h>
#include <linux/stringify.h>

MODULE_INFO(version, __stringify(ENET_VERSION));
