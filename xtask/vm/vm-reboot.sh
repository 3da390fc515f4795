#!/bin/sh
# Ends this boot from inside the command; with --reboot the host starts the next one on the same disk.
# BOOT counts them, from 1.
. /vm/run/environment
sync
printf '\n%s reboot\n' "$token" >/run/vm.output
if [ "$(cat /proc/1/comm)" = systemd ]; then
    systemctl --no-block reboot
else
    echo s >/proc/sysrq-trigger
    echo u >/proc/sysrq-trigger
    busybox reboot -f
fi
# The command does not go on while the boot ends.
exec sleep infinity
