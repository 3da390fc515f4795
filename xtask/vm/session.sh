#!/bin/sh
# Runs the command of this boot, as PID 1 of the quick flavor or as a service of systemd's.
# Talks with the host by a port: the command's output goes there, then a line with the token and how it ended.
export PATH=/vm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
exec 3<>/dev/vport0p1

mount_shares() {
    shared=trans=virtio,version=9p2000.L,msize=262144
    mkdir -p "/lib/modules/$(uname -r)" /vm/run /vm/bin /host
    mount -t 9p -o $shared run /vm/run
    mount -t 9p -o $shared,ro,cache=loose bin /vm/bin
    mount -t 9p -o $shared,ro,cache=loose modules /lib/modules
    mount -t 9p -o $shared host /host
}

# systemd mounts these on demand, from units that this boot leaves out.
mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
mountpoint -q /sys/kernel/debug || mount -t debugfs debugfs /sys/kernel/debug
mountpoint -q /sys/kernel/security || mount -t securityfs securityfs /sys/kernel/security
mkdir -p /run/netns /run/lock

mount_shares
. /vm/run/environment

if [ -n "$vm_save" ]; then
    # This boot is to be saved when it is warm. QEMU cannot save a VM that has one of its shares mounted.
    sh /vm/run/warm >/run/warm.log 2>&1 3>&-
    status=$?
    sync
    umount /host /lib/modules /vm/bin /vm/run
    if [ $status -ne 0 ]; then
        cat /run/warm.log >&3
        printf '\n%s %s\n' "$token" $status >&3
        sleep infinity
    fi
    printf '\n%s ready\n' "$token" >&3
    # Here it is saved. Each run of it goes on from here, when the host says what time it is.
    read -r now <&3
    date -s "@$now" >/dev/null
    mount_shares
    . /vm/run/environment
fi

# A pipe between the command and the port: a port can be opened only once, and /dev/stdout is opened anew by many.
rm -f /run/vm.output
mkfifo /run/vm.output
cat </run/vm.output >&3 &
exec 4<>/run/vm.output
cd /root
BOOT=$boot setsid -w sh /vm/run/command </dev/null >&4 2>&4 3>&- 4>&-
status=$?
# A disk that is kept must be whole before the host is told.
[ -z "$kept" ] || sync
printf '\n%s %s\n' "$token" $status >&4

if [ $$ -ne 1 ]; then
    exec systemctl --no-block poweroff
fi
busybox kill -9 -1
umount /vm/run /vm/bin /lib/modules /host 2>/dev/null
echo s >/proc/sysrq-trigger
echo u >/proc/sysrq-trigger
busybox poweroff -f
